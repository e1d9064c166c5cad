"""Which launches should each worker have, and since which version?

Each worker has a version of its own, so that a change for one is no news for the others: of two hundred, one hears of
each job. A version never goes back, also not when the server is restarted: it is the generation of the plan, which is
stored, and below it a count of the changes made under it.
"""

from __future__ import annotations

from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import Launch

CHANGES_BITS = 20
VERSIONS_MAX = 10_000  # workers; most have left for good then


class DesiredLaunches:
    """For one thread at a time: the engine's lock is held."""

    def __init__(self) -> None:
        self._launches: dict[NodeId, dict[AttemptId, Launch]] = {}
        self._nodes: dict[AttemptId, dict[NodeId, None]] = {}  #: where each attempt has launches, in order
        self._version = 0  #: of the latest change
        self._oldest = 0  #: of workers of which nothing has changed since
        self._versions: dict[NodeId, int] = {}  #: of the latest change for each
        self._changed: set[NodeId] = set()  #: since somebody asked

    def open(self, generation: int) -> None:
        """Whatever a worker has from a server before this one is older."""
        self._version = self._oldest = max(self._version + 1, generation << CHANGES_BITS)

    def put(self, launch: Launch) -> None:
        self._launches.setdefault(launch.node, {})[launch.attempt] = launch
        self._nodes.setdefault(launch.attempt, {})[launch.node] = None
        self._changed.add(launch.node)
        self.note_change(launch.node, launch.generation)

    def note_change(self, node: NodeId, generation: int = 0) -> None:
        """The worker is told with its next request; its long poll is not answered for it."""
        if len(self._versions) >= VERSIONS_MAX:
            self._versions.clear()
            self._oldest = self._version  # all are told once more
        self._version = max(self._version + 1, generation << CHANGES_BITS)
        self._versions[node] = self._version

    def remove(self, attempt: AttemptId) -> list[Launch]:
        """Those that it had. Nobody waits to hear it."""
        removed = self.of(attempt)
        for launch in removed:
            here = self._launches[launch.node]
            del here[attempt]
            if not here:
                del self._launches[launch.node]
            self.note_change(launch.node)
        self._nodes.pop(attempt, None)
        return removed

    def get(self, attempt: AttemptId, node: NodeId) -> Launch:
        return self._launches[node][attempt]

    def has(self, attempt: AttemptId, node: NodeId) -> bool:
        return node in self._nodes.get(attempt, ())

    def of(self, attempt: AttemptId) -> list[Launch]:
        """On every node that it is on, in the order in which it came there."""
        return [self._launches[node][attempt] for node in self._nodes.get(attempt, ())]

    def on(self, node: NodeId) -> list[Launch]:
        """By attempt."""
        here = self._launches.get(node, {})
        return [here[attempt] for attempt in sorted(here)]

    def nodes(self) -> list[NodeId]:
        """Those that have launches."""
        return list(self._launches)

    def version(self, node: NodeId) -> int:
        return self._versions.get(node, self._oldest)

    def take_changed(self) -> set[NodeId]:
        """Whose launches have changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed
