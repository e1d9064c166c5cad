"""Endpoints for the files of jobs: folders that users send, and what workers send back.

Both speak of chunks, each known by its SHA-256, so that only what is missing is sent. A worker has the same four
endpoints as a user, and may name what it has as the output of an attempt that it runs.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from swell.api.box import Who
from swell.api.crowd import WorkersAt
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, OutputFolder
from swell.api.workers import elsewhere
from swell.errors import Denied, Rejected
from swell.files.chunk_store import ChunkStore
from swell.files.listing import CHUNK_BYTES
from swell.files.outputs import check_outputs
from swell.model.job import AttemptId, JobSpec

DIGESTS_MAX = 10_000  # in one question
CHUNKS_MAX = 256  # in one request: many small files; their bytes are bounded by the request
DIGESTS_BYTES_MAX = 100 * DIGESTS_MAX  # in JSON, with room for spaces
LENGTHS_BYTES_MAX = 16 * CHUNKS_MAX
READ_BYTES_MAX = 8 * 1024 * 1024  # of one answer
NOT_ON_A_BOX = (
    "jobs on a box server run on this machine, in folders that are there; leave --upload, inputs and outputs out"
)
NOT_IN_A_CLUSTER = (
    "jobs in a cluster have the files of their image and of its volumes; leave --upload, inputs and outputs out"
)

Work = Callable[[Callable[[], Any]], Awaitable[Any]]


def files_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["files"], responses=ERRORS)
    _add_for_users(router, services)
    if services.workers is not None and services.files is not None:
        _add_for_workers(router, services, services.files)
    return router


def refuse_files(services: Services, specs: list[JobSpec]) -> None:
    """Jobs whose files cannot be sent where this server runs them, or were not sent."""
    for folder in {spec.files.folder for spec in specs if spec.files is not None}:
        store = _store(services)
        if folder and not store.has_folder(folder):
            raise Rejected(f"the server has no folder {folder}; send it again: swell run --upload")


def _store(services: Services) -> ChunkStore:
    if services.files is None:
        raise Rejected(NOT_ON_A_BOX if services.box is not None else NOT_IN_A_CLUSTER)
    return services.files


def _add_for_users(router: APIRouter, services: Services) -> None:
    @router.post("/files/{what}")
    async def files(what: str, request: Request, caller: Who) -> Response:
        """Transfer files: `missing` asks what to send, `chunks` sends it, `folders` names a folder, `read` reads."""
        store = _store(services)
        body = await request.body()
        return await services.pools.files.run(caller.user, lambda: _answer(store, what, body))

    @router.get("/jobs/{ref}/outputs")
    async def outputs(ref: str, caller: Who) -> Response:
        """List the outputs that the job's attempts have sent, the latest attempt last."""
        store = _store(services)

        def read() -> Response:
            job = find_job(services.store, caller, ref)
            if caller.own is not None and job.owner != caller.own:
                raise Denied(f"job {job.id} belongs to {job.owner}")
            found = store.outputs(job.id)
            rows = [
                {
                    "attempt": one.attempt.number,
                    "node": one.node,
                    "folder": one.folder,
                    "files": one.files,
                    "bytes": one.size,
                    "patterns": [] if job.spec.files is None else job.spec.files.outputs,
                }
                for one in found
            ]
            return Json({"job": job.id, "state": str(job.state), "outputs": rows})

        return await services.pools.files.run(caller.user, read)

    @router.get("/files/folders/{folder}", response_class=Response)
    async def listing(folder: str, caller: Who) -> Response:
        """List the paths, sizes and chunks of a folder."""
        store = _store(services)
        data = await services.pools.files.run(caller.user, lambda: store.list_bytes(folder))
        return Response(data, media_type="application/json")


