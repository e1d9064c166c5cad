"""Is this the one server that acts?

A Lease object names its holder. Whoever waits believes the holder dead when the object has not changed for its whole
duration *on the waiter's own monotonic clock*, so the clocks of two machines need not agree; the times in the object
are for people. The holder stops to believe itself earlier: two thirds of the duration after it *sent* the last renewal
that succeeded. Since a renewal is seen only after it was sent, and a change of hands is refused (409) when the object
changed meanwhile, no two hold it at once.

    sent          written         holder gives up            waiter may take over
      |--------------|------------------|                           |
      |<------- 2/3 of the duration --->|                           |
                     |<-------------- the duration, from when it was seen at the earliest -->|

The clock must go on while a machine sleeps, or a laptop that wakes up would still believe in its Lease.
"""

from __future__ import annotations

import datetime
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import Resource
from swell.errors import Conflict, NotFound, SwellError, Unavailable

logger = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DURATION_S = 15.0  # client-go's own
JOIN_S = 5.0
LABELS = {"swell.dev/lease": "server"}  # by which servers find each other's (`intake.py`)
OWN_ONLY = {"swell.dev/takes-in": "own-namespace"}  # annotation of one whose server takes in no more than that


class NotHeld(Unavailable):
    """Another server acts, or nobody knows which."""


