"""Small words for jobs, for the tests of the store."""

from __future__ import annotations

from typing import Any

from swell.manifests import Context, read_document
from swell.model.job import JobId, JobState
from swell.store import Changes, NewJob, Store


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def new_job(name: str = "a", *, owner: str = "ann", env: dict[str, str] | None = None, **spec: Any) -> NewJob:
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": name}}
    read = read_document({**document, "spec": {"command": ["true"], **spec}}, Context("/work"))
    return NewJob(read, owner, {"HOME": "/home/ann"} if env is None else env)


def accept(store: Store, *names: str, **options: Any) -> list[JobId]:
    return [job.id for job in store.accept([new_job(name, **options) for name in names]).result()]


def end(store: Store, job: JobId, at: float, state: JobState = JobState.SUCCEEDED) -> None:
    store.record(Changes(jobs={job: {"state": str(state), "reason_code": None, "ended_at": at}})).result()
