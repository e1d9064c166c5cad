"""Endpoints about jobs: submit, list, show, wait, cancel, delete."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from swell.api.accept import accept, refuse
from swell.api.caller import Caller, Who
from swell.api.documents import full_document, job_document
from swell.api.find import find_job, find_one
from swell.api.gpus import gpu_documents
from swell.api.services import Services
from swell.api.wire import ERRORS, JobOut, JobsOut, Json, Submission
from swell.errors import Rejected
from swell.manifests import Context, Manifest, read_manifests
from swell.manifests.fields import system_bytes
from swell.store import JobRecord

WAIT_S_MAX = 60.0
PATH_BYTES_MAX = 4096  # PATH_MAX of Linux
LOOK_AGAIN_S = 0.02  # a waiter looks at the store at most this often, however often something is committed


def jobs_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    def document(job: JobRecord) -> dict[str, Any]:
        return job_document(job, controller.reason(job))

    @router.post("", status_code=201, response_model=JobsOut)
    async def submit(
        body: Submission,
        caller: Who,
        request: Request,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Read a manifest and accept its jobs, all or none. Accepted means written to disk before the answer.

        With an `Idempotency-Key` a repeated request answers with the jobs of the first one.
        """
        classes = {} if services.cluster is None else await asyncio.to_thread(services.priority_classes)
        manifests = _read(services, body, lambda ref: find_job(store, caller, ref).id, classes)
        if body.dry_run:
            await refuse(services, caller, manifests)
            return Json({"specs": [one.spec.to_document() for one in manifests]}, 200)
        key = _key(caller, idempotency_key)
        digest = "" if key is None else hashlib.sha256(await request.body()).hexdigest()
        accepted = await accept(services, caller, manifests, body.env, key=key, digest=digest)
        return Json({"jobs": [document(job) for job in accepted], "not_shown": 0}, 201)

    @router.get("/{ref}", response_model=JobOut)
    async def one(
        ref: str,
        caller: Who,
        after: int | None = Query(None, description="answer when the job's version is above this one"),
        wait_s: float = Query(0, ge=0, le=WAIT_S_MAX),
    ) -> Response:
        """A job by id or name (the newest of that name); with `after` and `wait_s` a long poll for its next change."""
        job = find_job(store, caller, ref)
        if after is not None:
            job = await _next_version(services, job, after, wait_s)
        return Json(document(job))

    @router.get("/{ref}/show")
    async def show(ref: str, caller: Who) -> Response:
        """Everything about a job: its spec, attempts with widths and placements, events."""
        job = find_job(store, caller, ref)
        tasks = store.tasks(job.id)
        events = store.events(job=job.id)
        document = full_document(job, controller.reason(job), store.attempts(job.id), tasks, events)
        seen = tuple(controller.seen_on_gpus(job.id).values())
        return Json({**document, **gpu_documents(job, controller.snapshot, seen)})

    @router.delete("/{ref}", status_code=204)
    async def delete(ref: str, caller: Who) -> Response:
        """Forget an ended job: its history, its logs, and its checkpoints unless it named a folder for them."""
        job = find_one(store, caller, ref, ended=True)
        await asyncio.wrap_future(controller.delete([job], by=caller.user, origin=caller.origin))
        return Response(status_code=204)

    return router


async def _next_version(services: Services, job: JobRecord, after: int, wait_s: float) -> JobRecord:
    """The job as soon as it has changed, or after so long."""
    clock = asyncio.get_running_loop().time
    until = clock() + wait_s
    while job.version <= after and clock() < until and not services.committed.is_closed:
        await services.committed.wait(until - clock())
        job = services.store.job(job.id)
        if job.version <= after:  # somebody else's commit; while we rest, no bell is heard, so look again after it
            await asyncio.sleep(LOOK_AGAIN_S)
            job = services.store.job(job.id)
    return job


def _key(caller: Caller, given: str | None) -> str | None:
    """Everybody has keys of their own: the same one from two users is two submissions."""
    return given if given is None or caller.own is None else f"{caller.own}:{given}"


def _read(
    services: Services, body: Submission, find: Callable[[str], int], classes: Mapping[str, int]
) -> list[Manifest]:
    if not body.workdir.startswith("/"):
        raise Rejected(f"workdir {body.workdir!r} is not an absolute path; send the caller's folder in full")
    if len(system_bytes(body.workdir, "workdir")) > PATH_BYTES_MAX:
        raise Rejected(f"workdir is longer than {PATH_BYTES_MAX} bytes, more than the system can use; shorten it")
    for name, text in body.env.items():
        system_bytes(f"{name}={text}", f"env: the variable {name!r}")
    context = Context(
        workdir=body.workdir,
        umask=body.umask,
        find_job=find,
        priority_classes=classes,
        on_cluster=services.cluster is not None,
    )
    return read_manifests(body.manifest, context)
