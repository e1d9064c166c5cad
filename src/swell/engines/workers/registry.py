"""Which worker may call itself by which name?

A name belongs to who came with it first, shown by a key that only that worker has, until it has left or is given up for
lost. On disk, so that nobody takes a worker's name, and is told its jobs, while the server restarts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from swell.errors import Conflict
from swell.machine.state_folder import write_private
from swell.model.cluster import NodeId

WORKERS_MAX = 10_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    digest: str  #: SHA-256 of the worker's key; empty: it is the worker of the server's own machine
    lease_s: float  #: 0: it holds none, because its tasks outlive everybody


class WorkerRegistry:
    """For one thread at a time, the engine's lock is held; but for `save`, which waits for the disk without it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)
        self._changes = 0
        self._saved = 0  #: of the changes
        self._saving = threading.Lock()

    def lease_s(self, node: NodeId) -> float | None:
        """None: nobody of that name is known."""
        found = self._known.get(node)
        return None if found is None else found.lease_s

    def digest(self, node: NodeId) -> str:
        """Of the key of whoever has the name; empty: nobody has, or it is the server's own worker."""
        found = self._known.get(node)
        return "" if found is None else found.digest

    def claim(self, node: NodeId, wanted: Registration) -> None:
        """Raises `Conflict` where the name is somebody else's. The server's own worker goes before all others."""
        known = self._known.get(node)
        if known == wanted:
            return
        is_same = known is None or hmac.compare_digest(known.digest, wanted.digest)
        if not is_same and wanted.digest:
            raise Conflict(
                f"another worker is called {node!r}; give this one another name (swell worker --name NAME), or wait "
                "until that one has left or is given up for lost"
            )
        if known is None and len(self._known) >= WORKERS_MAX:
            raise Conflict(f"{WORKERS_MAX} workers are known already; let some leave first")
        self._known[node] = wanted
        self._changes += 1

    def has(self, node: NodeId, wanted: Registration) -> bool:
        """It has claimed that name, nothing about it has changed, and nothing is to be saved."""
        return self._known.get(node) == wanted and self._saved == self._changes

    def is_holder(self, node: NodeId, digest: str) -> bool:
        known = self._known.get(node)
        return known is not None and hmac.compare_digest(known.digest, digest)

    def release(self, node: NodeId) -> None:
        if self._known.pop(node, None) is not None:
            self._changes += 1

    def save(self) -> None:
        """Bring what has changed to the disk. Those who come while another does it find theirs done with others'."""
        if self._saved == self._changes:
            return
        with self._saving:
            if self._saved == self._changes:
                return
            self._saved, known = self._changes, self._known.copy()
            try:
                write_private(self._path, json.dumps({node: asdict(one) for node, one in sorted(known.items())}))
            except OSError as error:  # a full disk: they are known until the server ends
                log.warning("the names of workers cannot be noted: %s", error)


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _read(path: Path) -> dict[NodeId, Registration]:
    """Empty: there is none, or a power cut has left half of one."""
    try:
        return {str(node): Registration(**one) for node, one in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
