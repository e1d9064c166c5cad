"""Endpoints about jobs: submit, list, show, wait, cancel, delete."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from swell.api.accept import accept, impossibilities, refuse, with_groups
from swell.api.box import Caller, Who
from swell.api.documents import (
    TASKS_SHOWN_MAX,
    ShownTasks,
    full_document,
    gpu_documents,
    job_document,
    what_if_document,
)
from swell.api.find import find_job, find_one, find_sole
from swell.api.services import Services
from swell.api.turns import at_rest, look_again
from swell.api.wire import ERRORS, NUMBER_MAX, JobOut, JobsOut, Json, Submission
from swell.errors import Rejected, TooLarge
from swell.manifests import Commit, Context, Manifest, ManifestFile, is_in_cluster, read_files, read_manifests
from swell.manifests.fields import system_bytes
from swell.manifests.origins import find_origins
from swell.manifests.writers import render, write_foreign
from swell.manifests.writers.native import native_document
from swell.model.cluster import PriorityClass
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
NOT_SHOWN = "(not shown)"
WHAT_IF_JOBS_MAX = 100  # in one question; each is planned with all the others
SOME_TASKS = 100  # more than anybody looks at
LOOK_AGAIN_S = 0.02  # a waiter looks at the store at most this often, however often something is committed


def jobs_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    def document(job: JobRecord) -> dict[str, Any]:
        return job_document(job, controller.reason(job), controller.start_foreseen(job))

    @router.post("", status_code=201, response_model=JobsOut, openapi_extra=SUBMISSION_BODY)
    async def submit(
        caller: Who,
        request: Request,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Read a manifest and accept its jobs, all or none. Accepted means written to disk before the answer.

        With an `Idempotency-Key` a repeated request answers with the jobs of the first one.
        """
        return await _submit(services, caller, await request.body(), idempotency_key)

    @router.get("/{ref}", response_model=JobOut)
    async def one(
        ref: str,
        caller: Who,
        after: int | None = Query(
            None, ge=0, le=NUMBER_MAX, description="answer when the job's version is above this one"
        ),
        wait_s: float = Query(0, ge=0, le=WAIT_S_MAX),
        sole: bool = Query(False, description="fail if several jobs match the name"),
    ) -> Response:
        """Show a job by id or name (the newest of that name); with `after` and `wait_s`, wait for its next change."""
        find = find_sole if sole else find_job
        job = await services.read(caller.user, lambda: find(store, caller, ref))
        if after is not None:
            job = await _next_version(services, caller, job, after, wait_s)
        return await services.read(caller.user, lambda: Json(document(job)))

    @router.get("/{ref}/show")
    async def show(ref: str, caller: Who) -> Response:
        """Show everything about a job: its spec, attempts with widths and placements, events."""

        def read() -> Response:
            job = find_job(store, caller, ref)
            tasks = ShownTasks(store.first_tasks(job.id, of_each=TASKS_SHOWN_MAX), store.task_counts(job.id))
            events = store.events(job=job.id)
            document = full_document(job, controller.reason(job), store.attempts(job.id), tasks, events)
            document |= _some_tasks(services, job)
            document["workers"] = _workers(services, document["attempts"])
            seen = tuple(controller.seen_on_gpus(job.id).values())
            return Json({**document, **gpu_documents(job, controller.snapshot, seen)})

        return await services.read(caller.user, read)

    @router.delete("/{ref}", status_code=204)
    async def delete(
        ref: str,
        caller: Who,
        with_object: bool = Query(
            False, description="on a cluster: also delete the object that was created with kubectl"
        ),
    ) -> Response:
        """Delete an ended job: its history, its logs, and its checkpoints unless it named a folder for them."""
        job = await services.read(caller.user, lambda: find_one(store, caller, ref, ended=True))
        if with_object and job.state.has_ended:
            await _delete_object(services, caller, job)
        await asyncio.wrap_future(controller.delete([job], by=caller.user, origin=caller.origin))
        return Response(status_code=204)

    return router