def _add_for_workers(router: APIRouter, services: Services, store: ChunkStore) -> None:
    engine = services.workers
    assert engine is not None

    @router.post("/workers/files/{what}")
    async def files(what: str, request: Request) -> Response:
        """Transfer files as users do, for a worker."""
        node = elsewhere(request, engine)
        if node is not None and not engine.has_files(node):
            raise Denied("no job of this worker has files")
        body = await request.body()
        return await services.pools.files.run(str(WorkersAt.of(request.scope)), lambda: _answer(store, what, body))

    @router.get("/workers/files/folders/{folder}", response_class=Response)
    async def listing(folder: str, request: Request) -> Response:
        """List a folder that a job of this worker was submitted with."""
        node = elsewhere(request, engine)
        if node is not None and not engine.has_files(node, folder):
            raise Denied("no job of this worker has that folder")
        data = await services.pools.files.run(str(WorkersAt.of(request.scope)), lambda: store.list_bytes(folder))
        return Response(data, media_type="application/json")

    @router.post("/workers/outputs")
    async def outputs(body: OutputFolder, request: Request) -> Response:
        """Record the outputs of an attempt that ended on this worker."""
        node = elsewhere(request, engine) or body.node
        attempt = AttemptId.parse(body.attempt)
        launch = engine.running(attempt, node)
        if launch is None:
            raise Denied(f"attempt {attempt} does not run on {node[:100]!r}")
        patterns = () if launch.files is None else launch.files.outputs

        def note() -> Response:
            folder, listing = store.commit(body.chunks, lambda listing: check_outputs(listing, patterns))
            store.note_output(attempt, node, folder, listing)
            return Json({"folder": folder})

        return await services.pools.files.run(str(WorkersAt.of(request.scope)), note)


def _answer(store: ChunkStore, what: str, body: bytes) -> Response:
    if what == "missing":
        return Json({"missing": store.missing(_digests(body, DIGESTS_MAX))})
    if what == "chunks":
        return Json({"stored": [store.put(part) for part in _parts(body)]})
    if what == "folders":
        folder, listing = store.commit(_digests(body, DIGESTS_MAX))
        return Json({"folder": folder, "files": listing.files, "bytes": listing.size})
    if what == "read":
        return _chunks(store, _digests(body, READ_BYTES_MAX // CHUNK_BYTES))
    raise Rejected(f"there is no /files/{what[:50]}; known: missing, chunks, folders, read")


def _chunks(store: ChunkStore, digests: list[str]) -> Response:
    parts = [store.get(digest) for digest in digests]
    head = json.dumps([len(part) for part in parts]).encode()
    return Response(b"\n".join([head, b"".join(parts)]), media_type="application/octet-stream")


def _digests(body: bytes, most: int) -> list[str]:
    if len(body) > DIGESTS_BYTES_MAX or body.count(b"[") > 1:
        raise Rejected(f'the body must be {{"digests": [...]}}, of at most {DIGESTS_MAX} SHA-256')
    try:
        found = json.loads(body)["digests"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Rejected('the body must be {"digests": [...]}') from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Rejected("digests must be a list of SHA-256 in text")
    if len(found) > most:
        raise Rejected(f"{len(found)} digests in one request; send at most {most}")
    return found


def _parts(body: bytes) -> list[bytes]:
    """A line of JSON has their lengths; they follow it."""
    line, _, data = body.partition(b"\n")
    if len(line) > LENGTHS_BYTES_MAX:
        raise Rejected(f"the line with the lengths of chunks has more than {LENGTHS_BYTES_MAX} bytes")
    try:
        lengths = json.loads(line)
        if len(lengths) > CHUNKS_MAX or any(type(one) is not int or one <= 0 for one in lengths):
            raise ValueError("lengths that cannot be")
    except (ValueError, TypeError, RecursionError) as error:
        raise Rejected(f"the lengths of the chunks cannot be read: {error!r}") from error
    if sum(lengths) != len(data):
        raise Rejected(f"the chunks should have {sum(lengths)} bytes, and {len(data)} came")
    found, start = [], 0
    for length in lengths:
        found.append(data[start : start + length])
        start += length
    return found
