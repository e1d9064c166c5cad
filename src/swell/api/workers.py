"""Endpoints for workers: one sync, the environments tasks need, the logs of those elsewhere, and a farewell."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from swell.api.credentials import WORKER_GROUP_KEY, WORKER_KEY
from swell.api.crowd import WorkersAt
from swell.api.invalid import in_words
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Sync
from swell.engines.workers import DesiredSet, WorkerReport, WorkersEngine
from swell.engines.workers.received_logs import LOG_OFFSET_MAX
from swell.errors import Conflict, Denied, NotFound, Rejected
from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import KEY_HEADER, NODE_HEADER, WorkerTerms

T = TypeVar("T")

KEY_CHARACTERS_MIN = 32  # of what a worker elsewhere proves itself by
SMALL_BYTES = 4096  # of a report of a few tasks: reading it takes less than handing it to a thread
PIECES_MAX = 10_000
LINE_BYTES_MAX = 100 * PIECES_MAX  # of the names of so many pieces
BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": Sync.model_json_schema()}}}
}
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
NOT_ON_A_BOX = (
    "a box server takes no workers on other machines: its users' jobs run as themselves, and such a worker runs tasks "
    "as its own user; run a private server for them (swell up)"
)


def workers_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/workers", tags=["workers"], responses=ERRORS)
    engine = services.workers
    if engine is None:  # nobody has one here
        return router

    @router.post("/sync", openapi_extra=BODY)
    async def sync(request: Request) -> Response:
        """Record a worker's report; answer with the desired set once it is newer, after at most `hold_s`."""
        if services.box is not None and request.scope[WORKER_KEY]:
            raise Denied(NOT_ON_A_BOX)
        body, node = await _take(services, engine, request)
        until = asyncio.get_running_loop().time() + body.hold_s
        answer = engine.answer(node, body.version)
        while answer is None and not services.desired.is_closed:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await services.desired.wait(left, node)
            answer = engine.answer(node, body.version)
        if answer is None or not answer.launches:
            return _document(services, answer, body.version)
        return await in_thread(services, request, lambda: _document(services, answer, body.version))

    _add_elsewhere(router, services, engine)
    return router


def _add_elsewhere(router: APIRouter, services: Services, engine: WorkersEngine) -> None:
    """What workers elsewhere need beside the sync."""

    @router.get("/environments/{digest}")
    async def environment(digest: str, request: Request) -> Response:
        """Return the environment that a job was submitted with; workers only, remote workers for their own launches."""
        node = elsewhere(request, engine)
        if node is not None and not engine.may_read_environment(node, digest):
            raise NotFound("no job of this worker has that environment")
        return await in_thread(services, request, lambda: Json(services.store.environment(digest)))

    @router.post("/logs")
    async def logs(request: Request) -> Response:
        """Store logs of a remote worker's tasks. One line of JSON names the pieces, which follow it.

        Each is `[attempt, index, offset, length]`. The answer says how far each log is here; null: it is not wanted.
        """
        node = elsewhere(request, engine)
        if node is None:
            raise Rejected("the worker of the server's own machine has no logs to send")
        body = await request.body()

        def write() -> Response:
            return Json({"sizes": _write_logs(engine, node, _pieces(body))})

        return await in_thread(services, request, write)

    @router.post("/leave")
    async def leave(request: Request) -> Response:
        """Deregister a remote worker, which no longer runs anything."""
        node = elsewhere(request, engine)
        if node is None:
            raise Rejected("the worker of the server's own machine does not leave")
        engine.leave(node)
        return Json({})


async def in_thread(services: Services, request: Request, work: Callable[[], T]) -> T:
    """Where what a worker sends is read, and what it is sent is written."""
    return await services.pools.workers.run(str(WorkersAt.of(request.scope)), work)


async def _take(services: Services, engine: WorkersEngine, request: Request) -> tuple[Sync, NodeId]:
    """The report reaches the engine; whose it is."""
    data = await request.body()
    if len(data) > SMALL_BYTES:
        body, report = await in_thread(services, request, lambda: _read(services, request, data))
    else:
        body, report = _read(services, request, data)
    if len(data) > SMALL_BYTES or not engine.is_quickly_taken(report):
        await in_thread(services, request, lambda: engine.sync(report))
    else:
        engine.sync(report)
    return body, report.node.id


