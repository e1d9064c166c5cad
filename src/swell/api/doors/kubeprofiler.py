"""What do kubeprofiler's words mean here: profiling, has_to_stop, end_epoch, and the older submit and signal_end?

Scripts written for it save *after* they have reported an epoch, from every rank, and ask at the start of the next one
whether they have to stop. So an epoch is durable when all ranks have come back to ask, at the latest when the next one
ends; `EpochReports` counts them. docs/moving/kubeprofiler.md has the table.
"""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse

from swell.api.doors.submission import submit as submit_as
from swell.api.doors.visitor import Visitor, visitor_of
from swell.api.doors.wire import json_object, need, number, whole
from swell.api.reports import ATTEMPTS_REMEMBERED_MAX, Pace
from swell.api.services import Services
from swell.api.wire import Json
from swell.errors import NotFound
from swell.model.job import AttemptId, job_uuid
from swell.model.training import Checkpoint, Report
from swell.store import JobRecord

UUID = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")
Body = Annotated[dict[str, Any], Depends(json_object)]
By = Annotated[Visitor, Depends(visitor_of)]


def kubeprofiler_router(services: Services) -> APIRouter:
    router = APIRouter()
    record = Record(services)
    _add_reports(router, services, record)

    @router.get("/has_to_stop/{uuid}")
    async def has_to_stop(uuid: str, visitor: By) -> Response:
        """Tell a rank whether to stop before its next epoch; all ranks get the same answer for one epoch."""
        job = await _find(services, visitor, uuid)
        attempt = visitor.present(job)
        await record.tell(job, attempt, durable=record.epoch_reports(job, attempt).passed())
        done = job.training.epochs_done if job.training else 0.0
        control = services.controller.control(attempt)
        if control.yield_now or (control.stop_after_epoch is not None and done >= control.stop_after_epoch):
            if _total(job) is None:  # nothing but this tells its exit code 0 from that of one that is done
                await record.tell(job, attempt, durable=None, is_yielding=True)
            return PlainTextResponse("1")
        services.controller.has_begun(attempt, 0, int(done) + 1)
        return PlainTextResponse("0")

    @router.post("/submit")
    async def submit(body: Body, visitor: By) -> Response:
        visitor.refuse_jobs("submitting")
        job = await submit_as(services, visitor.caller, body)
        return Json({"message": "job submitted", "job_id": job_uuid(services.store.id, job.id), "id": job.id}, 201)

    return router


def _add_reports(router: APIRouter, services: Services, record: Record) -> None:
    @router.post("/profiling/{uuid}")
    async def profiling(uuid: str, body: Body, visitor: By) -> Response:
        """Record measurements: after every N steps, and at the end of an epoch with its duration."""
        job = await _find(services, visitor, uuid)
        attempt = visitor.present(job)
        need(body, ("iternum", "meandur", "gpumem"))
        iterations, mean_s = whole(body, "iternum"), number(body, "meandur")
        epoch_s = None if body.get("epochDur") is None else number(body, "epochDur")
        steps, durable = record.epoch_reports(job, attempt).measured(iterations, epoch_s)
        rank = whole(body, "rank") if body.get("rank") is not None else 0
        memory = number(body, "gpumem") or None  # it measures 0 where it cannot see its own process
        measured = (steps, steps * mean_s) if steps > 0 else None
        await record.tell(job, attempt, durable=durable, rank=rank, steps=measured, memory_mib=memory)
        return Json({"message": "profile taken"})

    @router.post("/end_epoch/{uuid}")
    async def end_epoch(uuid: str, body: Body, visitor: By) -> Response:
        """Record the end of an epoch; every rank sends it and the first one counts."""
        job = await _find(services, visitor, uuid)
        attempt = visitor.present(job)
        need(body, ("done",))
        done = whole(body, "done", low=1)
        is_first, epoch_s = record.epoch_reports(job, attempt).ended(done)
        if is_first:
            epochs = () if epoch_s is None else ((done, epoch_s),)
            before = float(done - 1)
            await record.tell(job, attempt, durable=before, begun=done, epochs_done=float(done), epochs=epochs)
        return Json({"message": "epoch taken"})

    @router.post("/signal_end/{uuid}")
    async def signal_end(uuid: str, visitor: By) -> Response:
        """Record that the job is past its last save."""
        job = await _find(services, visitor, uuid)
        done = job.training.epochs_done if job.training else 0.0
        await record.tell(job, visitor.present(job), durable=done)
        return Json({"message": "end taken"})


