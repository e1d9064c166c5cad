"""Which records may a visitor see and change: of Swell's jobs, and of jobs that somebody else runs?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Response

from swell.api.doors.records import Record, merged, record_of
from swell.api.doors.visitor import Visitor
from swell.api.doors.wire import text
from swell.api.services import Services
from swell.api.wire import Json
from swell.errors import Conflict, NotFound, Rejected
from swell.model.job import JobId
from swell.store import JobRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ledger:
    """All records that one visitor may see."""

    services: Services
    visitor: Visitor

    @property
    def _owner(self) -> str:
        return self.visitor.caller.user

    def job(self, name: str) -> JobRecord | None:
        """The one that Swell runs under this name; None: it runs none."""
        store = self.services.store
        return self.visitor.find_one(store, name) if self.visitor.knows(store, name) else None

    def reporting_job(self, name: str) -> JobRecord | None:
        """As `job`; at a job's own address it is that job, whatever its notifier takes from its host's name for its."""
        attempt = self.visitor.attempt
        return self.job(name) if attempt is None else self.services.store.job(attempt.job)

    async def find(self, name: str) -> JobRecord | None:
        """As `job`, in a thread: of one name there may be thousands."""
        return await self._read(lambda: self.job(name))

    async def find_reporting(self, name: str) -> JobRecord | None:
        return await self._read(lambda: self.reporting_job(name))

    async def read_record(self, job: JobId) -> Record:
        """Of the job as it is now."""
        return await self._read(lambda: self.record(self.services.store.job(job)))

    async def _read(self, work: Callable[[], T]) -> T:
        return await self.services.read(self.visitor.caller.user, work)

    def live(self) -> list[JobRecord]:
        alive = self.services.store.active(owner=self.visitor.caller.own)
        return [job for job in alive if self.visitor.may_touch(job)]

    def every(self, *, waiting: bool = True) -> list[Record]:
        """Of several jobs with one name all that live, or else the newest. `waiting`: also those without a GPU yet."""
        if self.visitor.attempt is not None:
            return [self.record(self.services.store.job(self.visitor.attempt.job))]
        noted = self.services.store.doors.foreign(self._owner)
        jobs, _ = self.services.store.listing(ended_since=None, owner=self.visitor.caller.own)
        shown: dict[str, list[JobRecord]] = {}
        for job in jobs:  # those that live come first, then the newest
            if self.visitor.may_touch(job) and (job.name not in shown or not job.state.has_ended):
                shown.setdefault(job.name, []).append(job)
        others = [record for name, record in noted.items() if name not in shown]
        kept = [job for some in shown.values() for job in some if waiting or job.width or job.state.has_ended]
        return [record_of(job, noted.get(job.name, {})) for job in kept] + others

    def record(self, job: JobRecord) -> Record:
        return record_of(job, self.services.store.doors.foreign_one(self._owner, job.name) or {})

    def foreign(self, name: str) -> Record:
        found = None if self.visitor.attempt else self.services.store.doors.foreign_one(self._owner, name)
        if found is None:
            raise _unknown(name)
        return found

    async def add(self, record: Record) -> None:
        name = record["job_name"]
        duplicate = Rejected(f"there is a job {name!r} already; choose another job_name, or PUT /update_job")
        if await self.find(name) is not None:
            raise duplicate

        def change(known: Record | None) -> Record:
            if known is not None:
                raise duplicate
            return record

        await self._write("RecordAdded", name, change)

    async def change(self, body: dict[str, Any], what: Callable[[Record], Record]) -> Response:
        """A record of somebody else's job."""
        name = text(body, "job_name")
        if self.visitor.attempt is not None:
            raise _unknown(name)

        def change(known: Record | None) -> Record:
            if known is None:
                raise _unknown(name)
            return what(known)

        return Json({"message": "Job updated successfully", "job": await self._write("RecordChanged", name, change)})

    async def note(self, job: JobRecord, told: Record) -> Response:
        """Remember what Swell does not know by itself, refuse what is not so."""
        known = record_of(job, {})
        wrong = {field: value for field, value in told.items() if field in known and value != known[field]}
        if wrong:
            field, value = min(wrong.items())
            raise Conflict(
                f"{field} of job {job.id} ({job.name}) is {known[field]!r}, not {value!r}: Swell runs it and knows; "
                f"{_instead(field, job)}"
            )
        noted = {field: value for field, value in told.items() if field not in known}
        if noted:
            await self._write("RecordChanged", job.name, lambda before: merged(before or {}, noted), job=job.id)
        return Json({"message": "Job updated successfully", "job": await self.read_record(job.id)})

    async def delete(self, name: str) -> None:
        job = await self.find(name)
        if job is not None:
            done = self.services.controller.delete([job], by=self._owner, origin=self.visitor.caller.origin)
            await asyncio.wrap_future(done)
        else:
            await self._read(lambda: self.foreign(name))
        await self._write("RecordDeleted", name, lambda _: None)

    async def _write(
        self, kind: str, name: str, change: Callable[[Record | None], Record | None], *, job: JobId | None = None
    ) -> Record | None:
        event = self.visitor.caller.did(kind, job, name=name)
        return await asyncio.wrap_future(self.services.store.doors.change_foreign(self._owner, name, change, event))


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no job {name!r}; GET /get_all_jobs lists them")


def _instead(field: str, job: JobRecord) -> str:
    if field == "gpu_assigned":
        return f"to change its width: POST /scale/{job.name}, or swell scale {job.id} N"
    if field in ("completed_epochs", "last_checkpoint_time", "total_epochs"):
        return "to report a checkpoint: PUT /update_last_checkpoint"
    return f"`swell show {job.id}` says how it stands"
