"""What do the words of genai's workload manager mean here: scale, job metadata, monitor?

docs/moving/genai-workload-manager.md lists every one of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from swell.api.doors import records
from swell.api.doors.deployment import deploy_manifest
from swell.api.doors.ledger import Ledger
from swell.api.doors.records import Record, merged, new_record, record_of, with_checkpoint
from swell.api.doors.scaling import EPSILON, free_gpus, new_width
from swell.api.doors.visitor import Visitor, visitor_of
from swell.api.doors.wire import json_object, need, number, read_body, text
from swell.api.reports import Pace
from swell.api.services import Services
from swell.api.wire import Json
from swell.errors import Conflict
from swell.manifests.read import MANIFEST_BYTES_MAX
from swell.model.job import JobState, ResizeMode
from swell.model.training import Checkpoint, Report
from swell.store import JobRecord

Body = Annotated[dict[str, Any], Depends(json_object)]
By = Annotated[Visitor, Depends(visitor_of)]


def genai_router(services: Services) -> APIRouter:
    router = APIRouter()
    for add in (_add_manager, _add_changes, _add_reports, _add_reads, _add_monitor):
        add(router, services)
    return router


# -- manager -------------------------------------------------------------------------------------------------------


def _add_manager(router: APIRouter, services: Services) -> None:
    @router.post("/scale/{name}")
    async def scale_one(name: str, visitor: By) -> Response:
        """Now: what it did since its checkpoint is lost, as those who call this expect."""
        visitor.refuse_jobs("scaling")
        job = await services.read(visitor.caller.user, lambda: visitor.find_one(services.store, name))
        return _said(await _scale(services, visitor, job))

    @router.post("/scale")
    async def scale_any(visitor: By) -> Response:
        """The first that gains by it: most recent checkpoint first, because it loses least; then by arrival."""
        visitor.refuse_jobs("scaling")
        for job in await services.read(visitor.caller.user, lambda: _scalable(services, visitor)):
            if await _scale(services, visitor, job):
                return _said(True)
        return _said(False)

    @router.post("/deploy")
    async def deploy(request: Request, visitor: By) -> Response:
        """What `main.py deploy -f` did inside the manager's pod. The body is the file: YAML, or one object as JSON."""
        visitor.refuse_jobs("deploying")
        jobs = await deploy_manifest(services, visitor, await read_body(request, MANIFEST_BYTES_MAX))
        records = [record_of(job, {}) | {"job_id": job.id} for job in jobs]
        return Json({"message": "Deployed", "jobs": records}, 201)


def _scalable(services: Services, visitor: Visitor) -> list[JobRecord]:
    """In the order in which they are tried; only those whose width would change."""
    known = {job.id: job for job in Ledger(services, visitor).live() if _width_wanted(services, job) is not None}
    found = [record_of(job, {}) | {"id": job.id} for job in known.values()]
    order = dict.fromkeys(record["id"] for record in (*records.by_checkpoint_limit(found), *records.by_arrival(found)))
    return [known[job] for job in order]


def _said(is_scaled: bool) -> Response:
    return Json(["Scaled", 200]) if is_scaled else Json(["Did not scale", 401], 409)


async def _scale(services: Services, visitor: Visitor, job: JobRecord) -> bool:
    """False: it has the width it would get, or all that its user may hold, or may not be stopped."""
    width = await services.read(visitor.caller.user, lambda: _width_wanted(services, job))
    if width is None:
        return False
    by, origin = visitor.caller.user, visitor.caller.origin
    done = services.controller.scale(job.id, width, by=by, origin=origin, is_now=True, is_kept=False)
    await asyncio.wrap_future(done)
    return True


def _width_wanted(services: Services, job: JobRecord) -> int | None:
    """What it would get; None: that is what it has, or it does not run, or may not be stopped."""
    snapshot = services.controller.snapshot
    view = snapshot.jobs_by_id.get(job.id)
    if view is None or view.shape.is_array or view.mode is ResizeMode.NEVER:
        return None
    if view.state not in (JobState.STARTING, JobState.RUNNING):
        return None
    width = new_width(view, snapshot)
    return None if width == view.width else width


# -- job metadata: what changes ------------------------------------------------------------------------------------


