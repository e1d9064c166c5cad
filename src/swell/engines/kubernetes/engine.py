"""The `kubernetes` engine: what is wanted, what is there, and a thread that makes the one like the other.

Nothing here needs to be durable: the controller says again what is wanted, the watches show what is there.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from swell.engines import SILENCE_S
from swell.engines.kubernetes.attempt.api_calls import ApiCalls
from swell.engines.kubernetes.attempt.follow import follow
from swell.engines.kubernetes.attempt.leftovers import KEPT_S, Leftovers
from swell.engines.kubernetes.attempt.live_attempt import LiveAttempt, differs, logs_of, make_run
from swell.engines.kubernetes.attempt.live_attempts import LiveAttempts
from swell.engines.kubernetes.attempt.observer import AttemptObserver
from swell.engines.kubernetes.attempt.reconciler import Reconciler
from swell.engines.kubernetes.attempt.termination_message import last_reports
from swell.engines.kubernetes.attempt.wanted import AttemptSeen, Wanted
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.kubernetes.objects.objects import JobPlaces, ObjectSeen
from swell.engines.kubernetes.sharing.reservation_pod import IMAGE
from swell.engines.kubernetes.sharing.reserver import Reservations
from swell.engines.kubernetes.watch.cluster import Cluster, object_roots
from swell.engines.kubernetes.watch.nodes import Offers
from swell.engines.kubernetes.watch.observed_objects import JOB, RESERVATION, NodeSeen, PodSeen
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.engines.logfolder import LogFolder
from swell.model.assignment import Assignment
from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import Observation, RunSeen, TaskSeen
from swell.model.shared_volume import claim_of
from swell.model.training import Report

log = logging.getLogger(__name__)

LOGS_S = 10.0  # so long an end waits for the rest of its log
BUSY_S = 1.0


class KubernetesEngine:
    """Thread-safe: the controller's thread asks and is answered, one thread of our own makes the calls."""

    def __init__(
        self,
        port: ApiClient,
        manifests: Callable[[Wanted], Document],
        logs: LogKeeper,
        kept: LogFolder,
        *,
        store: str,
        namespace: str,
        wake: Callable[[], None],
        places: JobPlaces | None = None,
        reservation_image: str = IMAGE,
        cancelled_kept_s: float = KEPT_S,
        is_over: Callable[[int], bool] = lambda _: False,
        has_ended: Callable[[int], bool] = lambda _: True,
        where: Callable[[int], frozenset[str] | None] = lambda _: None,
        of_jobs: Callable[[], frozenset[str]] = frozenset,
        on_behalf: Callable[[Wanted], Headers] = lambda _: (),
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manifests = manifests
        self._wake = wake  #: the controller should look
        self._now = now
        self._monotonic = monotonic
        self._logs = logs
        self._kept = kept
        self.on_change: Callable[[], None] = lambda: None  #: somebody else may want to look
        places = self._places = places or JobPlaces(namespace)
        self._live_attempts = LiveAttempts(store, places)
        self.cluster = Cluster(port, self._seen)
        reservations = Reservations(
            port,
            self.cluster,
            store=store,
            namespace=namespace,
            image=reservation_image,
            monotonic=monotonic,
            where=where,
        )
        api_calls = ApiCalls(
            port,
            self.cluster,
            manifests,
            store=store,
            places=places,
            is_active=lambda job: self._live_attempts.is_active(job) or not has_ended(job),
            runtime_class=reservations.runtime_class,
            on_behalf=on_behalf,
            monotonic=monotonic,
        )
        self._cancelled_kept_s = cancelled_kept_s
        self._leftovers = Leftovers(port, self.cluster, store, is_over, where, has_ended, of_jobs)
        self._offers = Offers(self.cluster, self._live_attempts, reservations)
        self._observer = AttemptObserver(self.cluster, store, places)
        self._reconciler = Reconciler(
            port,
            self.cluster,
            self._live_attempts,
            self._observer,
            api_calls,
            reservations,
            self._leftovers,
            logs,
            wake=wake,
            now=now,
            monotonic=monotonic,
        )

    # -- the controller's side (Engine) ----------------------------------------------------------------------------

    def open(self, generation: int) -> None:
        self._reconciler.start()

    def close(self) -> None:
        self._reconciler.close()
        self.cluster.stop()

    def start(self, assignment: Assignment) -> None:
        wanted = Wanted.of(assignment)
        known = self._live_attempts.find(wanted.attempt)
        self._live_attempts.begin(wanted, self._manifests(wanted) if known is None else known.document)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        self._live_attempts.stop(attempt, grace_s, generation, evicts=evicts)

    def forget(self, attempt: AttemptId) -> None:
        live = self._live_attempts.find(attempt)
        claim = "" if live is None else claim_of(live.document["metadata"])
        if live is not None and claim and live.origin.is_ours:
            self._leftovers.add_claim(attempt.job, self._monotonic(), self._places.namespace(live.document), claim)
            self._live_attempts.bell.set()
        self._live_attempts.forget(attempt)

    def erase(self, attempt: AttemptId) -> None:
        """Its logs, and what is left of its job in the cluster."""
        self._kept.erase(attempt)
        self._leftovers.add(attempt.job, self._monotonic())
        self._live_attempts.bell.set()

    def discard(self, job: int) -> None:
        self._leftovers.add(job, self._monotonic() + self._cancelled_kept_s)

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        return self._kept.size(attempt, index)

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return self._kept.read(attempt, index, offset, limit)

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        return self._kept.offset_at(attempt, index, moment)

    def observe(self) -> Observation:
        seen_nodes = self.cluster.nodes()
        live_attempts, stale = self._live_attempts.take_changed()
        tasks: list[TaskSeen] = []
        runs: list[RunSeen] = []
        reports: list[Report] = []
        for live in live_attempts:
            try:
                self._report(live, seen_nodes, tasks, runs, reports)
            except Exception:  # one that cannot be understood must not keep all others from being planned
                log.exception("attempt %s cannot be followed; trying again", live.wanted.attempt)
                self._live_attempts.tell(live)
        emptied = {live.wanted.attempt: tuple(sorted(live.wanted.emptied)) for live in live_attempts}
        nodes = self._offers.look(seen_nodes, {*stale, *self._live_attempts.take_stale()})
        silent = {name: seconds for name, seconds in self.silences().items() if seconds > SILENCE_S}
        return Observation(nodes, tuple(tasks), tuple(runs), silent, tuple(reports), emptied)

    def _report(
        self,
        live: LiveAttempt,
        nodes: dict[NodeId, NodeSeen],
        tasks: list[TaskSeen],
        runs: list[RunSeen],
        reports: list[Report],
    ) -> None:
        wanted = live.wanted
        now = live.at_this_moment()
        seen = self._observer.look(now, nodes)
        found = follow(wanted, seen, now.memory, self._now(), live.origin)
        for task in found.tasks:
            known = live.reported.get(task.index)
            if known is None or (known.ended_at is None) != (task.ended_at is None):
                live.reported[task.index] = task
                tasks.append(task)
                if task.has_run:
                    live.memory.started.setdefault(task.index, task.started_at)
        if not wanted.has_begun and any(task.cause == "" for task in found.tasks):
            self._live_attempts.has_begun(live)
        if not found.emptied <= wanted.emptied:
            self._live_attempts.have_ended(live, found.emptied)
        if found.is_finished and not self._has_all_logs(live, seen, nodes):
            found = replace(found, is_finished=False)
            self._live_attempts.again(live)
        if found.trouble and wanted.has_begun:
            self._live_attempts.tell(live)  # that it is over is seen by time alone
        if live.run is None or differs(live.run, found):
            live.run = found
            runs += [make_run(live.wanted, found, node) for node in wanted.nodes]
            if found.is_finished and not wanted.is_array:
                reports += last_reports(wanted.attempt, seen)

    def _has_all_logs(self, live: LiveAttempt, seen: AttemptSeen, nodes: Mapping[NodeId, NodeSeen]) -> bool:
        """A job that has ended is asked for its log at once; the last of it is on its way."""
        sources = [source for source, has_ended in logs_of(live.wanted.attempt, seen, nodes) if has_ended]
        missing = [source for source in sources if not self._logs.finish(source)]
        if not missing:
            return True
        now = self._monotonic()
        live.finished_at = now if live.finished_at is None else live.finished_at
        return now - live.finished_at > LOGS_S

    def silences(self) -> dict[NodeId, float]:
        """How long each node has not been ready."""
        now = self._now()
        ages = {name: node.not_ready_since for name, node in self.cluster.nodes().items()}
        return {name: 0.0 if since is None else max(0.0, now - since) for name, since in ages.items()}

    def gpu_utilizations(self) -> dict[NodeId, float]:
        """The cluster's own monitoring has them."""
        return {}

    def unreadable_objects(self) -> dict[str, int]:
        """By kind; each kind that is followed is there, so that a rate has a zero to begin at."""
        found = Counter(one.kind for one in self.cluster.unreadable())
        return {kind: found[kind] for kind in {"Node", *self.cluster.resources, *found}}

    @property
    def is_busy(self) -> bool:
        """Were calls made just now? Whoever is in no hurry waits."""
        return self._monotonic() - self._reconciler.called_at < BUSY_S

    def has_attempt_of(self, job: int) -> bool:
        return self._live_attempts.is_active(job)

    def pod_of(self, attempt: AttemptId, index: int) -> PodSeen | None:
        """The one that runs a task now; None: there is none."""
        live = self._live_attempts.find(attempt)
        if live is None:
            return None
        return self._observer.look(live.at_this_moment(), self.cluster.nodes()).staying.get(index)

    # -- what has changed, from the reflectors' threads -------------------------------------------------------------

    def _seen(self, pods: Sequence[PodSeen], objects: Iterable[ObjectSeen], nodes: Iterable[NodeId]) -> None:
        found = [(pod.labels, root) for pod in pods for root in self.cluster.roots(pod)]
        found += [({STORE: one.store, JOB: one.job}, root) for one in objects for root in object_roots(one)]
        is_news = self._live_attempts.touched(found, nodes)
        if any(RESERVATION in pod.labels for pod in pods):
            self._live_attempts.bell.set()  # somebody waits for it
        if is_news:
            self._wake()
        self.on_change()
