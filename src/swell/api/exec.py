"""Endpoint for `swell exec`: where is a running task, for its owner only?"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Query, Response

from swell.api.box import Who
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.turns import at_rest
from swell.api.wire import ERRORS, NUMBER_MAX, Json
from swell.errors import Conflict, NotFound, Rejected, Unavailable
from swell.model.cluster import Node
from swell.model.job import AttemptId, JobSpec
from swell.model.launch import RUNTIMES, container_name, runtime_name, words_for_users
from swell.store import JobRecord, TaskRecord

FIRST_NODE_S = 5.0  # a server that was just started hears from its worker within one
LOOK_AGAIN_S = 0.02
OF_ONE = "podman or docker; install one of them and restart the server (swell down, swell up -d)"
OF_USERS = (
    "podman, which runs containers as their users (docker cannot: access to its daemon is root "
    "access); ask the administrator to install it and restart the service"
)


async def refuse_without_runtime(services: Services, specs: list[JobSpec]) -> None:
    """Where no machine has offered itself yet nobody can say; the worker itself refuses then."""
    asked = next((spec for spec in specs if spec.container is not None), None)
    if asked is None:
        return
    nodes = await offered(services, lambda nodes: bool(nodes))
    if nodes and not any(node.container_runtime for node in nodes.values()):
        assert asked.container is not None
        raise Rejected(
            f"job {asked.name!r} wants the image {asked.container.image!r}, but no machine here has "
            f"{OF_USERS if services.box is not None else OF_ONE}, or leave out the image"
        )


async def runtime_on(services: Services, name: str) -> list[str]:
    """The words that run containers there. A job outlives its server, whose workers come back a moment after it.

    A user runs these words, so a worker has no say in them but which runtime it is: options, and where the program is,
    are what the server's own settings say, and only for the worker that the server has started with them.
    """
    nodes = await offered(services, lambda nodes: name in nodes)
    if name not in nodes:
        raise Unavailable(
            f"the worker on {name} has not contacted the server yet; try again, or see worker.log in the state folder"
        )
    runtime = nodes[name].container_runtime
    if runtime not in RUNTIMES:
        raise Conflict(f"the worker on {name} has neither podman nor docker now, so no container there can be entered")
    is_own = services.workers is not None and services.workers.is_own(name)
    return _words_of_own(services, runtime) if is_own else [runtime]


def _words_of_own(services: Services, runtime: str) -> list[str]:
    told = shlex.split(services.config.container_command or "")
    words = told if told and runtime_name(told[0]) == runtime else [runtime]
    return words_for_users(words) if services.box is not None else words


async def offered(services: Services, is_enough: Callable[[dict[str, Node]], bool]) -> dict[str, Node]:
    """The machines, once they are enough, or after a while."""
    until = asyncio.get_running_loop().time() + FIRST_NODE_S
    while True:
        nodes = {node.id: node for node in services.controller.snapshot.nodes}
        if is_enough(nodes) or asyncio.get_running_loop().time() >= until:
            return nodes
        async with at_rest():
            await asyncio.sleep(LOOK_AGAIN_S)


RANKS_SHOWN_MAX = 8


def exec_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)

    @router.get("/{ref}/exec")
    async def place(
        ref: str,
        caller: Who,
        rank: int | None = Query(
            None,
            ge=0,
            le=NUMBER_MAX,
            description="task: rank of a gang or index of an array; by default the first running task",
        ),
    ) -> Response:
        """Show where a task runs now: its machine, its keeper process, its container. This request runs nothing."""

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
        raise Conflict(f"task {task.index} of attempt {attempt} has no pod now; see `swell why {attempt.job}`")
    namespace, name = pod
    return {
        "node": task.node,
        "pid": None,
        "container": name,
        "runtime": ["kubectl", "--namespace", namespace],
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
        raise Conflict(
            f"job {job.id} ({job.name}) is {job.state}: swell exec needs a running job; see `swell why {job.id}`"
        )
    if rank is None:
        return alive[0]
    chosen = services.store.running_tasks(job.id, job.attempts, index=rank, limit=1)
    if not chosen:
        ranks = ", ".join(str(task.index) for task in alive)
        raise NotFound(f"task {rank} of job {job.id} is not running; running tasks: {ranks}")
    return chosen[0]
