"""Endpoints for pools: one sync, a token for their workers, and what people ask and tell of them.

A pool comes with a token of the scope `pool`, or as an administrator. Its token opens the first two of these endpoints
and nothing else; the tokens that it is given for its workers open what workers ask for.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from swell.api.box import Caller, Who, require_admin
from swell.api.credentials import TOKEN, WORKER_SCOPE, make_credential
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Strict
from swell.api.workers import NOT_ON_A_BOX
from swell.controller.pools import UNREADABLE, PoolEvent
from swell.errors import NotFound, Rejected
from swell.model.codec import to_document
from swell.model.launch import TAG
from swell.model.pool import PoolReport, parse_report, run_at, worker_at
from swell.planner.why.pools import SILENCE_S, PoolStanding
from swell.store import Changes, EventRecord

WORKER_TOKEN_S = 30 * 86400.0  # the pool asks for another before that; a stolen one ends by itself
NAME_MAX = 300  # characters of a worker's name, or of what a backend calls it


class PoolStop(Strict):
    workers: bool = Field(default=False, description="also stop its workers; by default they leave when they are idle")


class WorkerKill(Strict):
    worker: str = Field(min_length=1, max_length=NAME_MAX, description="name of the worker, or its id in the backend")
    force: bool = Field(default=False, description="stop the worker at once, without stopping its tasks first")


class TokenWanted(Strict):
    group: str = Field(default="", pattern=rf"^(?:{TAG.pattern})?$", description="group of the worker")


def pools_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/pools", tags=["pools"], responses=ERRORS)
    controller, engine = services.controller, services.workers
    if engine is None:  # the nodes are a cluster's
        return router

    @router.post("/sync")
    async def sync(request: Request, caller: Who) -> Response:
        """Record a pool's report; answer with the number of workers that waiting jobs need."""
        _require_pool(services, caller)
        body = await request.body()
        report, happened = await services.read(caller.user, lambda: _take(services, body))  # it may name 10,000 workers
        if happened:
            events = [EventRecord(kind, None, caller.user, detail, origin=caller.origin) for kind, detail in happened]
            await asyncio.wrap_future(services.store.record(Changes(events=events)))
        demand = await services.read(caller.user, lambda: _demand(services, report))
        return Json(demand)

    @router.post("/worker-token", status_code=201)
    async def worker_token(body: TokenWanted, caller: Who) -> Response:
        """Make a token of the scope `worker` for the workers of the pool."""
        _require_pool(services, caller)
        scope = f"{WORKER_SCOPE}:{body.group}" if body.group else WORKER_SCOPE
        now = services.now()
        made = make_credential(TOKEN, caller, scope=scope, now=now, expires_at=now + WORKER_TOKEN_S)
        event = caller.did("TokenCreated", token=made.record.id, name=made.record.name, scope=scope)
        await asyncio.wrap_future(services.store.tokens.create(made.record, event))
        return Json({"token": made.text, "expires_at": made.record.expires_at, "id": made.record.id}, 201)

    @router.get("")
    async def listing(caller: Who) -> Response:
        """List pools with their offers, states and workers."""

        def read() -> Response:
            snapshot = controller.snapshot
            nodes = {worker_at(node.id): False for node in snapshot.nodes}
            nodes |= {worker_at(slot.node): True for _, slot in snapshot.held()}
            return Json({"pools": [pool_document(one, nodes) for one in controller.pool_standings()]})

        return await services.read(caller.user, read)

    @router.post("/{name}/stop", status_code=202)
    async def stop(name: str, body: PoolStop, caller: Who) -> Response:
        """Stop a pool: it starts no more workers and exits."""
        require_admin(caller, "stop a pool")
        is_told = controller.pools.stop(name, ends_workers=body.workers)
        event = caller.did("PoolStopRequested", pool=name, workers=body.workers)
        await asyncio.wrap_future(services.store.record(Changes(events=[event])))
        return Json({"told": is_told}, 202)

    @router.post("/kill", status_code=202)
    async def kill(body: WorkerKill, caller: Who) -> Response:
        """Stop one worker of a pool."""
        require_admin(caller, "end a worker of a pool")
        report, worker = controller.pools.kill(body.worker, is_forced=body.force)
        event = caller.did("PoolWorkerKillRequested", pool=report.name, worker=worker.id, force=body.force)
        await asyncio.wrap_future(services.store.record(Changes(events=[event])))
        return Json({"pool": report.name, "worker": worker.id, "backend_id": worker.backend_id}, 202)

    return router


def _require_pool(services: Services, caller: Caller) -> None:
    if not caller.is_pool:
        require_admin(caller, "run a pool")
    if services.box is not None:
        raise Rejected(NOT_ON_A_BOX)


def _take(services: Services, body: bytes) -> tuple[PoolReport, list[PoolEvent]]:
    report = _report(body)
    assert services.workers is not None
    happened = services.controller.pools.report(report, set(map(worker_at, services.workers.silences())))
    _give_up_gone(services, report)
    return report, happened


def _report(body: bytes) -> PoolReport:
    try:
        return parse_report(json.loads(body))
    except UNREADABLE as error:
        raise Rejected(f"the pool's report cannot be read: {error}; pool and server must be of one version") from error


def _give_up_gone(services: Services, report: PoolReport) -> None:
    """What the backend has seen end runs nothing any more: the lease of its worker is not waited for.

    Of a worker that the backend has started again, that is its last run: the one before may still live on a machine
    that the backend cannot reach.
    """
    assert services.workers is not None
    gone = {worker.id: worker for worker in report.workers if worker.is_gone and not worker.is_live}
    for node in services.controller.snapshot.nodes if gone else ():
        worker = gone.get(worker_at(node.id))
        is_proven = worker is not None and run_at(node.id) >= worker.last_run
        if worker is not None and is_proven and services.controller.pools.has_launched(report, worker.id):
            said = f"its worker {worker.id} has ended in {report.kind} ({worker.word})"
            services.workers.declare_lost(node.id, said)


def _demand(services: Services, report: PoolReport) -> dict[str, Any]:
    assert services.workers is not None
    try:
        demand = services.controller.pool_demand(report.name)
    except NotFound:  # it was its last report
        return {"workers": 0}
    known = services.workers.came_among({worker.id for worker in report.workers})
    found: dict[str, Any] = to_document(replace(demand, known=known))
    return found


def pool_document(pool: PoolStanding, nodes: dict[str, bool]) -> dict[str, Any]:
    """`nodes`: the workers that are there, and whether a job holds something there."""
    report = pool.report
    offer = to_document(report.offer)
    live = report.live
    return {
        "name": report.name,
        "kind": report.kind,
        "state": "silent" if pool.silent_s > SILENCE_S else str(report.phase),
        "silent_s": round(pool.silent_s, 1),
        "problem": pool.problem,
        "retry_s": report.retry_s,
        "offer": offer,
        "workers_min": report.workers_min,
        "workers_max": report.workers_max,
        "pending": sum(worker.state == "pending" for worker in live),
        "running": sum(worker.state == "running" for worker in live),
        "busy": sum(nodes.get(worker.id, False) for worker in live),
        "wanted": pool.need.workers,
        "jobs": list(pool.need.jobs[:100]),
        "launched": report.launched,
        "failed": report.failed,
        "workers": [_worker_document(worker.id, to_document(worker), nodes) for worker in report.workers],
    }


def _worker_document(name: str, worker: dict[str, Any], nodes: dict[str, bool]) -> dict[str, Any]:
    use = {True: "busy", False: "idle"}[nodes[name]] if name in nodes else ""
    return {**worker, "node": use}
