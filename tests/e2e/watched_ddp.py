"""Which samples does the example of DDP train on? It runs unchanged, and notes each batch that its sampler deals out.

The loader has no workers, so a batch is dealt out when the step that trains on it begins.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ddp  # type: ignore[import-not-found]

import swell_sdk
from swell_sdk.torch import ResumableSampler


class Watched(ResumableSampler):
    def __iter__(self) -> Iterator[list[int]]:
        run = swell_sdk.attach()
        about: dict[str, Any] = {"attempt": run.environment.attempt, "epoch": run.epoch}
        path = Path(os.environ["SEEN"]) / f"{run.environment.attempt}-{run.rank}"
        for batch in super().__iter__():
            with path.open("a") as file:
                file.write(json.dumps({**about, "at": time.time(), "samples": batch}) + "\n")
            yield batch


ddp.ResumableSampler = Watched
ddp.main()
