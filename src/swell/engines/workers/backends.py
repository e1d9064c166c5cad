"""Of which job of a batch system, or pod, was a worker a part?

Kept after the worker has left, because its jobs have ended by then and somebody asks for the backend's own log. One
line for each worker that came, in a file beside the logs; the newest are kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from swell.model.cluster import BackendJob, NodeId
from swell.model.pool import worker_at

KEPT_MAX = 10_000  # workers

log = logging.getLogger(__name__)


class BackendNotes:
    """For one thread at a time: the engine's lock is held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)
        self._lines = len(self._known)

    def note(self, node: NodeId, backend: BackendJob | None) -> None:
        if backend is None or self._known.get(node) == backend:
            return
        self._known.pop(node, None)
        self._known[node] = backend
        while len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._lines += 1
        try:
            self._write(node, backend)
        except OSError as error:  # a full disk: it is known until the server ends
            log.warning("the backend of worker %s cannot be noted: %s", node, error)

    def _write(self, node: NodeId, backend: BackendJob) -> None:
        if self._lines > 2 * KEPT_MAX:  # most of them say nothing new
            self._path.write_text("".join(_line(*one) for one in self._known.items()))
            self._lines = len(self._known)
        else:
            with self._path.open("a") as file:
                file.write(_line(node, backend))

    def of(self, nodes: Iterable[NodeId]) -> dict[NodeId, BackendJob]:
        return {node: self._known[node] for node in nodes if node in self._known}

    def came_among(self, workers: set[str]) -> tuple[str, ...]:
        """Those of a pool's workers that came, under whatever name of theirs; sorted."""
        return tuple(sorted(workers.intersection(map(worker_at, self._known))))


def _line(node: NodeId, backend: BackendJob) -> str:
    return json.dumps([node, asdict(backend)]) + "\n"


def _read(path: Path) -> dict[NodeId, BackendJob]:
    """A line that a power cut has left half is left out."""
    found: dict[NodeId, BackendJob] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines[-KEPT_MAX:]:
        try:
            node, backend = json.loads(line)
            found[str(node)] = BackendJob(**backend)
        except (ValueError, TypeError):
            continue
    return found
