"""What does one cycle change in the store?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from swell.model.job import JobId
from swell.model.usage import Account, Used
from swell.store.records import AttemptRecord, EventRecord, TaskRecord
from swell.store.storable import to_json


@dataclass(slots=True)
class Changes:
    """What one cycle changes, written in one transaction or not at all."""

    jobs: dict[JobId, dict[str, Any]] = field(default_factory=dict)  #: new values of columns
    attempts: list[AttemptRecord] = field(default_factory=list)
    tasks: list[TaskRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    usage: dict[tuple[str, str], Used] = field(default_factory=dict)  #: owner and day → what is added to it
    accounts: dict[str, Account] = field(default_factory=dict)  #: owner → the new value
    generation: int | None = None  #: None: no action was planned

    def __bool__(self) -> bool:
        return bool(self.jobs or self.attempts or self.tasks or self.events or self.generation)

    def set_job(self, job: JobId, **values: Any) -> None:
        self.jobs.setdefault(job, {}).update(values)


def split_by_job(changes: Changes) -> dict[JobId, Changes]:
    """The part of each job; events of no job are left out."""
    parts: dict[JobId, Changes] = {}
    for job, values in changes.jobs.items():
        parts.setdefault(job, Changes()).jobs[job] = values
    for attempt in changes.attempts:
        parts.setdefault(attempt.job_id, Changes()).attempts.append(attempt)
    for task in changes.tasks:
        parts.setdefault(task.job_id, Changes()).tasks.append(task)
    for told in changes.events:
        if told.job_id is not None:
            parts.setdefault(told.job_id, Changes()).events.append(told)
    return parts


def joined(parts: Sequence[Changes]) -> Changes:
    """The parts of several jobs as one."""
    whole = Changes()
    for part in parts:
        whole.jobs |= part.jobs
        whole.attempts += part.attempts
        whole.tasks += part.tasks
        whole.events += part.events
    return whole


def rows_by_columns(jobs: dict[JobId, dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Rows that set the same columns, which one statement writes."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for job, values in jobs.items():
        groups.setdefault(tuple(values), []).append({"job": job, **values})
    return groups.values()


def bound(row: dict[str, Any]) -> dict[str, Any]:
    """The values of one row as the statement takes them; what is no plain value is JSON."""
    encoded = {name: to_json(value) if isinstance(value, dict | list | tuple) else value for name, value in row.items()}
    return {"job": encoded.pop("job"), **{f"new_{name}": value for name, value in encoded.items()}}