def awake_or_asleep() -> float:
    """Seconds, also those that the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Its threads begin with `start`. The port should be its own, with answers in a third of the duration at most.

    The identity is that of one process at a time: whoever finds its own name in the Lease takes it at once.
    """

    def __init__(
        self,
        port: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        ended: Collection[str] = (),
        duration_s: float = DURATION_S,
        on_held: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = awake_or_asleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._port = port
        self.namespace = namespace
        self._name = name
        self.identity = identity
        self._ended = ended  #: identities whose servers are known to be dead, so that nobody need wait for them
        self._duration_s = duration_s
        self._on_held = on_held
        self._on_lost = on_lost
        self._monotonic = monotonic
        self._now = now
        self._held: Document | None = None  #: as we wrote it last; None: it is not ours
        self._held_until = float("-inf")
        self._seen: Document | None = None  #: another's, as it was seen last; None: there was none
        self._seen_at = 0.0
        self._is_told = False  #: that it is held
        self._telling = threading.Lock()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(act, pause), name=f"lease-{act.__name__}", daemon=True)
            for act, pause in ((self.tick, self._pause_s), (self.look, self._look_s))
        ]
        self.notes: Mapping[str, str] = {}  #: annotations, written whenever it is got
        self.generation = 0  #: grows with each change of hands, also from us to us; 0: it was never held here
        self.trouble: str | None = None  #: why the last try failed; None: it did not

    @property
    def is_held(self) -> bool:
        return self._monotonic() < self._held_until

    def guard(self) -> None:
        """Before every try to write something: raises where another server may be acting."""
        if not self.is_held:
            raise NotHeld(self.explain())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Lets go, so that the next server need not wait."""
        self._closing.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_S)
        self._held_until = float("-inf")  # first: whoever reads the empty Lease acts at once
        if self._held is not None and not self._threads[0].is_alive():
            self._release(self._held)
        self.look()

    # -- what the threads do ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One try to renew it, or to get it."""
        try:
            if self._held is not None and self.is_held:
                self._renew(self._held)
            else:
                self._acquire()
            self.trouble = None
        except (Conflict, AlreadyExists):  # somebody else was faster; the next try looks who
            self._held = None
        except SwellError as error:
            self.trouble = str(error)
            logger.info("the Lease %s: %s", self._name, error)
        self.look()

    def look(self) -> None:
        """Says so where it was got or lost. Needs no answer of the API server, which may be away."""
        with self._telling:
            is_held = self.is_held
            if is_held == self._is_told:
                return
            self._is_told = is_held
            logger.info("the Lease %s in namespace %s is %s", self._name, self.namespace, "ours" if is_held else "lost")
            (self._on_held if is_held else self._on_lost)()

    def _repeat(self, act: Callable[[], None], pause_s: Callable[[], float]) -> None:
        while not self._closing.is_set():
            try:
                act()
            except Exception:  # a thread that ends would lose the Lease without a word
                logger.exception("the Lease failed in a way we did not think of")
            self._closing.wait(pause_s())

    def _pause_s(self) -> float:
        return self._duration_s / (3 if self.is_held and self.trouble is None else 6)

    def _look_s(self) -> float:
        return self._duration_s / 30

    # -- the object ------------------------------------------------------------------------------------------------

    def _renew(self, held: Document) -> None:
        try:
            self._write_renewal(held)
        except (Conflict, NotFound):
            # An answer of ours that was lost, or an annotation of somebody's, takes nothing away.
            found = self._find()
            if found is not None and _terms(found) == _terms(held):
                return self._write_renewal(found)
            self._held, self._held_until = None, float("-inf")
            self._is_free(found)

    def _write_renewal(self, held: Document) -> None:
        sent_at = self._monotonic()
        body = {**held, "spec": {**held["spec"], "renewTime": self._moment()}}
        self._keep(self._port.replace(LEASES, body, self.namespace), sent_at)

    def _acquire(self) -> None:
        self._held = None
        found = self._find()
        if not self._is_free(found):
            return
        sent_at = self._monotonic()
        if found is None:
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": self._metadata({})}
            made = self._port.create(LEASES, {**body, "spec": self._spec(self.generation + 1)}, self.namespace)
        else:
            number = int(found.get("spec", {}).get("leaseTransitions") or 0)
            metadata = self._metadata(found["metadata"])
            body = {**found, "metadata": metadata, "spec": self._spec(max(number, self.generation) + 1)}
            made = self._port.replace(LEASES, body, self.namespace)
        self.generation = made["spec"]["leaseTransitions"]
        self._keep(made, sent_at)

    def _keep(self, made: Document, sent_at: float) -> None:
        self._held, self._seen = made, None
        if not self._closing.is_set():
            self._held_until = sent_at + self._duration_s * 2 / 3

    def _find(self) -> Document | None:
        try:
            return self._port.get(LEASES, self._name, self.namespace)
        except NotFound:
            return None

    def _is_free(self, found: Document | None) -> bool:
        """Notes what it looks like and since when; free where nobody, or we, or somebody long dead is its holder."""
        now = self._monotonic()
        # By version, not by what it says: a wall clock that is set back may write the same time twice.
        if self._seen is None or found is None or _version(found) != _version(self._seen):
            self._seen, self._seen_at = found, now
        spec = (found or {}).get("spec", {})
        if not spec.get("holderIdentity") or spec["holderIdentity"] in (self.identity, *self._ended):
            return True
        return now - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._duration_s)

    def _release(self, held: Document) -> None:
        spec = {**held["spec"], "holderIdentity": "", "renewTime": self._moment()}
        try:
            self._port.replace(LEASES, {**held, "spec": spec}, self.namespace)
        except SwellError as error:  # it runs out by itself
            logger.info("the Lease %s could not be given back: %s", self._name, error)
        self._held = None

    def _spec(self, generation: int) -> Document:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration_s),
            "acquireTime": self._moment(),
            "renewTime": self._moment(),
            "leaseTransitions": generation,
        }

    def _metadata(self, found: Document) -> Document:
        """Without what the server before us noted of itself."""
        others = {name: text for name, text in (found.get("annotations") or {}).items() if name not in OWN_ONLY}
        labels = {**(found.get("labels") or {}), **LABELS}
        return {**found, "name": self._name, "labels": labels, "annotations": {**others, **self.notes}}

    def _moment(self) -> str:
        return f"{self._now():%Y-%m-%dT%H:%M:%S.%fZ}"

    @property
    def holder(self) -> str:
        """Another, as it was seen last; empty: nobody, or we."""
        holder = str((self._seen or {}).get("spec", {}).get("holderIdentity") or "")
        return "" if holder == self.identity else holder

    def explain(self) -> str:
        """Why it is not held."""
        which = f"the Lease {self._name!r} in namespace {self.namespace!r}"
        if holder := self.holder:
            what = f"this server lost {which} to {holder!r}" if self.generation else f"{holder!r} holds {which}"
        elif self.trouble is not None:
            what = f"this server could not {'renew' if self.generation else 'get'} {which}: {self.trouble}"
        else:
            what = f"this server does not have {which} yet"
        return f"{what}; it does nothing until it gets it{' back' if self.generation else ''}"


def _terms(lease: Document) -> tuple[object, object]:
    """Whose it is, and for the how manieth time."""
    spec = lease.get("spec", {})
    return spec.get("holderIdentity"), spec.get("leaseTransitions")


def _version(lease: Document) -> object:
    return lease["metadata"]["resourceVersion"]