def _add_changes(router: APIRouter, services: Services) -> None:
    @router.post("/add_job")
    async def add_job(body: Body, visitor: By) -> Response:
        visitor.refuse_jobs("adding a record")
        record = new_record(body, services.now())
        await Ledger(services, visitor).add(record)
        return Json({"message": "Job added", "job": record}, 201)

    @router.put("/increment_restarts")
    async def increment_restarts(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        ledger = Ledger(services, visitor)
        job = ledger.job(text(body, "job_name"))
        if job is not None:
            raise Conflict(
                f"Swell counts the restarts of job {job.id} ({job.name}) by itself: {max(0, job.attempts - 1)}; "
                f"to start it again: swell requeue {job.id}"
            )
        return await ledger.change(body, lambda known: known | {"restarts": known["restarts"] + 1})

    @router.put("/update_job")
    async def update_job(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        ledger = Ledger(services, visitor)
        job = ledger.job(text(body, "job_name"))
        told = {field: value for field, value in body.items() if field != "job_name"}
        if job is None:
            return await ledger.change(body, lambda known: merged(known, told))
        return await ledger.note(job, told)

    @router.delete("/delete_job")
    async def delete_job(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        visitor.refuse_jobs("deleting a record")
        await Ledger(services, visitor).delete(text(body, "job_name"))
        return Json({"message": "Job deleted"})


# -- job metadata: what jobs tell of themselves --------------------------------------------------------------------


def _add_reports(router: APIRouter, services: Services) -> None:
    pace = Pace()

    @router.put("/update_last_checkpoint")
    async def update_last_checkpoint(body: Body, visitor: By) -> Response:
        """What fms-hf-tuning's notifier sends; for a job that Swell runs it is a report like the library's."""
        need(body, ("job_name", "last_checkpoint_time", "completed_epochs"))
        ledger = Ledger(services, visitor)
        job = ledger.reporting_job(text(body, "job_name"))
        if job is None:
            return await ledger.change(body, lambda known: with_checkpoint(known, body))
        report = _report(visitor, job, body)
        pace.step(report.attempt)
        await asyncio.wrap_future(services.controller.report(report))
        return Json({"message": "Job updated", "job": ledger.record(services.store.job(job.id))})

    @router.put("/update_job_status")
    async def update_job_status(body: Body, visitor: By) -> Response:
        """Only "completed" has a meaning."""
        need(body, ("job_name", "status"))
        told = {"status": text(body, "status")}
        ledger = Ledger(services, visitor)
        job = ledger.job(text(body, "job_name"))
        if job is None:
            return await ledger.change(body, lambda known: merged(known, told))
        if job.state.has_ended == (told["status"] == "completed"):
            return Json({"message": "Job updated", "job": ledger.record(job)})
        raise Conflict(
            f"job {job.id} ({job.name}) has ended; start it again with: swell requeue {job.id}"
            if job.state.has_ended
            else f"job {job.id} ({job.name}) is {job.state}, and Swell sees by itself when it completes; "
            f"to end it: swell cancel {job.id}"
        )


def _report(visitor: Visitor, job: JobRecord, body: dict[str, Any]) -> Report:
    attempt = visitor.present(job)
    done = number(body, "completed_epochs")
    total = None if body.get("total_epochs") is None else number(body, "total_epochs")
    checkpoint = Checkpoint(done, None, number(body, "last_checkpoint_time"), attempt.number)
    epochs = _timed(job.training.checkpoint if job.training else None, checkpoint)
    return Report(
        attempt, rank=0, epochs_done=done, epochs_total=total, epochs=epochs, checkpoint=checkpoint, is_deaf=True
    )


def _timed(before: Checkpoint | None, now: Checkpoint) -> tuple[tuple[int, float], ...]:
    """How long an epoch took, by two checkpoints of one attempt: all that a job tells that only notifies."""
    if before is None or before.attempt != now.attempt or now.epochs_done <= before.epochs_done or now.at <= before.at:
        return ()
    return ((int(now.epochs_done), (now.at - before.at) / (now.epochs_done - before.epochs_done)),)


# -- job metadata: what is read ------------------------------------------------------------------------------------


def _add_reads(router: APIRouter, services: Services) -> None:
    async def every(visitor: Visitor, choose: Callable[[list[Record]], list[Record]]) -> Response:
        return await services.read(visitor.caller.user, lambda: Json(choose(Ledger(services, visitor).every())))

    @router.get("/get_job/{name}")
    async def get_job(name: str, visitor: By) -> Response:
        ledger = Ledger(services, visitor)

        def read() -> Record:
            job = ledger.job(name)
            return ledger.foreign(name) if job is None else ledger.record(job)

        return Json(await services.read(visitor.caller.user, read))

    @router.get("/get_all_jobs")
    async def get_all_jobs(visitor: By) -> Response:
        return await every(visitor, lambda found: found)

    @router.get("/get_jobs_by_arrival")
    async def get_jobs_by_arrival(visitor: By) -> Response:
        return await every(visitor, records.by_arrival)

    @router.get("/get_jobs_by_checkpoint_limit")
    async def get_jobs_by_checkpoint_limit(visitor: By) -> Response:
        return await every(visitor, records.by_checkpoint_limit)

    @router.get("/get_jobs_by_difference/{difference:int}")
    async def get_jobs_by_difference(difference: int, visitor: By) -> Response:
        return await every(visitor, lambda found: records.by_difference(found, difference))

    @router.get("/get_scale_down_jobs_by_checkpoint/{needed:int}")
    async def get_scale_down_jobs_by_checkpoint(needed: int, visitor: By) -> Response:
        return await every(visitor, lambda found: records.scale_down(found, needed))


# -- monitor -------------------------------------------------------------------------------------------------------


def _add_monitor(router: APIRouter, services: Services) -> None:
    @router.get("/freegpu")
    async def freegpu(visitor: By) -> Response:
        return Json(await services.read(visitor.caller.user, lambda: free_gpus(services.controller.snapshot)))

    @router.get("/resourcequota/{namespace}")
    async def resourcequota(namespace: str, visitor: By) -> Response:
        """A namespace of a cluster has what its quota says; any other all GPUs, or as many as its user may hold."""
        if services.members is not None:
            await services.members.refuse_looking(visitor.caller, namespace)
        quota = await services.pools.cluster.run(visitor.caller.user, lambda: services.gpu_quota(namespace))
        if quota is not None:
            return Json({"limit": quota[0], "used": quota[1]})
        snapshot, user = services.controller.snapshot, visitor.caller.user
        limit = services.config.limits_of(user).gpus
        if limit is not None:
            used = math.ceil(snapshot.gpus_held(user) - EPSILON)  # they read whole numbers
            return Json({"limit": str(limit), "used": str(used)})
        total = sum(len(node.devices) for node in snapshot.nodes if node.is_reachable)
        return Json({"limit": str(total), "used": str(total - sum(free_gpus(snapshot).values()))})
