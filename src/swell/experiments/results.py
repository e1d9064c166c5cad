"""Where are the results of an experiment, and how do they survive an interruption?

    DIR/experiment.json           what was asked for; another experiment is refused here
    DIR/versions.json             of Swell, Python and the machine
    DIR/cluster/*.json            nodes, scheduler pods with image digests, topology: as it was before the first run
    DIR/runs/1-swell/events.jsonl raw events
    DIR/runs/1-swell/contender.*  configuration (.json) and log of a contender that the experiment has started
    DIR/runs/1-swell/run.json     written last: a run without it was interrupted, and is measured again from its start
    DIR/report/                   page, plots and tables; made from the rest, can be made again

A run is there whole or not at all, so a finished one is never measured twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from swell.errors import Conflict, Rejected
from swell.experiments.events import RunEvent, read_events, write_events
from swell.experiments.experiment import Experiment
from swell.experiments.figures import MeasuredRun, RunFacts, measure_run
from swell.model.codec import from_document, to_document

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)


class ResultsFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.report = path / "report"

    @classmethod
    def prepare(cls, path: Path, experiment: Experiment) -> ResultsFolder:
        """A new one, or the one that was interrupted. Nothing of another experiment is touched."""
        cls.refuse_another(path, experiment)
        if not (path / "experiment.json").exists():
            path.mkdir(parents=True, exist_ok=True)
            write_json(path / "experiment.json", to_document(experiment))
        return cls(path)

    @classmethod
    def refuse_another(cls, path: Path, experiment: Experiment) -> None:
        """Is there something else than this experiment?"""
        if (path / "experiment.json").exists():
            cls(path)._refuse_another(experiment)
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise Conflict(f"{path} holds something that is no experiment; name another folder with --outdir")

    @classmethod
    def existing(cls, path: Path) -> ResultsFolder:
        if not (path / "experiment.json").is_file():
            raise Rejected(f"{path} holds no experiment; `swell experiment run -f FILE --outdir {path}` makes one")
        return cls(path)

    def experiment(self) -> Experiment:
        return _read(self.path / "experiment.json", Experiment)

    def _refuse_another(self, experiment: Experiment) -> None:
        there = self.experiment()
        if there != experiment:
            fields = [name for name, value in to_document(there).items() if value != to_document(experiment)[name]]
            differs = ", ".join(name for name in fields if name != "source")
            raise Conflict(
                f"{self.path} holds another experiment ({there.name!r}; it differs in: {differs}); "
                "name another folder with --outdir"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process measures into a folder at a time."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"another process is measuring into {self.path}; wait for it, or stop it") from None
            yield

    # -- runs ------------------------------------------------------------------------------------------------

    def _run(self, contender: str, repeat: int) -> Path:
        return self.path / "runs" / f"{repeat}-{contender}"

    def has(self, contender: str, repeat: int) -> bool:
        return (self._run(contender, repeat) / "run.json").exists()

    def save(self, facts: RunFacts, events: Sequence[RunEvent], files: Mapping[str, bytes]) -> None:
        """run.json last: a run counts from the moment when that is there. `files`: what else is kept, by name."""
        folder = self._run(facts.contender, facts.repeat)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_events(folder / "events.jsonl", events)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        write_json(folder / "run.json", to_document(facts))

    def load(self, contender: str, repeat: int) -> tuple[RunFacts, tuple[RunEvent, ...]]:
        folder = self._run(contender, repeat)
        return _read(folder / "run.json", RunFacts), read_events(folder / "events.jsonl")

    def measured(self) -> tuple[MeasuredRun, ...]:
        """Every finished run, worked out again from its events."""
        experiment = self.experiment()
        wanted = [(one.name, repeat) for repeat in range(1, experiment.repeats + 1) for one in experiment.contenders]
        return tuple(measure_run(*self.load(*one)) for one in wanted if self.has(*one))

    # -- what else is kept -----------------------------------------------------------------------------------

    def describe(self, cluster: Mapping[str, Any], versions: Mapping[str, Any]) -> None:
        """As it was when the first run began; a run that is resumed keeps what was there."""
        if (self.path / "versions.json").exists():
            return
        (self.path / "cluster").mkdir(exist_ok=True)
        for name, value in cluster.items():
            write_json(self.path / "cluster" / f"{name}.json", value)
        write_json(self.path / "versions.json", dict(versions))

    def versions(self) -> dict[str, Any]:
        path = self.path / "versions.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found


def write_json(path: Path, document: Any) -> None:
    """Whole or not at all, also when the machine stops meanwhile."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return from_document(kind, json.loads(path.read_text(encoding="utf-8")))
    except UNREADABLE as error:
        raise Rejected(f"{path} cannot be read: {error}; was it written by another version?") from error
