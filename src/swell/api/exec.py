"""Endpoint for `swell exec`: where is a running task, for its owner only?"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Response

from swell.api.caller import Who
from swell.api.containers import runtime_on
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.wire import ERRORS, Json
from swell.errors import Conflict, NotFound
from swell.model.container import container_name
from swell.model.job import AttemptId
from swell.store import JobRecord, TaskRecord

RANKS_SHOWN_MAX = 8


def exec_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)

    @router.get("/{ref}/exec")
    async def place(
        ref: str,
        caller: Who,
        rank: int | None = Query(None, description="task: a gang's rank or an array's index; the first that runs"),
    ) -> Response:
        """Where a task runs now: its machine, the process that keeps it, its container. Nothing is run here."""

        def find() -> tuple[JobRecord, TaskRecord]:
            job = find_job(services.store, caller, ref)
            return job, _running(services, job, rank)

        job, task = await services.read(caller.user, find)
        attempt = AttemptId(job.id, task.attempt)
        if services.workers is None:
            return Json(_pod(services, attempt, task))
        in_container = job.spec.container is not None
        return Json(
            {
                "node": task.node,
                "pid": services.workers.keeper(attempt, task.index),
                "container": container_name(services.store.id, attempt, task.index) if in_container else None,
                "runtime": await runtime_on(services, task.node) if in_container else [],
                "runtime_folder": _runtime_folder(services, job),
            }
        )

    return router


def _pod(services: Services, attempt: AttemptId, task: TaskRecord) -> dict[str, Any]:
    """Entered with the caller's own kubectl: the cluster decides who may."""
    pod = None if services.cluster is None else services.cluster.pod_of(attempt, task.index)
    if pod is None:
        raise Conflict(f"task {task.index} of attempt {attempt} has no pod just now; `swell why {attempt.job}`")
    return {
        "node": task.node,
        "pid": None,
        "container": pod.name,
        "runtime": ["kubectl", "--namespace", pod.namespace],
        "runtime_folder": None,
    }


def _runtime_folder(services: Services, job: JobRecord) -> str | None:
    """What XDG_RUNTIME_DIR must be for the runtime to find the container; None: whatever it is."""
    if services.box is None or job.uid is None:
        return None
    return str(services.box.runtime_folder(job.uid))


def _running(services: Services, job: JobRecord, rank: int | None) -> TaskRecord:
    alive = services.store.running_tasks(job.id, job.attempts, index=None, limit=RANKS_SHOWN_MAX)
    if job.state.has_ended or not alive:
        raise Conflict(f"job {job.id} ({job.name}) is {job.state}: there is nothing to enter; `swell why {job.id}`")
    if rank is None:
        return alive[0]
    chosen = services.store.running_tasks(job.id, job.attempts, index=rank, limit=1)
    if not chosen:
        ranks = ", ".join(str(task.index) for task in alive)
        raise NotFound(f"task {rank} of job {job.id} does not run now; those that do: {ranks}")
    return chosen[0]
