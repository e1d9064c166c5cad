"""A stand-in, see README.md: the Trainer's events in the Trainer's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = 4


@dataclass
class State:
    num_train_epochs: int
    max_steps: int
    epoch: float = 0.0
    global_step: int = 0
    is_world_process_zero: bool = True


@dataclass
class Control:
    should_save: bool = False
    should_training_stop: bool = False


@dataclass
class TrainingArguments:
    output_dir: str
    num_train_epochs: int
    process_index: int = 0
    world_size: int = 1
    saves: bool = True


class TrainerCallback:
    pass


class Trainer:
    def __init__(self, args: TrainingArguments, callbacks: list[Any], work: Callable[[str], None]) -> None:
        self.args, self.callbacks, self.work = args, callbacks, work
        self.state = State(args.num_train_epochs, STEPS * args.num_train_epochs)
        self.control = Control()

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        if resume_from_checkpoint:
            self.state.global_step = int(resume_from_checkpoint.rpartition("-")[2])
            self.state.epoch = self.state.global_step / STEPS
        self._call("on_train_begin")
        while self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
            self._call("on_epoch_begin")
            self._train_epoch()
            self.control.should_save = self.control.should_save or self.args.saves
            self._call("on_epoch_end")
            self._save()
        self._call("on_train_end")

    def _train_epoch(self) -> None:
        while True:
            self.state.global_step += 1
            self.state.epoch = self.state.global_step / STEPS
            self.work(f"step {self.state.global_step}")
            self._call("on_step_end")
            self._save()
            if self.control.should_training_stop or self.state.global_step % STEPS == 0:
                return

    def _save(self) -> None:
        if self.control.should_save:
            self.control.should_save = False
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(exist_ok=True, parents=True)
            (folder / "model").write_text("x")
            self._call("on_save")

    def _call(self, event: str) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self.args, self.state, self.control)
