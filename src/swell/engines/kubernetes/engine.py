"""The `kubernetes` engine: what is wanted, what is there, and a thread that makes the one like the other.

Nothing here needs to be durable: the controller says again what is wanted, the watches show what is there.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.carrier import Carrier
from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.follow import follow
from swell.engines.kubernetes.hands import Hands
from swell.engines.kubernetes.jobplaces import JobPlaces
from swell.engines.kubernetes.lastwords import last_reports
from swell.engines.kubernetes.leftovers import KEPT_S, Leftovers
from swell.engines.kubernetes.life import Life, differs, logs_of, make_run
from swell.engines.kubernetes.lives import Lives
from swell.engines.kubernetes.logs import LogKeeper
from swell.engines.kubernetes.objects import ObjectSeen
from swell.engines.kubernetes.offers import Offers
from swell.engines.kubernetes.picture import JOB, RESERVATION, STORE, NodeSeen, PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.reservationpod import IMAGE
from swell.engines.kubernetes.reserving import Reservations
from swell.engines.kubernetes.sight import Sight
from swell.engines.kubernetes.wanted import Seen, Wanted
from swell.engines.logfolder import LogFolder
from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import Launch, Observation, RunSeen, TaskSeen
from swell.model.training import Report

log = logging.getLogger(__name__)
Document = dict[str, Any]

LOGS_S = 10.0  # so long an end waits for the rest of its log
BUSY_S = 1.0
SILENCE_S = 60.0  # a node that is not ready for longer is out of reach


class KubernetesEngine:
    """Thread-safe: the controller's thread asks and is answered, one thread of our own makes the calls."""

    def __init__(
        self,
        port: Port,
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
        self._lives = Lives(store)
        self.cluster = Cluster(port, self._seen)
        reservations = Reservations(
            port,
            self.cluster,
            store=store,
            namespace=namespace,
            image=reservation_image,
            monotonic=monotonic,
        )
        places = places or JobPlaces(namespace)
        hands = Hands(
            port,
            self.cluster,
            manifests,
            store=store,
            places=places,
            is_active=lambda job: self._lives.is_active(job) or not has_ended(job),
            runtime_class=reservations.runtime_class,
        )
        self._cancelled_kept_s = cancelled_kept_s
        self._leftovers = Leftovers(port, self.cluster, store, is_over)
        self._offers = Offers(self.cluster, self._lives, reservations)
        self._sight = Sight(self.cluster, store, places)
        self._carrier = Carrier(
            port,
            self.cluster,
            self._lives,
            self._sight,
            hands,
            reservations,
            self._leftovers,
            logs,
            wake=wake,
            now=now,
            monotonic=monotonic,
        )

    # -- the controller's side (Engine) ----------------------------------------------------------------------------

    def open(self, generation: int) -> None:
        self._carrier.start()

    def close(self) -> None:
        self._carrier.close()
        self.cluster.stop()

    def start(self, launches: tuple[Launch, ...]) -> None:
        wanted = Wanted.of(launches)
        known = self._lives.find(wanted.attempt)
        self._lives.begin(wanted, self._manifests(wanted) if known is None else known.document)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int) -> None:
        self._lives.stop(attempt, grace_s, generation)

    def forget(self, attempt: AttemptId) -> None:
        self._lives.forget(attempt)

    def erase(self, attempt: AttemptId) -> None:
        """Its logs, and what is left of its job in the cluster."""
        self._kept.erase(attempt)
        self._leftovers.add(attempt.job, self._monotonic())
        self._lives.bell.set()

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
        lives, stale = self._lives.take_changed()
        nodes = self._offers.look(seen_nodes, stale)
        tasks: list[TaskSeen] = []
        runs: list[RunSeen] = []
        reports: list[Report] = []
        for life in lives:
            try:
                self._report(life, seen_nodes, tasks, runs, reports)
            except Exception:  # one that cannot be understood must not keep all others from being planned
                log.exception("attempt %s cannot be followed; trying again", life.wanted.attempt)
                self._lives.tell(life)
        silent = {name: seconds for name, seconds in self.silences().items() if seconds > SILENCE_S}
        return Observation(nodes, tuple(tasks), tuple(runs), silent, tuple(reports))

    def _report(
        self,
        life: Life,
        nodes: dict[NodeId, NodeSeen],
        tasks: list[TaskSeen],
        runs: list[RunSeen],
        reports: list[Report],
    ) -> None:
        wanted = life.wanted
        now = life.at_this_moment()
        seen = self._sight.look(now, nodes)
        kind = {"has_object": life.has_object, "is_ours": life.is_ours, "remakes": life.remakes}
        found = follow(wanted, seen, now.memory, self._now(), **kind)
        for task in found.tasks:
            known = life.reported.get(task.index)
            if known is None or (known.ended_at is None) != (task.ended_at is None):
                life.reported[task.index] = task
                tasks.append(task)
                if task.has_run:
                    life.memory.started.setdefault(task.index, task.started_at)
        if not wanted.has_begun and any(task.cause == "" for task in found.tasks):
            self._lives.has_begun(life)
        if found.is_finished and not self._has_all_logs(life, seen, nodes):
            found = replace(found, is_finished=False)
            self._lives.again(life)
        if found.trouble and wanted.has_begun:
            self._lives.tell(life)  # that it is over is seen by time alone
        if life.run is None or differs(life.run, found):
            life.run = found
            runs += [make_run(life.wanted, found, node) for node in wanted.nodes]
            if found.is_finished and not wanted.is_array:
                reports += last_reports(wanted.attempt, seen)

    def _has_all_logs(self, life: Life, seen: Seen, nodes: Mapping[NodeId, NodeSeen]) -> bool:
        """A job that has ended is asked for its log at once; the last of it is on its way."""
        sources = [source for source, has_ended in logs_of(life.wanted.attempt, seen, nodes) if has_ended]
        missing = [source for source in sources if not self._logs.finish(source)]
        if not missing:
            return True
        now = self._monotonic()
        life.finished_at = now if life.finished_at is None else life.finished_at
        return now - life.finished_at > LOGS_S

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
        return self._monotonic() - self._carrier.called_at < BUSY_S

    def has_attempt_of(self, job: int) -> bool:
        return self._lives.is_active(job)

    def pod_of(self, attempt: AttemptId, index: int) -> PodSeen | None:
        """The one that runs a task now; None: there is none."""
        life = self._lives.find(attempt)
        if life is None:
            return None
        return self._sight.look(life.at_this_moment(), self.cluster.nodes()).staying.get(index)

    # -- what has changed, from the reflectors' threads -------------------------------------------------------------

    def _seen(self, pods: Sequence[PodSeen], objects: Iterable[ObjectSeen], nodes: Iterable[NodeId]) -> None:
        found = [(pod.labels, self.cluster.root(pod)) for pod in pods]
        found += [({STORE: one.store, JOB: one.job}, one.uid) for one in objects]
        is_news = self._lives.touched(found, nodes)
        if any(RESERVATION in pod.labels for pod in pods):
            self._lives.bell.set()  # somebody waits for it
        if is_news:
            self._wake()
        self.on_change()