def _workers(services: Services, attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the workers of its attempts ran in; empty where they were started by hand."""
    if services.workers is None:
        return []
    nodes = {place["node"] for attempt in attempts for place in attempt["placements"]}
    found = services.workers.backends(sorted(nodes))
    return [{"node": node, **asdict(backend)} for node, backend in found.items()]


async def _submit(services: Services, caller: Caller, data: bytes, idempotency_key: str | None) -> Response:
    classes = await services.priority_classes(caller.user)

    def read() -> tuple[Submission, list[Manifest], str]:
        body = read_submission(data)
        find = cache(lambda ref: find_job(services.store, caller, ref).id)  # a thousand jobs may wait for one
        manifests = _read(services, caller.user, body, find, classes)
        return body, manifests, hashlib.sha256(data).hexdigest()

    body, manifests, digest = await services.read(caller.user, read)
    if body.render:
        return await services.read(caller.user, lambda: Json({"rendered": _rendered(manifests, body.render)}, 200))
    if body.dry_run:
        await refuse(services, caller, manifests, replaces=body.replaces)
        specs = await _understood(services, caller, manifests, asks_nodes=True)
        return Json({"specs": specs}, 200)
    if body.what_if:
        return await _what_if(services, caller, manifests)
    key = _key(caller, idempotency_key)
    accepted = await accept(
        services,
        caller,
        manifests,
        body.env,
        key=key,
        digest="" if key is None else digest,
        wait_for_nodes=body.wait_for_nodes,
        takes_names=body.takes_names,
        replaces=body.replaces,
        via=body.via,
    )
    shown = await services.read(
        caller.user, lambda: [job_document(job, services.controller.reason(job)) for job in accepted]
    )
    if isinstance(body.manifest, dict):  # whoever made the document knows what it says, but for what is said of it
        notes = list(manifests[0].spec.notes)
        return Json({"jobs": shown, "not_shown": 0, **({"notes": notes} if notes else {})}, 201)
    specs = await _understood(services, caller, manifests, asks_nodes=body.wait_for_nodes)
    return Json({"jobs": shown, "not_shown": 0, "specs": specs}, 201)


async def _what_if(services: Services, caller: Caller, manifests: list[Manifest]) -> Response:
    """Would they fit, when would they start, and what would be asked of others?"""
    if len(manifests) > WHAT_IF_JOBS_MAX:
        raise Rejected(f"there are {len(manifests)} jobs; ask about at most {WHAT_IF_JOBS_MAX} at once")
    manifests = with_groups(services, caller, manifests)
    await refuse(services, caller, manifests)
    specs = [one.spec for one in manifests]
    problems = await impossibilities(services, caller, manifests)

    def read() -> Response:
        now = services.controller.snapshot.now
        outlooks = services.controller.what_if(specs, caller.user)
        told = [what_if_document(one, now, problem) for one, problem in zip(outlooks, problems, strict=True)]
        return Json({"what_if": told}, 200)

    return await services.read(caller.user, read)


def _some_tasks(services: Services, job: JobRecord) -> dict[str, Any]:
    """Of which tasks somebody wants to see the output: an array may have a million."""
    running = services.store.running_tasks(job.id, job.attempts, index=None, limit=SOME_TASKS)
    failed = services.store.failed_tasks(job.id, limit=SOME_TASKS)
    return {"running_tasks": [one.index for one in running], "failed_tasks": [one.index for one in failed]}


async def _delete_object(services: Services, caller: Caller, job: JobRecord) -> None:
    """What we made goes with its job anyway."""
    document = await services.read(caller.user, lambda: services.store.manifest(job.manifest) if job.manifest else {})
    cluster = services.cluster
    if cluster is None or not is_in_cluster(document):
        return
    if services.members is not None:
        kind = "Pod" if document["kind"] == "Pods" else document["kind"]
        what = ObjectKind(document["apiVersion"], kind, document["metadata"]["namespace"])
        await services.members.refuse_deletion(caller, what)
    await services.pools.cluster.run(caller.user, lambda: cluster.delete_object(document))


async def _understood(
    services: Services, caller: Caller, manifests: list[Manifest], *, asks_nodes: bool
) -> list[dict[str, Any]]:
    """What was asked for, in which file; `cannot_run_here` says why no machine that is there can hold it.

    `asks_nodes`: False where jobs that no machine can hold were refused before.
    """
    problems = await impossibilities(services, caller, manifests) if asks_nodes else [None for _ in manifests]
    names = [one.spec.name for one in manifests]

    def documents() -> list[dict[str, Any]]:
        return [
            {
                **_with_names(one.spec.to_document(), names),
                "file": one.file,
                "cannot_run_here": why,
                "written": native_document(_without_values(one.spec), names),
                "origins": find_origins(one.lines, [role.name for role in one.spec.roles], is_native=not one.spec.kind),
                "build": None if one.build is None else asdict(one.build),
            }
            for one, why in zip(manifests, problems, strict=True)
        ]

    return await services.read(caller.user, documents)


def _rendered(manifests: list[Manifest], target: str) -> list[dict[str, Any]]:
    """On Kubernetes a document that was written for it is what it is, or what its operator would make of it."""
    found = []
    names = [one.spec.name for one in manifests]
    for one in manifests:
        is_object = target == "kubernetes" and bool(one.spec.kind)
        made = write_foreign(one.document, one.spec) if is_object else render(one.spec, target, names)
        found.append({"file": one.file, "name": one.spec.name, "text": made.text, "losses": list(made.losses)})
    return found


def _without_values(spec: JobSpec) -> JobSpec:
    """A variable's value may be a secret, and what is printed is read by others."""
    hidden = tuple(replace(role, env=tuple((name, NOT_SHOWN) for name, _ in role.env)) for role in spec.roles)
    return replace(spec, roles=hidden, env=tuple((name, NOT_SHOWN) for name, _ in spec.env))


def _with_names(spec: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """A job of the same submission that another waits for has no id yet, so it is called by its name."""
    waits = [{**one, "job": names[-one["job"] - 1] if one["job"] < 0 else one["job"]} for one in spec["after"]]
    return {**spec, "after": waits}


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
        return _one_of_both(Submission.model_validate(json.loads(data)))
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(found) from None
    except json.JSONDecodeError as error:
        ctx = {"error": error.msg}
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body", error.pos), "ctx": ctx}]) from None
    except (ValueError, RecursionError):  # no UTF-8 text, or nested too deeply
        raise HTTPException(400) from None


def _one_of_both(body: Submission) -> Submission:
    if body.manifest is None and not body.files:
        missing = {"type": "missing", "loc": ("body", "manifest"), "msg": "Field required", "input": None}
        raise RequestValidationError([missing])
    if body.manifest is not None and body.files:
        raise Rejected("the request has both manifest and files; send one of them")
    return body


def _read(
    services: Services,
    user: str,
    body: Submission,
    find: Callable[[str], int],
    classes: Mapping[str, PriorityClass],
) -> list[Manifest]:
    if not body.workdir.startswith("/"):
        raise Rejected(f"workdir {body.workdir!r} is not an absolute path; send the caller's folder in full")
    if len(system_bytes(body.workdir, "workdir")) > PATH_BYTES_MAX:
        raise Rejected(f"workdir is longer than {PATH_BYTES_MAX} bytes, more than the system can use; shorten it")
    _refuse_large(body.env)
    for name, text in body.env.items():
        system_bytes(f"{name}={text}", f"env: the variable {name!r}")
    commit = None if body.commit is None else Commit(body.commit.sha, body.commit.message)
    if commit is not None:
        system_bytes(commit.message, "commit.message")
    context = Context(
        workdir=body.workdir,
        umask=body.umask,
        user=user,
        uploaded=body.uploaded,
        find_job=find,
        priority_classes=classes,
        variables=body.env.keys(),
        commit=commit,
        resize=ResizeMode(body.resize),
        suffix=body.suffix,
        in_images=body.in_images,
        nodes=() if body.render else tuple(node.capacity for node in services.controller.snapshot.nodes),
        on_cluster=services.cluster is not None if not body.render else body.render == "kubernetes",
    )
    if body.manifest is not None:
        return _with_folder(read_manifests(body.manifest, context), body.uploaded)
    files = [ManifestFile(file.text, file.name, tuple(file.arguments), file.options) for file in body.files]
    return _with_folder(read_files(files, context), body.uploaded)


def _with_folder(manifests: list[Manifest], folder: str) -> list[Manifest]:
    """A folder that is sent is for jobs in our own notation: pods have their files from images and volumes."""
    for one in manifests:
        if folder and one.spec.kind:
            raise Rejected(
                f"{one.spec.name!r} is a {one.spec.kind}; only jobs of swell/v1 can bring a folder (--upload)"
            )
    return manifests
