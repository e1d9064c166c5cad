"""What happened in one run, moment by moment? Every number of a report is worked out from this log, and can be again.

Moments (`at`) are seconds since the run began, by the clock of the process that measures, when it heard of the event.
`stamp` is what the object itself says, by the cluster's clock, which may be another and often has whole seconds only.
An event that was heard of late, together with what came after it, says so: then its moment is taken from its stamp.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from swell.errors import Rejected


class EventKind(StrEnum):
    SUBMITTED = "submitted"  # the gang: the API server has its object
    PLANNED = "planned"  # the gang: its scheduler says that it may start (admitted by Kueue, started by Swell)
    CREATED = "created"  # a rank: its pod exists
    BOUND = "bound"  # a rank: it has a node
    RUNNING = "running"  # a rank: its program runs
    SUCCEEDED = "succeeded"  # a rank
    FAILED = "failed"  # a rank
    RELEASED = "released"  # a rank: it left its node before its end, because it was preempted or evicted
    DELETED = "deleted"  # a rank; without a rank the whole gang


ENDS = frozenset({EventKind.SUCCEEDED, EventKind.FAILED})
LEAVES = ENDS | {EventKind.RELEASED, EventKind.DELETED}


@dataclass(frozen=True, slots=True)
class RunEvent:
    at: float
    kind: EventKind
    gang: str
    rank: int | None = None  #: None: of the gang as a whole
    node: str = ""
    stamp: float | None = None  #: None: the object says nothing
    is_late: bool = False  #: heard of together with a later stage: `at` is too late, by nobody knows how much
    detail: str = ""


def write_events(path: Path, events: Iterable[RunEvent]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(_short(event)) + "\n")


def _short(event: RunEvent) -> dict[str, object]:
    """What is as it always is stays out: a run of 10,000 pods has 50,000 of these."""
    given = asdict(event)
    return {name: value for name, value in given.items() if value is not None and value is not False and value != ""}


def read_events(path: Path) -> tuple[RunEvent, ...]:
    return tuple(_read(path))


def _read(path: Path) -> Iterator[RunEvent]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _event(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(f"{path}: the events of this run cannot be read: {error}") from error


def _event(path: Path, number: int, line: str) -> RunEvent:
    try:
        given = json.loads(line)
        return RunEvent(**{**given, "kind": EventKind(given["kind"])})
    except (ValueError, TypeError, KeyError) as error:
        raise Rejected(f"{path}:{number}: this is no event of a run: {error}") from error
