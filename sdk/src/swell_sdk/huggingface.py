"""How does Hugging Face's Trainer report to Swell, and stop when it is asked to?

    run = swell_sdk.attach()
    args = TrainingArguments(output_dir=run.folder, save_strategy="epoch", num_train_epochs=run.epochs_total or 3)
    Trainer(model, args, train_dataset=data, callbacks=[SwellCallback()]).train(run.checkpoint_path)

The Trainer saves by itself, when its arguments say; asked to stop it saves once more first.
"""

from __future__ import annotations

import importlib
from time import perf_counter
from typing import Any, Dict, Optional

from swell_sdk import trainer
from swell_sdk.attachment import attach
from swell_sdk.run import Run

_Callback: Any = importlib.import_module("transformers").TrainerCallback


class SwellCallback(_Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._run: Optional[Run] = None  #: None: the trainer has not begun
        self._is_yielding = False

    @property
    def run(self) -> Run:
        if self._run is None:
            self._run = attach()
        return self._run

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._run = attach(rank=args.process_index)
        self._run.note_world(getattr(args, "world_size", 1))
        self._run.news.epochs_total = trainer.epochs_total(state, args)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.note_epoch_begun(trainer.epochs_done(state))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The Trainer saves at any step, and skips the data before it when it resumes, unless its arguments say not to.
        Ranks agree: each compares its own step with the same number."""
        self.run.step_done()
        if getattr(args, "ignore_data_skip", False):
            return
        self.run.news.steps_per_epoch = trainer.steps_per_epoch(state)
        self.run.tell_can_stop()
        if self.run.stops_here() and not trainer.is_epoch_over(state):
            self._stop(control)
        elif getattr(args, "world_size", 1) == 1 and perf_counter() >= self.run.save_due_at:
            control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        for name, value in (logs or {}).items():
            if isinstance(value, (int, float)):
                self.run.metric(name, value)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer.report_save(self.run, args, state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_yielding:
            return  # it stops in the middle: the Trainer ends the epoch, but it is not done
        self.run.end_epoch()
        if self.run.must_stop():
            self._stop(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_yielding:
            self.run.leave()

    def _stop(self, control: Any) -> None:
        self._is_yielding = True
        control.should_save = True
        control.should_training_stop = True
