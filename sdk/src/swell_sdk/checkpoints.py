"""What lies in the job's checkpoint folder, and how does something get there whole?

A checkpoint is written under a temporary name, brought to the disk, and renamed: `attempt-3-epoch-5`, or inside an
epoch `attempt-3-epoch-5-step-120`. So a name that
can be read is a checkpoint that is whole, and a stale copy of the job can never overwrite a newer one's.

Between that and the server's answer there is a note, `.unreported-12.3.json`: should this process be killed while the
server is away, the next attempt finds the note and goes on from there. Notes of earlier attempts stay until this
attempt has a checkpoint of its own that the server knows: until then other ranks may still be starting and must find
what rank 0 found.

On Kubernetes a container that fails may be started again within its attempt, with the variables of the attempt's
beginning. There the note stays when the server knows, as `.reported-12.3.json`, and tells how far this attempt was.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from swell_sdk.news import Checkpoint, Inside
from swell_sdk.voice import say

OURS = re.compile(r"attempt-(\d+)-epoch-(\d+)(?:-step-(\d+))?(?:-(\d+))?(?!\d)")
PARTIAL = re.compile(r"\.partial-(\d+)-")
NOTE = re.compile(r"\.(?:un)?reported-(.*)\.json")

#: attempt, epoch, step, and which one of that step: later is newer
Age = Tuple[int, int, int, int]


class Found(NamedTuple):
    """What an earlier attempt saved but could not report."""

    epochs_done: int
    path: Optional[str]  #: None: the job finds it by itself
    inside: Optional[Inside] = None  #: how far into the next epoch; None: at its beginning

    @property
    def done(self) -> Tuple[int, int]:
        return self.epochs_done, self.inside.steps_done if self.inside else 0


class Checkpoints:
    """The folder, as one attempt sees it."""

    def __init__(self, folder: str, *, attempt: int, attempt_id: str, may_restart: bool = False) -> None:
        """`may_restart`: this process may be started again within the attempt."""
        self.folder = Path(folder)
        self.may_restart = may_restart
        self._attempt, self._attempt_id = attempt, attempt_id
        self._note = self.folder / f".unreported-{attempt_id}.json"
        self._known = self.folder / f".reported-{attempt_id}.json"  #: only where it may be started again
        self._noted: Optional[Checkpoint] = None  #: what our note says; None: there is none
        self._resumed_at = (-1, 0)  #: epochs and steps of the note that this attempt resumed from; -1: of none
        self._drafts = itertools.count(1)
        self._lock = threading.RLock()  #: of the note; held for one small file operation

    def write(
        self, write: Callable[[str], object], *, epochs_done: int, suffix: str, steps_done: int = 0
    ) -> Optional[Path]:
        """Where it is now, whole. None: it could not be brought to the disk, and nothing is left of it.

        What `write` raises is the script's own and goes through.
        """
        name = f"epoch-{epochs_done}-step-{steps_done}" if steps_done else f"epoch-{epochs_done}"
        partial = self._draft(f"{name}{suffix}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove(partial)
        except OSError as error:
            say("folder", f"cannot use the folder {self.folder} for checkpoints: {error}")
            return None
        try:
            write(str(partial))
        except BaseException:
            remove(partial)
            raise
        try:
            return self._place(partial, name, suffix)
        except OSError as error:
            say("save", f"the checkpoint after {epochs_done} epochs could not be written; training continues: {error}")
            remove(partial)
            return None

    def _draft(self, name: str) -> Path:
        """Never the same twice: a signal's handler may save while it interrupts a save."""
        return self.folder / f".partial-{self._attempt}-{os.getpid()}-{next(self._drafts)}-{name}"

    def _place(self, partial: Path, name: str, suffix: str) -> Path:
        sync(partial)
        final = self.folder / f"attempt-{self._attempt}-{name}{suffix}"
        again = 1
        while final.is_dir() or (partial.is_dir() and final.exists()):  # only a file can be replaced in one step
            again += 1
            final = self.folder / f"attempt-{self._attempt}-{name}-{again}{suffix}"
        partial.replace(final)
        sync_folder(self.folder)
        return final

    def prune(self, newest: str, keep: int) -> None:
        """Remove ours that are older than `newest`, apart from the last `keep`, that one included."""
        age = read_age(newest)
        if age is None or keep < 1:
            return
        ours = [(one_age, name) for one_age, name in self._ours() if one_age <= age]
        kept = sorted({one_age for one_age, _ in ours})[-keep:]  # a model and its optimizer are of one age
        for _, name in (one for one in ours if one[0] not in kept):
            gone = self._draft(f"gone-{name}")
            try:
                (self.folder / name).rename(gone)  # a folder that is half removed must not look whole
            except OSError:
                continue
            remove(gone)

    def sweep(self) -> None:
        """Remove what earlier attempts were writing when they ended."""
        for name in self._names():
            match = PARTIAL.match(name)
            if match and int(match.group(1)) < self._attempt:
                remove(self.folder / name)

    def note(self, checkpoint: Checkpoint) -> None:
        """Remember it until the server knows of it, unless a later one is noted: a report may be long under way."""
        with self._lock:
            if self._noted is checkpoint or (self._noted is not None and self._noted.done > checkpoint.done):
                return
            draft = self._draft("note")
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps(checkpoint.to_document()))
                sync(draft)
                draft.replace(self._note)
            except OSError as error:
                say("note", f"cannot record a checkpoint that has not been reported yet: {error}")
                return
            self._noted = checkpoint

    def settle(self, checkpoint: Checkpoint) -> None:
        """The server knows of it: its note goes, and what has become older with it."""
        with self._lock:
            if self._noted is checkpoint:
                self._noted = None
                self._put_away()
        if checkpoint.done > self._resumed_at:
            for number, name in self._notes():
                if number < self._attempt:
                    remove(self.folder / name)
        if checkpoint.path is not None:
            self.prune(checkpoint.path, checkpoint.keep)

    def _put_away(self) -> None:
        if not self.may_restart:
            remove(self._note)
            return
        try:
            self._note.replace(self._known)
        except OSError as error:
            say("note", f"cannot record a checkpoint for a restart of this container: {error}")

    def find(self, epochs_done: int, steps_done: int = 0, reported: str = "") -> Optional[Found]:
        """The furthest that an earlier attempt, or this one before a restart, noted beyond what the server knows.

        `reported`: the last checkpoint that the server knows. Notes of attempts before the one that made it are those
        of stale copies: that attempt has seen all that were there when it began.
        """
        found, done = None, (epochs_done, steps_done)
        age = read_age(reported)
        first, last = 0 if age is None else age[0], self._attempt if self.may_restart else self._attempt - 1
        for number, name in self._notes():
            one = self._read_note(name) if first <= number <= last else None
            if one is not None and one.done > done:
                found, done = one, one.done
                self._resumed_at = done
        return found

    def _read_note(self, name: str) -> Optional[Found]:
        try:
            document = json.loads((self.folder / name).read_text())
            epochs_done, path = int(document["epochs_done"]), document["path"]
            if path is not None and not (self.folder / path).exists():
                return None
            inside = read_inside(document)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return Found(epochs_done, None if path is None else str(self.folder / path), inside)

    def relative(self, path: str) -> Optional[str]:
        """How the server knows it: as seen from the folder. None: it lies elsewhere."""
        try:
            inside = Path(path).resolve().relative_to(self.folder.resolve())
        except (ValueError, OSError, RuntimeError):
            return None
        return None if inside == Path() else str(inside)

    def _notes(self) -> Iterator[Tuple[int, str]]:
        """Notes of this job: number of the attempt, and file."""
        job = self._attempt_id.rpartition(".")[0]
        for name in self._names():
            match = NOTE.fullmatch(name)
            if match:
                of_job, _, number = match.group(1).rpartition(".")
                if of_job == job and number.isdecimal():
                    yield int(number), name

    def _ours(self) -> Iterator[Tuple[Age, str]]:
        for name in self._names():
            age = read_age(name)
            if age is not None:
                yield age, name

    def _names(self) -> List[str]:
        try:
            return sorted(os.listdir(self.folder))  # noqa: PTH208  names are all we need
        except OSError:
            return []


def read_age(name: str) -> Optional[Age]:
    match = OURS.match(name)
    if match is None:
        return None
    attempt, epoch, step, again = match.groups()
    return int(attempt), int(epoch), int(step or 0), int(again or 1)


def read_inside(document: Dict[str, Any]) -> Optional[Inside]:
    """From a note. None: the checkpoint was made between epochs."""
    if not document.get("steps_done"):
        return None
    total, samples = document.get("steps_total"), document.get("samples_done")
    return Inside(
        int(document["steps_done"]),
        None if total is None else int(total),
        None if samples is None else int(samples),
    )


def sync(path: Path) -> None:
    """Bring a file, or a folder with everything in it, to the disk. Raises OSError also where there is nothing."""
    if not path.is_dir():
        _sync_one(path)
        return
    for folder, _, names in os.walk(path):
        for name in names:
            if not (Path(folder) / name).is_symlink():
                _sync_one(Path(folder) / name)
        sync_folder(Path(folder))


def sync_folder(path: Path) -> None:
    try:
        _sync_one(path)
    except OSError:
        return  # some network file systems cannot; the rename is in order there all the same


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """A file or a folder, or nothing."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    except OSError:
        return
