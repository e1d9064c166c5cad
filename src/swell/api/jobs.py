"""Endpoints about jobs: submit, list, show, wait, cancel, delete."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from swell.api.accept import accept, refuse
from swell.api.caller import Caller, Who
from swell.api.documents import TASKS_SHOWN_MAX, ShownTasks, full_document, job_document
from swell.api.find import find_job, find_one
from swell.api.gpus import gpu_documents
from swell.api.impossible import impossibilities
from swell.api.services import Services
from swell.api.turns import at_rest, look_again
from swell.api.wire import ERRORS, JobOut, JobsOut, Json, Submission
from swell.errors import Rejected, TooLarge
from swell.manifests import Context, Manifest, is_in_cluster, read_manifests
from swell.manifests.fields import system_bytes
from swell.model.identity import ObjectKind
from swell.model.job import JobSpec, ResizeMode
from swell.store import JobRecord

WAIT_S_MAX = 60.0
PATH_BYTES_MAX = 4096  # PATH_MAX of Linux
ENVIRONMENT_BYTES_MAX = 1024 * 1024  # Linux lets a program start with twice that, arguments included
VARIABLES_MAX = 10_000
SUBMISSION_BODY = {  # the endpoint reads it by itself, so the description says what it is
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": Submission.model_json_schema()}},
    }
}
LOOK_AGAIN_S = 0.02  # a waiter looks at the store at most this often, however often something is committed


def jobs_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    def document(job: JobRecord) -> dict[str, Any]:
        return job_document(job, controller.reason(job))

    @router.post("", status_code=201, response_model=JobsOut, openapi_extra=SUBMISSION_BODY)
    async def submit(
        caller: Who,
        request: Request,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Read a manifest and accept its jobs, all or none. Accepted means written to disk before the answer.

        With an `Idempotency-Key` a repeated request answers with the jobs of the first one.
        """
        on_cluster = services.cluster is not None
        classes = await services.pools.cluster.run(caller.user, services.priority_classes) if on_cluster else {}
        data = await request.body()

        def read() -> tuple[Submission, list[Manifest], str]:
            body = read_submission(data)
            manifests = _read(services, body, lambda ref: find_job(store, caller, ref).id, classes)
            return body, manifests, hashlib.sha256(data).hexdigest()

        body, manifests, digest = await services.read(caller.user, read)
        if body.dry_run:
            await refuse(services, caller, manifests)
            return Json({"specs": await _checked(services, caller, [one.spec for one in manifests])}, 200)
        key = _key(caller, idempotency_key)
        accepted = await accept(
            services,
            caller,
            manifests,
            body.env,
            key=key,
            digest="" if key is None else digest,
            wait_for_nodes=body.wait_for_nodes,
        )
        shown = await services.read(caller.user, lambda: [document(job) for job in accepted])
        return Json({"jobs": shown, "not_shown": 0}, 201)

    @router.get("/{ref}", response_model=JobOut)
    async def one(
        ref: str,
        caller: Who,
        after: int | None = Query(None, description="answer when the job's version is above this one"),
        wait_s: float = Query(0, ge=0, le=WAIT_S_MAX),
    ) -> Response:
        """A job by id or name (the newest of that name); with `after` and `wait_s` a long poll for its next change."""
        job = await services.read(caller.user, lambda: find_job(store, caller, ref))
        if after is not None:
            job = await _next_version(services, caller, job, after, wait_s)
        return await services.read(caller.user, lambda: Json(document(job)))

    @router.get("/{ref}/show")
    async def show(ref: str, caller: Who) -> Response:
        """Everything about a job: its spec, attempts with widths and placements, events."""

        def read() -> Response:
            job = find_job(store, caller, ref)
            tasks = ShownTasks(store.first_tasks(job.id, of_each=TASKS_SHOWN_MAX), store.task_counts(job.id))
            events = store.events(job=job.id)
            document = full_document(job, controller.reason(job), store.attempts(job.id), tasks, events)
            seen = tuple(controller.seen_on_gpus(job.id).values())
            return Json({**document, **gpu_documents(job, controller.snapshot, seen)})

        return await services.read(caller.user, read)

    @router.delete("/{ref}", status_code=204)
    async def delete(
        ref: str,
        caller: Who,
        with_object: bool = Query(False, description="of a cluster: also the object that came by kubectl"),
    ) -> Response:
        """Forget an ended job: its history, its logs, and its checkpoints unless it named a folder for them."""
        job = await services.read(caller.user, lambda: find_one(store, caller, ref, ended=True))
        if with_object and job.state.has_ended:
            await _delete_object(services, caller, job)
        await asyncio.wrap_future(controller.delete([job], by=caller.user, origin=caller.origin))
        return Response(status_code=204)

    return router


async def _delete_object(services: Services, caller: Caller, job: JobRecord) -> None:
    """What we made goes with its job anyway."""
    document = await services.read(caller.user, lambda: services.store.manifest(job.manifest) if job.manifest else {})
    if not is_in_cluster(document):
        return
    if services.members is not None:
        kind = "Pod" if document["kind"] == "Pods" else document["kind"]
        what = ObjectKind(document["apiVersion"], kind, document["metadata"]["namespace"])
        await services.members.refuse_deletion(caller, what)
    await services.pools.cluster.run(caller.user, lambda: services.delete_object(document))


async def _checked(services: Services, caller: Caller, specs: list[JobSpec]) -> list[dict[str, Any]]:
    """What would be asked for; `cannot_run_here` says why a job would be refused for lack of machines."""
    problems = await impossibilities(services, caller, specs)
    together = list(zip(specs, problems, strict=True))
    return await services.read(
        caller.user, lambda: [{**spec.to_document(), "cannot_run_here": problem} for spec, problem in together]
    )


async def _next_version(services: Services, caller: Caller, job: JobRecord, after: int, wait_s: float) -> JobRecord:
    """The job as soon as it has changed, or after so long."""
    clock = asyncio.get_running_loop().time
    until = clock() + wait_s
    while job.version <= after and clock() < until and not services.committed.is_closed:
        await services.committed.wait(until - clock())
        job = await services.read(caller.user, partial(services.store.job, job.id))
        if job.version <= after:  # somebody else's commit; while we rest, no bell is heard, so look again after it
            async with at_rest():
                await asyncio.sleep(LOOK_AGAIN_S)
                await look_again()
            job = await services.read(caller.user, partial(services.store.job, job.id))
    return job


def _key(caller: Caller, given: str | None) -> str | None:
    """Everybody has keys of their own: the same one from two users is two submissions."""
    return given if given is None or caller.own is None else f"{caller.own}:{given}"


def _refuse_large(env: Mapping[str, str]) -> None:
    size = sum(len(name) + len(text) + 2 for name, text in env.items())
    if len(env) > VARIABLES_MAX or size > ENVIRONMENT_BYTES_MAX:
        raise TooLarge(
            f"the environment has {len(env)} variables of {size} bytes together; at most {VARIABLES_MAX} of "
            f"{ENVIRONMENT_BYTES_MAX} bytes are taken; unset what the job does not need, or put it into a file"
        )


def read_submission(data: bytes) -> Submission:
    """As FastAPI would, in a thread: of four megabytes it takes a while."""
    if not data:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return Submission.model_validate(json.loads(data))
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(found) from None
    except json.JSONDecodeError as error:
        ctx = {"error": error.msg}
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body", error.pos), "ctx": ctx}]) from None
    except (ValueError, RecursionError):  # no UTF-8 text, or nested too deeply
        raise HTTPException(400) from None


def _read(
    services: Services, body: Submission, find: Callable[[str], int], classes: Mapping[str, int]
) -> list[Manifest]:
    if not body.workdir.startswith("/"):
        raise Rejected(f"workdir {body.workdir!r} is not an absolute path; send the caller's folder in full")
    if len(system_bytes(body.workdir, "workdir")) > PATH_BYTES_MAX:
        raise Rejected(f"workdir is longer than {PATH_BYTES_MAX} bytes, more than the system can use; shorten it")
    _refuse_large(body.env)
    for name, text in body.env.items():
        system_bytes(f"{name}={text}", f"env: the variable {name!r}")
    context = Context(
        workdir=body.workdir,
        umask=body.umask,
        find_job=find,
        priority_classes=classes,
        variables=body.env.keys(),
        resize=ResizeMode(body.resize),
        on_cluster=services.cluster is not None,
    )
    return read_manifests(body.manifest, context)
