"""How many connections may there be, and whose?

Descriptors are the process's, whichever port took them. One user gets a quarter of what it has at most. Strangers, who
have not said who they are, share a few: there the newest takes the place of the one that was silent for longest.
Workers on other machines leave room for users, and those at one address for the others: a job there can read the token
of its worker.
"""

from __future__ import annotations

import resource
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

DESCRIPTORS_KEPT = 150  # of those the process may have: the database, logs being read, notices
CONNECTIONS_MAX = max(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_KEPT))
#: A stranger says who it is within milliseconds, and is none then. More than a hundred that come at once must fit.
STRANGERS_MAX = min(256, CONNECTIONS_MAX // 8)
KNOWN_MAX = CONNECTIONS_MAX - STRANGERS_MAX
USER_MAX = min(256, CONNECTIONS_MAX // 4)  # of one user; to answer a thousand that come at once takes a second
WORKERS_MAX = KNOWN_MAX - USER_MAX  # of all workers on other machines; each has about four
ADDRESS_MAX = CONNECTIONS_MAX // 4  # of those at one address: it may be a proxy, or a machine with many
ROOT = 0  # our own worker; and root needs no tricks


@dataclass(frozen=True, slots=True)
class WorkersAt:
    """Workers on other machines, known by the address that they come from, whichever names they use."""

    address: str

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> WorkersAt:
        return cls(str((scope.get("client") or ("",))[0]))

    def __str__(self) -> str:
        return f"workers at {self.address}"


Whom = int | str | WorkersAt  # a user id, a user's name, or workers


class ConnectionSeat(Protocol):
    """A connection."""

    def is_idle(self) -> bool: ...

    def give_way(self) -> None:
        """Be closed, because a newer one needs the place."""


class Crowd:
    """All connections of this process. Every opened door is served by a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[ConnectionSeat, Whom] = {}  #: whose each is
        self._counts: Counter[Whom] = Counter()
        self._workers = 0  #: connections of workers on other machines
        self._strangers: dict[ConnectionSeat, str] = {}  #: from where; those that came first are first

    def enter(self, seat: ConnectionSeat, whom: Whom) -> bool:
        """False: it is one too many."""
        with self._lock:
            return self._count(seat, whom, share=True)

    def enter_as_stranger(self, seat: ConnectionSeat, origin: str) -> bool:
        """False: it is one too many, and all the others are being answered."""
        with self._lock:
            if len(self._strangers) >= STRANGERS_MAX:
                silent = self._longest_silent()
                if silent is None:
                    return False
                del self._strangers[silent]
                silent.give_way()
            self._strangers[seat] = origin
            return True

    def recognise(self, seat: ConnectionSeat, whom: Whom, *, share: bool) -> bool:
        """A stranger that has said who it is. False: that one has too many. `share` False: all of them are theirs."""
        with self._lock:
            if self._strangers.pop(seat, None) is None:
                return True  # it was known before, or has gone
            return self._count(seat, whom, share=share)

    def leave(self, seat: ConnectionSeat) -> None:
        with self._lock:
            self._strangers.pop(seat, None)
            whom = self._known.pop(seat, None)
            if whom is not None:
                self._counts[whom] -= 1
                self._workers -= isinstance(whom, WorkersAt)
                if not self._counts[whom]:
                    del self._counts[whom]

    def _count(self, seat: ConnectionSeat, whom: Whom, *, share: bool) -> bool:
        """It is counted in any case: it leaves when it is closed."""
        self._known[seat] = whom
        self._counts[whom] += 1
        if whom == ROOT:
            return True
        if isinstance(whom, WorkersAt):
            self._workers += 1
            return self._workers <= WORKERS_MAX and self._counts[whom] <= ADDRESS_MAX
        return len(self._known) <= KNOWN_MAX and (not share or self._counts[whom] <= USER_MAX)

    def _longest_silent(self) -> ConnectionSeat | None:
        """Of the address that has the most, so that one machine does not push out the others."""
        origins = Counter(self._strangers.values())
        for origin, _ in origins.most_common():
            for seat, its_origin in self._strangers.items():
                if its_origin == origin and seat.is_idle():
                    return seat
        return None
