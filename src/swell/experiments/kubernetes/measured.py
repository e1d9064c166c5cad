"""One run on a cluster: gangs are submitted when it is their turn, and watched until all have ended or it is stuck.

Nothing is polled: stages of ranks come from watches. On simulated nodes a gang's program is played: it begins when its
last rank runs and ends so many seconds later, when the status of its pods says so; whoever takes a rank away meanwhile
makes the others wait again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.engines.kubernetes.watch.reflector import Reflector
from swell.errors import NotFound, SwellError, Unavailable
from swell.experiments.events import RunEvent
from swell.experiments.experiment import Experiment
from swell.experiments.figures import Capacity, RunEnd, RunFacts
from swell.experiments.kubernetes.contender import ClusterContender
from swell.experiments.kubernetes.nodes import UsableNode, capacity_of
from swell.experiments.kubernetes.observe import GangsObserved, ended_status, read_job, read_rank
from swell.experiments.kubernetes.programs import Usage
from swell.experiments.kubernetes.render import GANG_LABEL, GangObject, GangRendering
from swell.experiments.measure import GangAsked
from swell.experiments.stuck import describe_waiting

LOOK_S = 0.05
SYNC_S_MAX = 60.0
WARM_S_MAX = 60.0
WARM_UP = GangAsked("warm-up", 1, cpus_milli=1, memory_mib=1, duration_s=0.1)
Progress = Callable[[int, int], None]


def measure(
    client: ApiClient,
    contender: ClusterContender,
    gangs: Sequence[GangAsked],
    repeat: int,
    experiment: Experiment,
    nodes: Sequence[UsableNode],
    progress: Progress,
) -> tuple[RunFacts, tuple[RunEvent, ...]]:
    run = _Run(client, contender, experiment, is_simulated=all(node.is_simulated for node in nodes))
    try:
        run.warm_up()
        return run.measure(gangs, repeat, capacity_of(nodes), progress)
    finally:
        run.close()


class _Run:
    def __init__(
        self, client: ApiClient, contender: ClusterContender, experiment: Experiment, *, is_simulated: bool
    ) -> None:
        self._client = client
        self._contender = contender
        self._experiment = experiment
        self._namespace = experiment.cluster.namespace
        self._is_simulated = is_simulated
        self._rendering = GangRendering(experiment.workload, contender.wanted, is_simulated, self._namespace)
        self._object = _object_of(client, self._rendering)
        self._told: set[str] = set()
        #: of its own: who submits keeps all connections busy for as long as that takes
        self._submits = ApiClient(client.access, agent="swell-experiment")

    def close(self) -> None:
        self._submits.close()

    def warm_up(self) -> None:
        """One pod that nobody counts: does this contender bind anything, and are everybody's caches filled?"""
        if self._experiment.workload.template:
            return
        with self._watched((WARM_UP,)) as seen:
            submitting = _Submitting(self._submits, self._rendering, (WARM_UP,), seen)
            submitting.start()
            try:
                self._wait(seen, submitting, WARM_S_MAX, WARM_S_MAX, lambda *_: None)
            finally:
                submitting.stop()
            if seen.left:
                reasons = {**seen.reasons(), **self._contender.reasons()}
                raise Unavailable(
                    f"contender {self._contender.wanted.name} did not run a single pod within {WARM_S_MAX:.0f} s: "
                    f"{reasons.get(WARM_UP.name) or 'nobody says why; is its schedulerName right?'}"
                )

    def measure(
        self, gangs: Sequence[GangAsked], repeat: int, capacity: Capacity, progress: Progress
    ) -> tuple[RunFacts, tuple[RunEvent, ...]]:
        before = self._contender.usage()
        with self._watched(gangs) as seen:
            submitting = _Submitting(self._submits, self._rendering, gangs, seen)
            submitting.start()
            try:
                end = self._wait(seen, submitting, self._experiment.stuck_s, self._experiment.longest_s, progress)
            finally:
                submitting.stop()
            watched_s = seen.now()
            used = self._contender.usage()
            seen.planned({name: plan for name, plan in self._contender.plans().items() if name != WARM_UP.name})
            reasons = {**seen.reasons(), **self._contender.reasons()} if seen.left else {}
        events = tuple(sorted(seen.events(), key=lambda event: event.at))
        detail = describe_waiting(gangs, events, reasons) if end is not RunEnd.COMPLETE else ""
        cost = None if before is None or used is None else used.since(before)
        return _facts(self._contender.wanted.name, repeat, end, watched_s, gangs, capacity, detail, cost), events

    @contextmanager
    def _watched(self, gangs: Sequence[GangAsked]) -> Iterator[GangsObserved]:
        """From before the first submission until the end of the run."""
        began = time.monotonic()
        seen = GangsObserved(gangs, time.time(), lambda: time.monotonic() - began, has_jobs=self._object is not None)
        pods = Reflector(self._client, Selection(PODS, self._namespace), read_rank, seen.pods_changed)
        watches: list[Reflector[Any]] = [pods]
        if self._object is not None:
            selection = Selection(self._object, self._namespace, labels=GANG_LABEL)
            watches.append(Reflector(self._client, selection, read_job, seen.jobs_changed))
        try:
            for watch in watches:
                watch.start()
            if not all(watch.wait_until_synced(SYNC_S_MAX) for watch in watches):
                raise Unavailable(f"pods of namespace {self._namespace} cannot be watched: {watches[0].trouble}")
            yield seen
        finally:
            for watch in watches:
                watch.stop()

    def _wait(
        self, seen: GangsObserved, submitting: _Submitting, stuck_s: float, longest_s: float, progress: Progress
    ) -> RunEnd:
        total = seen.left
        while seen.left:
            submitting.refuse_failure()
            trouble = self._contender.trouble()
            if trouble:
                raise Unavailable(trouble)
            if self._is_simulated:
                self._play(seen)
            progress(total - seen.left, total)
            now = seen.now()
            if now > longest_s:
                return RunEnd.OUT_OF_TIME
            if submitting.is_done and seen.is_stuck(stuck_s):
                return RunEnd.STUCK
            time.sleep(LOOK_S)
        progress(total, total)
        return RunEnd.COMPLETE

    def _play(self, seen: GangsObserved) -> None:
        over = [name for name in seen.due() if name not in self._told]
        self._told.update(over)
        status = ended_status("main", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        calls = [partial(self._client.patch, PODS, name, status, self._namespace, "status") for name in over]
        for name, answer in zip(over, self._client.gather(calls), strict=True):
            if isinstance(answer, SwellError) and not isinstance(answer, NotFound):
                self._told.discard(name)  # it is told again


def _object_of(client: ApiClient, rendering: GangRendering) -> Resource | None:
    """As what a gang is one object; None: it is plain pods."""
    for one in rendering.objects(WARM_UP):
        kind = one.document["kind"]
        if GANG_LABEL in (one.document["metadata"].get("labels") or {}) and kind != "Pod":
            return one.resource or client.resource(one.document["apiVersion"], kind)
    return None


class _Submitting:
    """Creates gangs when it is their turn, beside the loop that watches them."""

    def __init__(
        self, client: ApiClient, rendering: GangRendering, gangs: Sequence[GangAsked], seen: GangsObserved
    ) -> None:
        self._client = client
        self._rendering = rendering
        self._gangs = gangs
        self._seen = seen
        self._is_stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="submit-gangs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def refuse_failure(self) -> None:
        if self._failure is not None:
            raise Unavailable(f"a gang cannot be submitted: {self._failure}") from self._failure

    def _run(self) -> None:
        try:
            for at, together in groupby(self._gangs, key=lambda gang: gang.submit_s):
                self._is_stopped.wait(max(0.0, at - self._seen.now()))
                answers = self._client.gather([partial(self._submit, gang) for gang in together])
                self._failure = next((one for one in answers if isinstance(one, Exception)), None)
                if self._is_stopped.is_set() or self._failure is not None:
                    return
        except Exception as error:  # noqa: BLE001  told to whoever waits
            self._failure = error

    def _submit(self, gang: GangAsked) -> None:
        """Its objects one after the other, as a controller makes them; it is submitted with its first pods."""
        at = self._seen.now()
        for number, one in enumerate(self._rendering.objects(gang)):
            if self._is_stopped.is_set():
                return
            self._create(one)
            if number == 0:
                self._seen.submitted(gang.name, at)

    def _create(self, one: GangObject) -> None:
        document = one.document
        resource = one.resource or self._client.resource(document["apiVersion"], document["kind"])
        self._client.create(resource, document, self._rendering.namespace)


def _facts(
    contender: str,
    repeat: int,
    end: RunEnd,
    watched_s: float,
    gangs: Sequence[GangAsked],
    capacity: Capacity,
    detail: str,
    cost: Usage | None,
) -> RunFacts:
    return RunFacts(
        contender,
        repeat,
        end,
        round(watched_s, 6),
        tuple(gangs),
        capacity,
        detail,
        None if cost is None else round(cost.cpu_s, 2),
        None if cost is None else round(cost.memory_mib, 1),
    )