def _read(services: Services, request: Request, data: bytes) -> tuple[Sync, WorkerReport]:
    body = _sync(data)
    if body.store and body.store != services.store.id:
        raise Conflict(f"this server keeps store {services.store.id}, the worker belongs to {body.store}")
    report = _identified(request, _report(body))
    if body.server != services.server_id:  # the rest of the story was told to another process
        report = replace(report, tasks=(), runs=())
    return body, report


def _sync(data: bytes) -> Sync:
    try:
        return Sync.model_validate(json.loads(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Rejected(in_words({**first, "loc": ("body", *first["loc"])})) from error
    except UNREADABLE as error:
        raise Rejected(f"the report is not JSON: {error!r}") from error


def _identified(request: Request, report: WorkerReport) -> WorkerReport:
    """A worker elsewhere has a key of its own; the server's own worker has the server's token instead."""
    if not request.scope[WORKER_KEY]:
        return replace(report, terms=None)
    if report.terms is None:
        raise Rejected("a worker elsewhere must name its lease; worker and server must be of one version")
    if request.headers.get(NODE_HEADER) != report.node.id:
        raise Denied("the worker's name in the header is not the one in its report")
    return replace(report, key=_key(request), terms=_in_group(report.terms, request.scope[WORKER_GROUP_KEY]))


def _in_group(terms: WorkerTerms, group: str) -> WorkerTerms:
    """`group`: of its token; a worker cannot say that it is for another."""
    if group and terms.group not in ("", group):
        raise Denied(f"this token is for workers of the group {group!r}, and the worker says --group {terms.group}")
    return replace(terms, group=group) if group else terms


def elsewhere(request: Request, engine: WorkersEngine) -> NodeId | None:
    """Which worker asks; None: that of the server's own machine. Raises where it is not who it says."""
    if not request.scope[WORKER_KEY]:
        return None
    node = request.headers.get(NODE_HEADER, "")
    engine.check_identity(node, _key(request))
    return node


def _key(request: Request) -> str:
    key = request.headers.get(KEY_HEADER, "")
    if len(key) < KEY_CHARACTERS_MIN:
        raise Denied(f"a worker elsewhere must send a key of at least {KEY_CHARACTERS_MIN} characters")
    return key


def _pieces(body: bytes) -> list[tuple[AttemptId, int, int, bytes]]:
    line, _, data = body.partition(b"\n")
    if len(line) > LINE_BYTES_MAX or line.count(b"[") > PIECES_MAX + 1:
        raise Rejected(f"the line that names the pieces of logs names more than {PIECES_MAX}; send fewer")
    try:
        named = json.loads(line)
        found, start = [], 0
        for attempt, index, offset, length in named[:PIECES_MAX]:
            if any(type(number) is not int for number in (index, offset, length)):
                raise ValueError("a piece without whole numbers")
            if not 0 <= offset <= LOG_OFFSET_MAX or index < 0 or not 0 <= length <= len(data) - start:
                raise ValueError("a piece that cannot be")
            found.append((AttemptId.parse(attempt), index, offset, data[start : start + length]))
            start += length
    except UNREADABLE as error:
        raise Rejected(f"the pieces of logs cannot be read: {error!r}") from error
    return found


def _write_logs(
    engine: WorkersEngine, node: NodeId, pieces: list[tuple[AttemptId, int, int, bytes]]
) -> list[int | None]:
    """Also those that come after one which no file can have; that one is refused."""
    sizes, refused = [], ""
    for attempt, index, offset, data in pieces:
        try:
            sizes.append(engine.write_log(node, attempt, index, offset, data))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            refused = f"the log of task {index} of attempt {attempt} cannot have a piece at {offset}: {error.strerror}"
    if refused:
        raise Rejected(refused)
    return sizes


def _report(body: Sync) -> WorkerReport:
    try:
        return WorkerReport.parse(dict(body))
    except UNREADABLE as error:
        raise Rejected(f"the report cannot be read ({error!r}); worker and server must be of one version") from error


def _document(services: Services, answer: DesiredSet | None, version: int) -> Response:
    """Each launch is written by itself: a job's variables may have a mebibyte, and nothing else runs meanwhile."""
    launches = b"null"
    if answer is not None and answer.launches is not None:
        version = answer.version
        launches = b"[%s]" % b",".join(json.dumps(launch.to_document()).encode() for launch in answer.launches)
    head = json.dumps({"store": services.store.id, "server": services.server_id, "version": version}).encode()
    return Response(b'%s,"launches":%s}' % (head[:-1], launches), media_type="application/json")
