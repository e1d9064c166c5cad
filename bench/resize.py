"""How long does training stand still when its width or its place in the queue changes, and what is lost by it?

Two simulated GPUs, a job that trains on one or two, and others that come and go. Each change is measured when the
planner may make it at once, so its patience (a job runs for as long as its restart takes before it is touched again)
is not in the numbers; up to one epoch of waiting for the checkpoint is. "Training" is the line that a script
prints before its first step.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.children import cpu_s
from bench.installation import Installation, installed
from bench.rows import Row, Setting, middle, progress
from swell.client import Job

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "sdk/src"
TORCH = "/usr/bin/python3"  # Debian's, which is where python3-torch is
EPOCH_S = 0.5  # on one GPU; half of it on two
EPOCHS = 100_000  # more than it comes to: it is cancelled when all is measured
PATIENCE_S = 120.0
LOOK_S = 0.005  # between looks at a log
RESTART_S_UNKNOWN = 30.0  # what the planner assumes of a job that reports nothing
PREEMPT_AFTER_RESTARTS = 4  # so many restarts' time it must have run before it is preempted


@dataclass(frozen=True, slots=True)
class Trainer:
    name: str
    command: tuple[str, ...]
    spec: dict[str, Any]
    python: str
    imports: str  #: what its start is made of, to calibrate with
    reports: bool = True


TRAINERS = (
    Trainer(
        "plain",
        (sys.executable, str(ROOT / "examples/plain/train.py"), "--step-s", str(EPOCH_S / 20)),
        {"gpus": "1..2", "epochs": EPOCHS},
        sys.executable,
        "import swell_sdk",
    ),
    Trainer(
        "PyTorch DDP",
        (TORCH, str(ROOT / "examples/pytorch/ddp.py"), "--sample-s", str(EPOCH_S / 512)),
        {"tasks": "1..2", "gpus": 1, "epochs": EPOCHS},
        TORCH,
        "import torch, torch.distributed, torch.nn.parallel",
    ),
    Trainer(
        "plain, without the library, immediate",
        (sys.executable, "-c", "from bench import resize; resize.child()"),
        {"gpus": "1..2", "resize": "immediate"},
        sys.executable,
        "pass",
        reports=False,
    ),
)


@dataclass(slots=True)
class Measured:
    """One kind of change; the middle of its rounds counts."""

    seconds: list[float] = field(default_factory=list)
    paused_s: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)

    def row(self, name: str) -> Row:
        detail: dict[str, Any] = {"rounds": len(self.seconds), "worst": max(self.seconds)}
        if self.paused_s:
            detail["paused_s"] = middle(self.paused_s)
        return Row("resize", name, "s", middle(self.seconds), detail={**detail, "lost_gpu_s": max(self.lost)})


def run(setting: Setting) -> Iterator[Row]:
    for trainer in TRAINERS:
        starts = [cpu_s((trainer.python, "-c", trainer.imports))[1] for _ in range(3)]
        yield Row("resize", f"calibration: python -c {trainer.imports!r}", "s", None, middle(starts))
        with installed(setting.folder, cpus=4, gpus=2) as ours:
            yield from _Stage(ours, trainer).rows(setting.repeats if trainer.reports else 1)


class _Stage:
    """One job, and what is done to it."""

    def __init__(self, ours: Installation, trainer: Trainer) -> None:
        self.ours, self.trainer = ours, trainer
        self.guest = self._submit_guest()
        _await(lambda: self.guest.refresh().state == "running", "the first guest runs")
        env = {"PYTHONPATH": f"{SDK}:{ROOT}", "BENCH_SAVED": str(ours.state.root / "saved")}
        self.job = ours.client.submit(trainer.command, cpus=0.5, env=env, **trainer.spec)
        self.attempt = 0
        self._await_training()

    def rows(self, rounds: int) -> Iterator[Row]:
        grown, shrunk, preempted, resumed = Measured(), Measured(), Measured(), Measured()
        for number in range(rounds):
            progress(f"resize: {self.trainer.name}, round {number + 1} of {rounds}")
            self._grow(grown)
            self._shrink(shrunk)
            self._preempt(preempted, resumed)
        self.job.cancel(grace_s=0)
        name = self.trainer.name
        how = "room free" if self.trainer.reports else "`scale --now`"
        yield grown.row(f"{name}: grows, {how} to training on two GPUs")
        if self.trainer.reports:
            yield shrunk.row(f"{name}: shrinks, another job submitted to that job running")
        else:
            yield shrunk.row(f"{name}: shrinks, {how} to training on one GPU")
        yield preempted.row(f"{name}: preempted, urgent job submitted to that job running")
        yield resumed.row(f"{name}: after a preemption, room free to training")

    # -- changes ---------------------------------------------------------------------------------------------

    def _grow(self, found: Measured) -> None:
        self._settle(1)
        lost = self._lost()
        self.guest.cancel(grace_s=0).wait(timeout_s=PATIENCE_S)
        free_at = _moment(self.guest.document["ended_at"])
        if not self.trainer.reports:
            free_at = self._scale(2)
        self._note(found, free_at, self._await_training(), lost)

    def _shrink(self, found: Measured) -> None:
        self._settle(1)
        lost, asked_at = self._lost(), time.time()
        if not self.trainer.reports:
            self._note(found, self._scale(1), self._await_training(), lost)
            self.guest = self._submit_guest()
            return
        self.guest = self._submit_guest()
        again_at = self._await_training()
        self._note(found, asked_at, self._began_at(self.guest), lost, again_at)

    def _preempt(self, away: Measured, back: Measured) -> None:
        self._settle(PREEMPT_AFTER_RESTARTS)
        lost, asked_at = self._lost(), time.time()
        urgent = self._submit_guest(priority=9)
        self._note(away, asked_at, self._began_at(urgent), lost)
        lost = self._lost()
        urgent.cancel(grace_s=0).wait(timeout_s=PATIENCE_S)
        self._note(back, _moment(urgent.document["ended_at"]), self._await_training(), lost)

    def _note(self, found: Measured, since: float, until: float, lost: float, again_at: float | None = None) -> None:
        """`again_at`: when training went on, where that is not what was waited for."""
        found.seconds.append(until - since)
        found.lost.append(self._lost() - lost)
        ends = [one["ended_at"] for one in self._show()["attempts"] if one["number"] == self.attempt - 1]
        if again_at is not None:
            found.paused_s.append(again_at - _moment(ends[0]))

    def _scale(self, width: int) -> float:
        asked_at = time.time()
        self.ours.client.scale(self.job.id, width, now=True)
        return asked_at

    # -- waiting ---------------------------------------------------------------------------------------------

    def _settle(self, restarts: int) -> None:
        """Until the planner may touch it: it has run for so many of its restarts, and finished an epoch."""
        document = self._show()
        known = document["training"] or {}
        wait_s = restarts * (known.get("restart_s") or RESTART_S_UNKNOWN) + 0.2
        began_at = _moment(document["attempts"][-1]["created_at"])
        if self.trainer.reports or restarts > 1:
            time.sleep(max(0.0, began_at + wait_s - time.time()))
        if self.trainer.reports:
            done = document["attempts"][-1]["resumed_from_epoch"]
            _await(lambda: (self.job.refresh().document["progress"]["epochs_done"] or 0) >= done + 2, "it has trained")

    def _await_training(self) -> float:
        """When the next attempt began to train."""
        self.attempt += 1
        log = self.ours.state.tasks / f"{self.job.id}.{self.attempt}" / "0" / "log"
        _await(lambda: log.exists() and b"width " in log.read_bytes(), f"attempt {self.attempt} trains")
        return time.time()

    def _submit_guest(self, priority: int = 0) -> Job:
        return self.ours.client.submit(["sleep", "infinity"], name="guest", gpus=1, cpus=0.5, priority=priority)

    def _began_at(self, job: Job) -> float:
        _await(lambda: job.refresh().document["started_at"] is not None, f"job {job.id} runs")
        return _moment(job.document["started_at"])

    def _lost(self) -> float:
        return float(self.job.refresh().document["lost_gpu_seconds"])

    def _show(self) -> dict[str, Any]:
        return self.ours.client.show(self.job.id)


def child() -> None:
    """A job without the library: resumes from its own file, is stopped by SIGTERM wherever it is."""
    saved = Path(os.environ["BENCH_SAVED"])
    done = int(saved.read_text()) if saved.exists() else 0
    width = int(os.environ["NUM_GPUS"])
    print(f"width {width}, {done} epochs done", flush=True)
    while True:
        time.sleep(EPOCH_S / width)
        done += 1
        draft = saved.with_suffix(".new")
        draft.write_text(str(done))
        draft.replace(saved)


def _await(is_true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s until {what}")
        time.sleep(LOOK_S)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
