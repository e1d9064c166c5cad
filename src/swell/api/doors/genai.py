"""What do the words of genai's workload manager mean here: scale, job metadata, monitor?

docs/moving/genai-workload-manager.md lists every one of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from swell.api.accept import accept
from swell.api.doors import records
from swell.api.doors.ledger import Ledger
from swell.api.doors.records import Record, merged, new_record, record_of, with_checkpoint
from swell.api.doors.scaling import EPSILON, free_gpus, new_width
from swell.api.doors.submission import login_environment
from swell.api.doors.visitor import Visitor, visitor_of
from swell.api.doors.wire import json_object, need, number, read_body, text
from swell.api.reports import Pace
from swell.api.services import Services
from swell.api.wire import Json
from swell.errors import Conflict, Rejected
from swell.manifests import Context, Manifest, read_manifests
from swell.manifests.read import MANIFEST_BYTES_MAX
from swell.model.job import JobState, ResizeMode
from swell.model.reason import Code
from swell.model.training import Checkpoint, Report
from swell.store import JobRecord

PLANNED_S = 5.0  # a plan follows at once; who asks is told what it gave all their jobs


async def deploy_manifest(services: Services, visitor: Visitor, body: bytes) -> list[JobRecord]:
    """All or none. Nobody's shell is behind it, so a process has a login's environment and folder."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"the body is not UTF-8 text (byte {error.start}); send a manifest, as YAML or JSON") from None
    user, is_cluster = visitor.caller.user, services.cluster is not None
    classes = await services.priority_classes(user)

    def read() -> tuple[dict[str, str], list[Manifest]]:
        env = {} if is_cluster else login_environment(user)
        context = Context(
            workdir=env.get("HOME", "/"),
            find_job=lambda ref: visitor.find_one(services.store, ref).id,
            priority_classes=classes,
            variables=env.keys(),
            has_shell=False,
            resize=ResizeMode.EITHER,
            on_cluster=is_cluster,
        )
        return env, read_manifests(text, context)

    env, manifests = await services.read(user, read)
    accepted = await accept(services, visitor.caller, manifests, env, takes_names=True, via="POST /deploy")
    until = asyncio.get_running_loop().time() + PLANNED_S
    return [await _planned(services, user, job, until) for job in accepted]


async def _planned(services: Services, user: str, job: JobRecord, until: float) -> JobRecord:
    """As soon as it is known what it gets."""
    clock = asyncio.get_running_loop().time
    while job.state is JobState.QUEUED and job.reason_code is Code.NOT_YET_PLANNED and clock() < until:
        await services.committed.wait(until - clock())
        job = await services.read(user, partial(services.store.job, job.id))
    return job


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
        """Resize a job now: its work since the last checkpoint is lost, as callers of this endpoint expect."""
        visitor.refuse_jobs("scaling")
        job = await services.read(visitor.caller.user, lambda: visitor.find_one(services.store, name))
        return _said(await _scale(services, visitor, job))

    @router.post("/scale")
    async def scale_any(body: Body, visitor: By) -> Response:
        """Resize the first job that gains by it: most recent checkpoint first, because it loses least; then by arrival.

        Older clients name the job in the body.
        """
        visitor.refuse_jobs("scaling")
        if body:
            need(body, ("name",))
            return await scale_one(text(body, "name"), visitor)
        for job in await services.read(visitor.caller.user, lambda: _scalable(services, visitor)):
            if await _scale(services, visitor, job):
                return _said(True)
        return _said(await services.read(visitor.caller.user, lambda: _any_grows(services, visitor)))

    @router.post("/deploy")
    async def deploy(request: Request, visitor: By) -> Response:
        """Deploy a file, as `main.py deploy -f` did in the manager's pod. The body is YAML, or one object as JSON."""
        visitor.refuse_jobs("deploying")
        jobs = await deploy_manifest(services, visitor, await read_body(request, MANIFEST_BYTES_MAX))
        records = [record_of(job, {}) | {"job_id": job.id} for job in jobs]
        notes = {"notes": found} if (found := [note for job in jobs for note in job.spec.notes]) else {}
        return Json({"message": "Deployed", "jobs": records, **notes}, 201)


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
        return _is_growing(services, job)
    by, origin = visitor.caller.user, visitor.caller.origin
    done = services.controller.scale(job.id, width, by=by, origin=origin, is_now=True, is_kept=False)
    await asyncio.wrap_future(done)
    return True


def _any_grows(services: Services, visitor: Visitor) -> bool:
    return any(_is_growing(services, job) for job in Ledger(services, visitor).live())


