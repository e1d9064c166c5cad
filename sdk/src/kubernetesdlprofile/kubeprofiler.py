"""How do scripts that were written for KubeProfiler run under Swell, unchanged?

A thin skin over `swell_sdk.Run`: the old names, the same threads. Such a script calls `measure()` in every step,
`start_epoch()` and `end_epoch()` around every epoch, and saves by itself *after* `end_epoch()`. So an epoch counts as
durable only when the script has come past its save: at the next `start_epoch()`, the next `measure()`, `end()`, or
the clean end of the process. Asked to stop, it ends at the first `measure()` of an epoch, with exit code 0 (with 75
where it waits to be stopped: `swell_sdk.waiting`).
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import zipfile
from pathlib import Path
from time import perf_counter
from typing import Any, List, NoReturn, Optional, Tuple

from swell_sdk import attach
from swell_sdk.run import YIELDED
from swell_sdk.voice import say

SNAPSHOTS = Path("/snapshots")
VERSION = re.compile(r"version_(\d+)")


class KubeProfiler:
    def __init__(self, job_manager_hostname: str = "", db_hostname: str = "") -> None:
        """The two names are accepted and not used: Swell says by itself where its server is."""
        self._hostnames = (job_manager_hostname, db_hostname)
        self.JOBID = os.environ.get("JOB_UUID", "")
        self.PROFILE_EACH = _number("HEARTBEAT_FREQ", 0)
        self.RANK = _number("NODE_RANK", 0)
        self.NODE_LIST = os.environ.get("NODELIST", "")
        self.NUM_GPUS = _number("NUM_GPUS", 1)
        self.NUM_NODES = _number("NUM_NODES", 1)
        self.BATCH_SIZE = _number("BATCH_SIZE", 1)
        self.TRAINING_SET_SIZE = _number("TRAINING_SET_SIZE", 0)
        self.LOCAL_RANK = _number("LOCAL_RANK", -1)
        self._run = attach(rank=_rank(self.RANK, self.LOCAL_RANK))
        self._news = self._run.news
        told = self._run.environment
        self.RESTARTED = self._run.restarted
        self.EPOCHS = 1 if told.epochs_total is None else told.epochs_total
        self._is_endless = told.epochs_total is None
        self.EPOCHS_DONE = self._run.epochs_done

        self.epoch = self.EPOCHS_DONE
        per_step = max(1, self.BATCH_SIZE) * max(1, self.NUM_GPUS) * max(1, self.NUM_NODES)
        self.iterationPerEpoch = int(self.TRAINING_SET_SIZE / per_step)
        self.maxIterations = self.iterationPerEpoch * self.EPOCHS
        self.iterations = 0
        self.mean_iteration_duration = 0.0
        self.has_to_stop = False
        self.root_dir = str(_root_dir(told.checkpoints, self.JOBID))
        self.ckpt_path = find_checkpoint(Path(self.root_dir)) if self.RESTARTED else None

        self._last: Optional[float] = None  #: when the step before ended; None: no step of this epoch has
        self._timed = 0  #: steps that `mean_iteration_duration` is made of
        self._has_measured = False
        self._has_begun = False  #: the epoch `self.epoch`
        self._ended: Optional[int] = None  #: epochs done, whose save may be yet to come; None: nothing is open
        _remember_exit_code()
        atexit.register(self._at_exit)

    def measure(self) -> None:
        """In every step. The first one of an epoch sets the clock, and is where a job that has to stop ends."""
        now = perf_counter()
        last = self._last
        if last is None or self.has_to_stop:
            self._measure_first(now)
            return
        self._last = now
        self.iterations += 1
        self._timed += 1
        seconds = now - last
        self.mean_iteration_duration += (seconds - self.mean_iteration_duration) / self._timed
        self._news.steps += 1
        self._news.step_seconds += seconds
        if self.PROFILE_EACH > 0 and self.iterations % self.PROFILE_EACH == 0:
            self._run.tell()

    def start_epoch(self) -> None:
        self._note_durable()
        self._begin()

    def end_epoch(self) -> None:
        self.epoch += 1
        self._run.end_epoch()
        self._ended = self.epoch
        self._has_begun = False
        self._last = None

    def end(self) -> None:
        self._note_durable()
        self._run.tell()

    def _measure_first(self, now: float) -> None:
        if not self._has_begun:
            self._note_durable()
            self._begin()
        if self.has_to_stop:
            self._stop()
        if self._has_measured:
            self.iterations += 1
        self._has_measured = True
        self._last = now

    def _begin(self) -> None:
        self._has_begun = True
        self._last = None
        has_more = self._is_endless or self.epoch < self.EPOCHS - 1
        if has_more and self._run.orders.want_stop(self.epoch):
            self.has_to_stop = True
        else:
            self._run.note_epoch_begun(self.epoch)

    def _note_durable(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._run.durable(ended)

    def _stop(self) -> NoReturn:
        self._run.flush_yield()
        # Ended from outside it must not look as if it was done.
        sys.exit(YIELDED if self._run.environment.waits_to_be_stopped else None)

    def _at_exit(self) -> None:
        if _is_clean_end():
            self._note_durable()


def find_checkpoint(root: Path) -> str:
    """Lightning's newest that is whole; otherwise TensorFlow's folder, under whichever name it exists."""
    for version in _versions(root / "lightning_logs"):
        newest = [path for path in _newest_first(list(version.glob("checkpoints/*"))) if _is_whole(path)]
        if newest:
            return str(newest[0])
    folders = _newest_first([root / "tf_ckpt", root / "tf_ckpts"])
    return str(folders[0] if folders else root / "tf_ckpt")


def _versions(logs: Path) -> List[Path]:
    numbered: List[Tuple[int, Path]] = []
    for path in logs.glob("version_*"):
        match = VERSION.fullmatch(path.name)
        if match:
            numbered.append((int(match.group(1)), path))
    return [path for _, path in sorted(numbered, reverse=True)]


def _newest_first(paths: List[Path]) -> List[Path]:
    times: List[Tuple[int, Path]] = []
    for path in paths:
        try:
            times.append((path.stat().st_mtime_ns, path))
        except OSError:
            continue
    return [path for _, path in sorted(times, reverse=True)]


def _is_whole(path: Path) -> bool:
    """A file that torch was still writing is a zip archive without its end, or empty."""
    try:
        with path.open("rb") as file:
            begins = file.read(2)
        return zipfile.is_zipfile(path) if begins == b"PK" else bool(begins)
    except OSError:
        return False


def _root_dir(checkpoints: str, job_id: str) -> Path:
    """Where its user said that snapshots go, or else where the job's checkpoints are."""
    snapshots = os.environ.get("SWELL_SNAPSHOTS_DIR")
    if snapshots:
        root = Path(snapshots) / job_id
    elif checkpoints:
        root = Path(checkpoints)
    else:
        root = (SNAPSHOTS if os.access(SNAPSHOTS, os.W_OK) else Path("snapshots")) / job_id
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say("root_dir", f"cannot make {root}: {error}")
    return root


def _rank(node_rank: int, local_rank: int) -> int:
    """One process of a job reports, and is rank 0; whatever the launcher, the others are not."""
    if node_rank == 0 and local_rank <= 0:
        return _number("RANK", 0)
    return _number("RANK", 0) or node_rank * max(1, _number("LOCAL_WORLD_SIZE", 1)) + max(0, local_rank)


def _number(name: str, default: int) -> int:
    try:
        return int(float(os.environ[name]))
    except (KeyError, ValueError, OverflowError):
        return default


_exit_code: Any = None  #: what `sys.exit` was called with last


def _remember_exit_code() -> None:
    """Handlers at exit are not told how the process ends, and a failed script may have left its save out."""
    plain = sys.exit
    if getattr(plain, "is_remembering", False):
        return

    def remember(code: Any = None, /) -> NoReturn:
        global _exit_code
        _exit_code = code
        plain(code)

    remember.is_remembering = True  # type: ignore[attr-defined]
    sys.exit = remember


def _is_clean_end() -> bool:
    return _exit_code in (None, 0) and getattr(sys, "last_type", None) is None
