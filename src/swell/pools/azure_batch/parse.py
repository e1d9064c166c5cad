"""What do Azure's answers say about the workers of a pool, and what do its refusals mean?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from swell.errors import NotFound, Rejected, SwellError, Unavailable
from swell.model.pool import pool_of
from swell.pools.backend import DETAIL_MAX, WORD_MAX, BackendWorker, WorkerState

Document = dict[str, Any]

KEPT_MAX = 100  # tasks that have ended, for each pool: Batch lists them as long as their job lives
STATES = {
    "active": WorkerState.PENDING,  #: in the queue; also after its machine was taken back
    "preparing": WorkerState.PENDING,  #: it has a machine, which fetches the image
    "running": WorkerState.RUNNING,
    "completed": WorkerState.ENDED,
}
#: By code: what was asked has come true already.
DONE = {"TaskExists", "TaskCompleted", "TaskNotFound"}
BUSY = (408, 429)


def parse_tasks(tasks: Iterable[Document], pool: str, job: str, service_url: str) -> tuple[BackendWorker, ...]:
    ours = (task for task in tasks if pool_of(task["id"]) == pool)
    return tuple(sorted((_parse_task(task, job, service_url) for task in ours), key=lambda worker: worker.id))


def _parse_task(task: Document, job: str, service_url: str) -> BackendWorker:
    name, word = task["id"], str(task["state"])
    execution = task.get("executionInfo") or {}
    state = STATES.get(word, WorkerState.UNKNOWN)
    has_ended = state is WorkerState.ENDED
    exit_code = execution.get("exitCode") if has_ended else None
    started = execution.get("startTime")  # of the last run: workers are called after the second of their start
    return BackendWorker(
        id=name,
        backend_id=f"{job}/{name}",
        state=state,
        word=word[:WORD_MAX],
        detail=_detail(execution.get("failureInfo") or {})[:DETAIL_MAX],
        exit_code=None if exit_code is None else int(exit_code),
        log=f"{service_url.rstrip('/')}/jobs/{job}/tasks/{name}/files/stderr.txt",
        is_proof=exit_code is not None and started is not None,
        last_run=0 if started is None else int(datetime.fromisoformat(started).timestamp()),
    )


def _detail(failure: Document) -> str:
    details = (str(one.get("value") or "") for one in failure.get("details") or ())
    return ": ".join(text for text in (failure.get("code"), failure.get("message"), *details) if text)


def surplus(tasks: Sequence[Document], pool: str) -> tuple[str, ...]:
    """Ids of the tasks that have ended and are to be deleted: all but the newest. Their uploaded logs stay."""
    ended = [task for task in tasks if task["state"] == "completed" and pool_of(task["id"]) == pool]
    newest_first = sorted(ended, key=lambda task: str((task.get("executionInfo") or {}).get("endTime")), reverse=True)
    return tuple(task["id"] for task in newest_first[KEPT_MAX:])


def parse_backend_id(backend_id: str, job: str) -> str:
    """The id of its task."""
    found, slash, task = backend_id.partition("/")
    if not slash or not task or found != job:
        raise NotFound(f"{backend_id[:100]!r} is no worker of this pool; write {job}/TASK as `swell pool ps` shows it")
    return task


def refusal(doing: str, status: int, code: str, message: str) -> SwellError:
    """Of an answer that is an error."""
    words = ": ".join(part for part in (code, " ".join(message.split())) if part) or f"HTTP {status}"
    if status in BUSY:
        return Unavailable(f"{doing}: {words}; Azure is asked too often")
    if status >= 500 or status < 400:
        return Unavailable(f"{doing}: {words}")
    if code == "JobNotFound":
        return Rejected(f"{doing}: {words}; make it with `az batch job create`")
    if status == 404:
        return NotFound(f"{doing}: {words}")
    return Rejected(f"{doing}: {words}")