def _is_growing(services: Services, job: JobRecord) -> bool:
    """Has it been asked to come back wider, by the planner or by somebody before?"""
    view = services.controller.snapshot.jobs_by_id.get(job.id)
    return view is not None and view.yielding is not None and view.yielding > view.width


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
        return Json({"message": "Job added successfully", "job": record}, 201)

    @router.put("/increment_restarts")
    async def increment_restarts(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        ledger = Ledger(services, visitor)
        job = await ledger.find(text(body, "job_name"))
        if job is not None:
            raise Conflict(
                f"Swell counts the restarts of job {job.id} ({job.name}) itself: {max(0, job.attempts - 1)}; to "
                f"start it again, run: swell requeue {job.id}"
            )
        return await ledger.change(body, lambda known: known | {"restarts": known["restarts"] + 1})

    @router.put("/update_job")
    async def update_job(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        ledger = Ledger(services, visitor)
        job = await ledger.find(text(body, "job_name"))
        told = {field: value for field, value in body.items() if field != "job_name"}
        if job is None:
            return await ledger.change(body, lambda known: merged(known, told))
        return await ledger.note(job, told)

    @router.delete("/delete_job")
    async def delete_job(body: Body, visitor: By) -> Response:
        need(body, ("job_name",))
        visitor.refuse_jobs("deleting a record")
        await Ledger(services, visitor).delete(text(body, "job_name"))
        return Json({"message": "Job deleted successfully"})


# -- job metadata: what jobs tell of themselves --------------------------------------------------------------------


def _add_reports(router: APIRouter, services: Services) -> None:
    pace = Pace()

    @router.put("/update_last_checkpoint")
    async def update_last_checkpoint(body: Body, visitor: By) -> Response:
        """Record a checkpoint, as fms-hf-tuning's notifier sends it; of a job that Swell runs, it is a report."""
        need(body, ("job_name", "last_checkpoint_time", "completed_epochs"))
        ledger = Ledger(services, visitor)
        job = await ledger.find_reporting(text(body, "job_name"))
        if job is None:
            return await ledger.change(body, lambda known: with_checkpoint(known, body))
        report = _report(visitor, job, body)
        pace.step(report.attempt)
        await asyncio.wrap_future(services.controller.report(report))
        return Json({"message": "Job updated successfully", "job": await ledger.read_record(job.id)})

    @router.put("/update_job_status")
    async def update_job_status(body: Body, visitor: By) -> Response:
        """Record the status of a job; only "completed" has an effect."""
        need(body, ("job_name", "status"))
        told = {"status": text(body, "status")}
        ledger = Ledger(services, visitor)
        job = await ledger.find(text(body, "job_name"))
        if job is None:
            return await ledger.change(body, lambda known: merged(known, told))
        if job.state.has_ended == (told["status"] == "completed"):
            return Json({"message": "Job updated successfully", "job": await ledger.read_record(job.id)})
        raise Conflict(
            f"job {job.id} ({job.name}) has ended; to start it again, run: swell requeue {job.id}"
            if job.state.has_ended
            else f"job {job.id} ({job.name}) is {job.state}, and Swell detects when it completes; to end it, "
            f"run: swell cancel {job.id}"
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
    async def every(
        visitor: Visitor, choose: Callable[[list[Record]], list[Record]], *, waiting: bool = True
    ) -> Response:
        ledger = Ledger(services, visitor)
        return await services.read(visitor.caller.user, lambda: Json(choose(ledger.every(waiting=waiting))))

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
        return await every(visitor, records.by_checkpoint_limit, waiting=False)

    @router.get("/get_jobs_by_difference/{difference:int}")
    async def get_jobs_by_difference(difference: int, visitor: By) -> Response:
        return await every(visitor, lambda found: records.by_difference(found, difference), waiting=False)

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
        """Return the GPUs of a namespace: its quota in a cluster, otherwise all GPUs or the limit of the caller."""
        if services.members is not None:
            await services.members.refuse_looking(visitor.caller, namespace)
        cluster = services.cluster
        if cluster is not None:
            quota = await services.pools.cluster.run(visitor.caller.user, lambda: cluster.gpu_quota(namespace))
            if quota is not None:
                return Json({"limit": quota[0], "used": quota[1]})
        snapshot, user = services.controller.snapshot, visitor.caller.user
        limit = services.config.limits_of(user).gpus
        if limit is not None:
            used = math.ceil(snapshot.gpus_held(user) - EPSILON)  # they read whole numbers
            return Json({"limit": str(limit), "used": str(used)})
        total = sum(len(node.devices) for node in snapshot.nodes if node.is_reachable)
        return Json({"limit": str(total), "used": str(total - sum(free_gpus(snapshot).values()))})
