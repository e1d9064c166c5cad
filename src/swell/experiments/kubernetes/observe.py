"""What does a watch of pods and Jobs say about the gangs of a run?

Pure but for the clock that it is given: changes go in, events of the run come out. Each object is looked at whenever it
changes, so no stage is polled for; stages that are seen for the first time together are told in their order, and all
but the last as heard of late.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.watch.mirror import WatchChange
from swell.engines.kubernetes.watch.observed_objects import INDEX, moment
from swell.experiments.events import EventKind, RunEvent
from swell.experiments.kubernetes.render import GANG_LABEL, RANK_LABEL
from swell.experiments.measure import GangAsked, clock_difference
from swell.experiments.stuck import RunProgress

#: Conditions of a Job, JobSet, PyTorchJob, MPIJob: how it has ended
ENDINGS = {
    **dict.fromkeys(("Complete", "SuccessCriteriaMet", "Completed", "Succeeded"), EventKind.SUCCEEDED),
    "Failed": EventKind.FAILED,
}
PHASES = {"Succeeded": EventKind.SUCCEEDED, "Failed": EventKind.FAILED}


@dataclass(frozen=True, slots=True)
class RankSeen:
    """What is kept of a pod."""

    gang: str
    key: str  #: its rank as text, or its own name where nothing numbers it
    uid: str
    name: str
    node: str  #: empty: not bound
    phase: str
    stamps: Mapping[EventKind, float]  #: by the cluster's clock
    why: str = ""  #: it has no node, or does not start; in Kubernetes' words

    def stages(self) -> list[EventKind]:
        """That it has reached, in order."""
        found = [EventKind.CREATED]
        found += [EventKind.BOUND] if self.node else []
        if self.phase == "Running" or EventKind.RUNNING in self.stamps:
            found.append(EventKind.RUNNING)
        return found + ([PHASES[self.phase]] if self.phase in PHASES else [])


def read_rank(document: Document) -> RankSeen:
    metadata, status = document["metadata"], document.get("status") or {}
    labels = metadata.get("labels") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    placed = conditions.get("PodScheduled") or {}
    return RankSeen(
        labels.get(GANG_LABEL, ""),
        labels.get(RANK_LABEL) or labels.get(INDEX) or metadata["name"],
        metadata["uid"],
        metadata["name"],
        (document.get("spec") or {}).get("nodeName", ""),
        status.get("phase", "Pending"),
        _stamps(metadata["creationTimestamp"], placed, status.get("containerStatuses") or ()),
        str(placed.get("message", "")) if placed.get("status") == "False" else _waiting(status),
    )


def _stamps(created: str, placed: Document, containers: Sequence[Document]) -> dict[EventKind, float]:
    found = {EventKind.CREATED: moment(created)}
    if placed.get("status") == "True" and placed.get("lastTransitionTime"):
        found[EventKind.BOUND] = moment(placed["lastTransitionTime"])
    states = [one.get("state") or {} for one in containers]
    lives = [state.get("running") or state.get("terminated") or {} for state in states]
    started = [moment(one["startedAt"]) for one in lives if one.get("startedAt")]
    ended = [
        moment(one["terminated"]["finishedAt"]) for one in states if (one.get("terminated") or {}).get("finishedAt")
    ]
    if started and len(started) == len(containers):
        found[EventKind.RUNNING] = max(started)
    if ended and len(ended) == len(containers):
        found[EventKind.SUCCEEDED] = found[EventKind.FAILED] = max(ended)
    return found


def _waiting(status: Document) -> str:
    states = [(one.get("state") or {}).get("waiting") or {} for one in status.get("containerStatuses") or ()]
    return next((f"{one['reason']}: {one.get('message', '')}" for one in states if one.get("reason")), "")


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The object of a gang: a Job, or what the template says."""

    gang: str
    end: EventKind | None = None  #: None: it has not ended


def read_job(document: Document) -> JobSeen:
    conditions = (document.get("status") or {}).get("conditions") or ()
    ends = [ENDINGS[one["type"]] for one in conditions if one["status"] == "True" and one["type"] in ENDINGS]
    return JobSeen((document["metadata"].get("labels") or {}).get(GANG_LABEL, ""), ends[0] if ends else None)


@dataclass(frozen=True, slots=True)
class GangPlan:
    """What a scheduler says that it decided for a gang."""

    epoch: float  #: by the cluster's clock
    nodes: tuple[str, ...] = ()  #: empty: it says nothing of nodes
    detail: str = ""