async def _find(services: Services, visitor: Visitor, uuid: str) -> JobRecord:
    match = UUID.fullmatch(uuid)
    if match is not None and match[1] == services.store.id[:8]:
        job = await services.read(visitor.caller.user, partial(services.store.job, int(match[2])))
        if visitor.may_touch(job):
            return job
    raise NotFound(f"there is no job {uuid!r}; send JOB_UUID as the job has it")


def _total(job: JobRecord) -> float | None:
    """How many epochs there are; None: nobody has said so."""
    return job.spec.epochs if job.training is None else job.training.epochs_total


@dataclass(slots=True)
class EpochReports:
    """Who has come how far in one attempt. Lost with the server, and then an epoch counts as durable a little later."""

    ranks: int | None  #: how many there are, by the epoch before; None: nobody knows yet
    done: int = 0  #: epochs, by whoever was first
    posts: int = 0  #: ranks that have reported the end of that epoch
    asked: int = 0  #: ranks that have come back since
    iterations: int = 0  #: of the newest profile
    #: Of the newest profile of an epoch's end; step profiles of that epoch may still be late.
    iterations_at_end: int = 0
    epoch_s: float | None = None  #: of the epoch that is about to be reported; None: not told

    def ended(self, done: int) -> tuple[bool, float | None]:
        """Was this the first rank, and how long did the epoch take?"""
        if done <= self.done:
            self.posts += done == self.done
            return False, None
        self.ranks = self.posts or self.ranks
        self.done, self.posts, self.asked = done, 1, 0
        epoch_s, self.epoch_s = self.epoch_s, None
        return True, epoch_s

    def passed(self) -> float | None:
        """A rank begins the next epoch; when all of them have, the last one is durable."""
        self.asked += 1
        return float(self.done) if self.ranks is not None and self.asked >= self.ranks else None

    def measured(self, iterations: int, epoch_s: float | None) -> tuple[int, float | None]:
        """Steps since the last profile, and what is durable by it."""
        steps = iterations - self.iterations
        self.iterations = max(self.iterations, iterations)
        if epoch_s is not None:
            self.epoch_s, self.iterations_at_end = epoch_s, max(self.iterations_at_end, iterations)
            return steps, None
        is_of_next = self.posts > 0 and iterations > self.iterations_at_end
        return steps, float(self.done) if is_of_next and self.ranks == 1 else None


class Record:
    """What jobs have told, as reports of ours."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pace = Pace()
        self._epoch_reports: dict[AttemptId, EpochReports] = {}
        self._mutex = threading.Lock()  #: ports have threads of their own

    def epoch_reports(self, job: JobRecord, attempt: AttemptId) -> EpochReports:
        with self._mutex:
            if len(self._epoch_reports) > ATTEMPTS_REMEMBERED_MAX:
                self._epoch_reports.clear()  # far more than run at once; those that run are a little later durable
            ranks = 1 if job.tasks_total == 1 and job.width <= 1 else None  # on one GPU there is but one process
            return self._epoch_reports.setdefault(attempt, EpochReports(ranks))

    async def tell(self, job: JobRecord, attempt: AttemptId, *, durable: float | None, **told: Any) -> None:
        """`durable`: so many epochs are; None: nothing new."""
        known = job.training.checkpoint if job.training else None
        checkpoint = None
        if durable and (known is None or durable > known.epochs_done):
            checkpoint = Checkpoint(durable, None, self._services.now(), attempt.number)
        if checkpoint is None and not told:
            return
        self._pace.step(attempt)
        report = Report(attempt, **{"rank": 0, "checkpoint": checkpoint, "saves_later": True, **told})
        await asyncio.wrap_future(self._services.controller.report(report))
