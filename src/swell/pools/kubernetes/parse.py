"""What does the API server's answer say about the workers of a pool?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from swell.errors import Rejected, Unavailable
from swell.model.pool import pool_of
from swell.pools.backend import DETAIL_MAX, WORD_MAX, BackendWorker, WorkerState
from swell.pools.kubernetes.render import CONTAINER, WORKER_LABEL

Document = dict[str, Any]

KEPT_MAX = 20  # pods that have ended, for each pool: their logs are read for a while, and nobody else removes them

STATES = {
    "Pending": WorkerState.PENDING,
    "Running": WorkerState.RUNNING,
    "Succeeded": WorkerState.ENDED,
    "Failed": WorkerState.ENDED,
}


def parse_pods(items: Iterable[Document], pool: str) -> tuple[BackendWorker, ...]:
    """Pods that carry the label of the pool and are named otherwise are somebody else's."""
    try:
        found = [_parse_pod(item) for item in items if pool_of(item["metadata"]["name"]) == pool]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unavailable(f"listing the pods of pool {pool}: an answer that cannot be read: {error!r}") from error
    return tuple(sorted(found, key=lambda worker: worker.id))


def _parse_pod(pod: Document) -> BackendWorker:
    metadata, status = pod["metadata"], pod.get("status") or {}
    name, namespace = metadata["name"], metadata["namespace"]
    phase = status.get("phase") or "Pending"  # an object that nobody has looked at yet
    container = _container(status)
    ended = (container.get("state") or {}).get("terminated") or {}
    is_going = metadata.get("deletionTimestamp") is not None
    return BackendWorker(
        id=(metadata.get("labels") or {}).get(WORKER_LABEL) or name,
        backend_id=f"{namespace}/{name}",
        state=STATES.get(phase, WorkerState.UNKNOWN),
        word=("Terminating" if is_going and phase in ("Pending", "Running") else str(phase))[:WORD_MAX],
        detail=_detail(status, container, ended)[:DETAIL_MAX],
        exit_code=int(ended["exitCode"]) if "exitCode" in ended else None,
        log=f"kubectl logs -n {namespace} {name}",
        # A kubelet that is gone fails no pod by itself; others do so for it, and know of no process.
        is_proof=STATES.get(phase) is WorkerState.ENDED and "exitCode" in ended,
    )


def _container(status: Document) -> Document:
    found = [one for one in status.get("containerStatuses") or () if one.get("name") == CONTAINER]
    return dict(found[0]) if found else {}


def _detail(status: Document, container: Document, ended: Document) -> str:
    """The first that says why: how it ended, what keeps its container, what keeps it from a node."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    unready = [
        one
        for one in status.get("conditions") or ()
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]
    for said in (ended, status, waiting, *unready):
        words = [str(said[part]) for part in ("reason", "message") if said.get(part)]
        if words and said.get("reason") != "ContainerCreating":
            return ": ".join(words)
    return ""


def surplus(items: Sequence[Document], pool: str) -> tuple[str, ...]:
    """Names of the pods that have ended and are to be deleted: all but the newest."""
    ended = [
        pod
        for pod in items
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        and pool_of(pod["metadata"]["name"]) == pool
    ]
    newest_first = sorted(ended, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)
    return tuple(pod["metadata"]["name"] for pod in newest_first[KEPT_MAX:])


def parse_backend_id(backend_id: str) -> tuple[str, str]:
    """Namespace and name of a pod."""
    namespace, slash, name = backend_id.partition("/")
    if not (namespace and slash and name):
        raise Rejected(f"{backend_id[:100]!r} is no pod of a pool; write NAMESPACE/POD as `swell pool ps` shows it")
    return namespace, name