class GangsObserved:
    """All gangs of a run. Changes come from watches' threads; whoever measures asks from its own."""

    def __init__(
        self, gangs: Sequence[GangAsked], began_epoch: float, clock: Callable[[], float], *, has_jobs: bool
    ) -> None:
        self._gangs = {gang.name: gang for gang in gangs}
        self._began_epoch = began_epoch
        self._clock: Callable[[], float] = lambda: round(clock(), 6)  #: seconds since the run began
        self._has_jobs = has_jobs  #: a Job begins a rank again that has failed, and says when it gives up
        self._lock = threading.Lock()
        self._events: list[RunEvent] = []
        self._numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)  #: gang → a rank's key → its number
        self._running: defaultdict[str, dict[int, str]] = defaultdict(dict)  #: gang → rank → name of its pod
        self._ended: defaultdict[str, dict[int, EventKind]] = defaultdict(dict)
        self._whole_since: dict[str, float] = {}
        self._progress = RunProgress(gangs)
        self._why: dict[tuple[str, str], str] = {}  #: gang and pod → why it waits
        self._over: set[str] = set()

    # -- what watches say --------------------------------------------------------------------------------------

    def pods_changed(self, changes: Iterable[WatchChange[RankSeen]]) -> None:
        with self._lock:
            now = self._clock()
            for change in changes:
                self._pod(change, now)

    def jobs_changed(self, changes: Iterable[WatchChange[JobSeen]]) -> None:
        """One that is gone before its gang has ended was taken away; one that has ended begins no rank again."""
        with self._lock:
            now = self._clock()
            for change in changes:
                seen = change.after or change.before
                assert seen is not None
                if seen.gang not in self._gangs or seen.gang in self._over:
                    continue
                if change.after is None:
                    self._add(RunEvent(now, EventKind.DELETED, seen.gang))
                if change.after is not None and seen.end is not None:
                    self._end_all(seen.gang, seen.end, now)
                if change.after is None or seen.end is not None:
                    self._over.add(seen.gang)

    def _end_all(self, gang: str, end: EventKind, now: float) -> None:
        """Ranks that only serve a leader are over with it, and are told to stop; so are those of a Job that failed."""
        for rank in self._running[gang]:
            self._add(RunEvent(now, end, gang, rank, detail="with the whole"))
        self._ended[gang].update(dict.fromkeys(self._running.pop(gang, {}), end))

    def submitted(self, gang: str, at: float) -> None:
        """`at`: when its first object was sent; the API server has it by now."""
        with self._lock:
            self._add(RunEvent(at, EventKind.SUBMITTED, gang))

    def planned(self, plans: Mapping[str, GangPlan]) -> None:
        """Told at the end of a run."""
        with self._lock:
            ahead = clock_difference(self._events)
            for gang, plan in plans.items():
                stamp = plan.epoch - self._began_epoch
                at = max(0.0, stamp - ahead)
                nodes = ", ".join(plan.nodes)
                event = RunEvent(
                    round(at, 6),
                    EventKind.PLANNED,
                    gang,
                    None,
                    nodes,
                    round(stamp, 6),
                    is_late=True,
                    detail=plan.detail,
                )
                self._events.append(event)

    def _pod(self, change: WatchChange[RankSeen], now: float) -> None:
        seen = change.after or change.before
        assert seen is not None
        if seen.gang not in self._gangs:
            return
        numbers = self._numbers[seen.gang]
        rank = numbers.setdefault(seen.key, int(seen.key) if seen.key.isdecimal() else len(numbers))
        before = change.before
        if before is not None and change.after is not None and before.uid != change.after.uid:  # a gap in the watch
            self._gone(before, rank, now)
            before = None
        if change.after is None:
            self._gone(seen, rank, now)
        else:
            self._reached(before, change.after, rank, now)

    def _reached(self, before: RankSeen | None, after: RankSeen, rank: int, now: float) -> None:
        known = [] if before is None else before.stages()
        fresh = [stage for stage in after.stages() if stage not in known]
        if after.gang in self._over and rank in self._ended[after.gang]:
            return
        for stage in fresh:
            stamp = after.stamps.get(stage)
            self._add(
                RunEvent(
                    now,
                    stage,
                    after.gang,
                    rank,
                    after.node if stage is EventKind.BOUND else "",
                    None if stamp is None else round(stamp - self._began_epoch, 6),
                    is_late=stage is not fresh[-1],
                )
            )
        self._why[after.gang, after.name] = after.why
        self._keep(after, rank, now)

    def _keep(self, after: RankSeen, rank: int, now: float) -> None:
        gang, size = after.gang, self._gangs[after.gang].size
        running, ended = self._running[gang], self._ended[gang]
        running.pop(rank, None)
        ended.pop(rank, None)
        if after.phase == "Running":
            running[rank] = after.name
        elif after.phase in PHASES:
            ended[rank] = PHASES[after.phase]
        if len(running) + len(ended) < size:
            self._whole_since.pop(gang, None)
        else:
            self._whole_since.setdefault(gang, now)
        has_failed = EventKind.FAILED in ended.values()
        if len(ended) >= size and not (has_failed and self._has_jobs):
            self._over.add(gang)

    def _gone(self, seen: RankSeen, rank: int, now: float) -> None:
        self._running[seen.gang].pop(rank, None)
        self._why.pop((seen.gang, seen.name), None)
        if seen.phase in PHASES or seen.gang in self._over:  # cleared away
            return
        self._whole_since.pop(seen.gang, None)
        self._add(RunEvent(now, EventKind.RELEASED if seen.node else EventKind.DELETED, seen.gang, rank))

    def _add(self, event: RunEvent) -> None:
        self._events.append(event)
        self._progress.apply(event)

    # -- what is asked -----------------------------------------------------------------------------------------

    def due(self) -> tuple[str, ...]:
        """Pods of simulated ranks whose gang has run for its duration."""
        with self._lock:
            now = self._clock()
            over = [name for name, since in self._whole_since.items() if now - since >= self._gangs[name].duration_s]
            return tuple(pod for gang in over for pod in self._running[gang].values())

    @property
    def left(self) -> int:
        """Gangs that have not ended."""
        with self._lock:
            return len(self._gangs) - len(self._over)

    def is_stuck(self, stuck_s: float) -> bool:
        """Was there no progress for longer than that?"""
        with self._lock:
            return self._progress.is_stuck(self._clock(), stuck_s)

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock()

    def events(self) -> tuple[RunEvent, ...]:
        with self._lock:
            return tuple(self._events)

    def reasons(self) -> dict[str, str]:
        """What Kubernetes says of a rank that waits; by gang."""
        with self._lock:
            return {gang: why for (gang, _), why in self._why.items() if why}


def ended_status(container: str, now: str) -> Document:
    """What the kubelet of a simulated node would say of a program that is over."""
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    one = {"name": container, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    return {"status": {"phase": "Succeeded", "containerStatuses": [one]}}
