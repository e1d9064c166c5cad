"""Which of several servers takes in what kubectl applies?

A server acts for what was submitted to it as long as it holds the Lease of its own namespace. Pods that name us as
their scheduler are everybody's, so of all servers only one takes them in: the one whose Lease object is the oldest of
those that are held. One that may not list Leases takes in its own namespace only, and says so on its Lease: the oldest
leaves that namespace to it.

A Lease counts as held as in `lease.py`: it names a holder, and has changed within its duration on our own clock. Where
the oldest is one that was not there a moment ago, another may still take in: it stops when it has looked again, or when
it could not look for a while, and the new one waits for longer than that.

    newcomer   held ──────────────────── WAIT_S ─────────────────────► takes in
    the other  ── at most LOOK_S ──► sees it, and stops;  or cannot look for STALE_S, and stops
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.election.lease import DURATION_S, LABELS, LEASES, OWN_ONLY, Lease, awake_or_asleep
from swell.engines.kubernetes.watch.unreadable import readable
from swell.errors import Denied, SwellError

log = logging.getLogger(__name__)

LOOK_S = 5.0
STALE_S = 10.0  # one look may fail
WAIT_S = 15.0  # longer than anybody takes to notice


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A Lease that somebody holds."""

    created: str  #: as the API server wrote it, so that it can be compared
    uid: str
    namespace: str
    name: str
    identity: str
    is_own_only: bool

    @property
    def age(self) -> tuple[str, str]:
        """Smaller is older."""
        return self.created, self.uid


class Intake:
    """Thread-safe: one thread looks, others ask. The port should answer soon."""

    def __init__(
        self,
        port: ApiClient,
        lease: Lease,
        *,
        monotonic: Callable[[], float] = awake_or_asleep,
    ) -> None:
        self._port = port
        self._lease = lease  #: our own
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, float]] = {}  #: uid → version, and since when it is that
        self._looked_at = float("-inf")  #: when who holds what was known last
        self._tried_at = float("-inf")
        self._first_since: float | None = None  #: since when ours is the oldest; None: it is not
        self._generation = 0  #: of our Lease, as of the last look: who lost it begins anew
        self._others: tuple[LeaseHolder, ...] = ()
        self._said = ""
        self.may_list = True

    def look_now_and_then(self) -> None:
        if self._monotonic() - self._tried_at >= LOOK_S:
            self.look()

    def look(self) -> None:
        now = self._tried_at = self._monotonic()
        try:
            leases = self._port.list(Selection(LEASES, labels=",".join(f"{k}={v}" for k, v in LABELS.items()))).items
        except SwellError as error:
            is_told = self.may_list and self._looked_at > float("-inf")  # our Lease says that we take in everything
            if is_told or not isinstance(error, Denied):
                log.info("which servers take in what kubectl applies is not known: %s", error)
                return
            self.may_list, leases = False, ()
        with self._lock:
            self._looked_at = now
            self._judge(self._living(leases, now), now)
        if (said := self.in_words()) != self._said:
            self._said = said
            log.info("%s", said)

    def _living(self, leases: Iterable[Document], now: float) -> list[LeaseHolder]:
        seen, living = {}, []
        for holder, version, duration_s in readable(leases, _read):
            before, since = self._seen.get(holder.uid, ("", now))
            since = since if before == version else now
            seen[holder.uid] = (version, since)
            if holder.identity and now - since < duration_s:
                living.append(holder)
        self._seen = seen
        return living

    def _judge(self, living: list[LeaseHolder], now: float) -> None:
        """Whoever may not look cannot know who else is there, and waits as if somebody were."""
        own = next((one for one in living if self._is_own(one)), None)
        self._others = tuple(one for one in living if not self._is_own(one))
        rivals = [one for one in self._others if not one.is_own_only]
        is_first = own is not None and all(own.age < one.age for one in rivals)
        if not self._has_gone_on() or (self.may_list and not is_first):
            self._first_since = None
        self._generation = self._lease.generation
        if self._first_since is None and self._lease.is_held and (is_first or not self.may_list):
            self._first_since = now if rivals or not self.may_list else now - WAIT_S

    def _has_gone_on(self) -> bool:
        return self._lease.is_held and self._lease.generation == self._generation

    def _is_own(self, one: LeaseHolder) -> bool:
        return (one.namespace, one.identity) == (self._lease.namespace, self._lease.identity)

    # -- questions -------------------------------------------------------------------------------------------------

    def takes(self, namespace: str) -> bool:
        """Are pods of that namespace ours to take in now?"""
        with self._lock:
            return self._takes(namespace, self._monotonic())

    def _takes(self, namespace: str, now: float) -> bool:
        if self._first_since is None or now - self._first_since < WAIT_S:
            return False
        if now - self._looked_at > STALE_S or not self._has_gone_on():
            return False
        if not self.may_list:
            return namespace == self._lease.namespace
        return all(one.namespace != namespace for one in self._others if one.is_own_only)

    def leaves(self, namespace: str) -> bool:
        """Are they another's, as far as is known? Not while nobody knows."""
        with self._lock:
            return self.may_list and self._taker(namespace) is not None

    def _taker(self, namespace: str) -> LeaseHolder | None:
        """None: it is us, or nobody is known."""
        mine = [one for one in self._others if one.is_own_only and one.namespace == namespace]
        rivals = [one for one in self._others if not one.is_own_only]
        oldest = min(rivals, key=lambda one: one.age, default=None)
        return next(iter(mine), oldest if self._first_since is None else None)

    def in_words(self) -> str:
        with self._lock:
            taker = self._taker("")
            if not self.may_list:
                where = f"namespace {self._lease.namespace!r} only: it may not list {LEASES} in all of them"
                return f"this server takes in what kubectl applies in {where}"
            if taker is not None:
                who = f"{taker.identity!r}, whose Lease is {taker.namespace}/{taker.name},"
                return f"{who} takes in what kubectl applies; this server runs only what is submitted to it"
            if self._first_since is None:
                return "this server takes in nothing that kubectl applies: it does not hold its Lease"
            left = sorted({one.namespace for one in self._others if one.is_own_only})
            but = f", but for {', '.join(left)}: the servers there do" if left else ""
            return f"this server takes in what kubectl applies in all namespaces{but}"


def _read(lease: Document) -> tuple[LeaseHolder, str, float]:
    """Who holds it (an empty identity: nobody), in which version, and for how many seconds after a change."""
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    notes = metadata.get("annotations") or {}
    holder = LeaseHolder(
        metadata["creationTimestamp"],
        metadata["uid"],
        metadata["namespace"],
        metadata["name"],
        spec.get("holderIdentity") or "",
        all(notes.get(name) == value for name, value in OWN_ONLY.items()),
    )
    return holder, metadata["resourceVersion"], float(spec.get("leaseDurationSeconds") or DURATION_S)
