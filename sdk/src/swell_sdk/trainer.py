"""What has Hugging Face's Trainer just written?

Needs no framework: it reads the state and the arguments that the Trainer hands to callbacks, as objects or, where a
metric has made dictionaries of them, as those.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Optional

from swell_sdk.checkpoints import sync
from swell_sdk.news import Inside
from swell_sdk.run import Run
from swell_sdk.voice import say

NEARLY = 1e-6  # epochs are sums of steps; 2.9999999 is the end of the third


def read(source: Any, name: str, default: Any = None) -> Any:
    """A field of an object or of a dictionary."""
    if isinstance(source, dict):
        return source.get(name, default)
    return getattr(source, name, default)


def epochs_done(state: Any) -> int:
    """Whole epochs behind it."""
    return math.floor(float(read(state, "epoch") or 0.0) + NEARLY)


def is_epoch_over(state: Any) -> bool:
    """Was that the last step of an epoch, or of all?"""
    epoch = float(read(state, "epoch") or 0.0)
    return epoch - epochs_done(state) <= NEARLY or read(state, "global_step", 0) >= read(state, "max_steps", math.inf)


def steps_per_epoch(state: Any) -> Optional[int]:
    """None: it has done none yet."""
    epoch = float(read(state, "epoch") or 0.0)
    return round(read(state, "global_step", 0) / epoch) if epoch > NEARLY else None


def read_inside(state: Any) -> Optional[Inside]:
    """How far into an epoch it is. None: at the end of one."""
    total = steps_per_epoch(state)
    if not total or is_epoch_over(state):
        return None
    return Inside(read(state, "global_step") - epochs_done(state) * total, total)


def epochs_total(state: Any, args: Any = None) -> Optional[int]:
    total = read(state, "num_train_epochs") or read(args, "num_train_epochs")
    return math.ceil(float(total)) if total and float(total) > 0 else None


def report_save(run: Run, args: Any, state: Any) -> None:
    """The Trainer has saved: bring it to the disk, then say so."""
    if run.rank != 0:
        return
    folder, step = read(args, "output_dir"), read(state, "global_step")
    path = None if folder is None else Path(folder).absolute() / f"checkpoint-{step}"
    if path is not None:
        try:
            sync(path)
        except OSError as error:
            say("trainer", f"the Trainer's checkpoint {path} cannot be flushed to disk: {error}")
            return
    run.durable(epochs_done(state), None if path is None else str(path), read_inside(state))
