"""What is known of an attempt, and how is a task of it told?"""

from __future__ import annotations

from dataclasses import dataclass

from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.steps import is_replacement
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.sharing.reservations import refusal
from swell.engines.kubernetes.watch.observed_objects import Ended, PodSeen
from swell.model.launch import CAUSE_EVICTED, CAUSE_MEMORY, CAUSE_STOPPED, CAUSE_TIME_LIMIT, TaskSeen

RECOVERED_S = 600.0  # a container that has run for so long is well again; a kubelet's own back-off ends then, too
DEADLINES = ("DeadlineExceeded",)
BY_REQUEST = "at somebody's request, as kubectl drain does"


@dataclass(frozen=True, slots=True)
class Followed:
    tasks: tuple[TaskSeen, ...] = ()
    is_finished: bool = False  #: nothing of it is left that runs, and nothing will begin
    trouble: str = ""
    in_use: tuple[int, ...] = ()  #: lanes
    left: int = 0  #: indices of an array that have not begun
    suspended: str = ""  #: its object, where somebody else has suspended it
    emptied: frozenset[int] = frozenset()  #: of a gang: ranks that have succeeded, and need no room any more


@dataclass(frozen=True, slots=True)
class AttemptState:
    """All that is known of an attempt at one moment."""

    wanted: Wanted
    seen: AttemptSeen
    memory: AttemptMemory
    now: float
    origin: Origin

    @property
    def alive(self) -> list[PodSeen]:
        """Of those that came as plain pods, only what is bound: the others are their users'."""
        pods = self.seen.alive
        if self.origin.has_object or self.origin.is_ours:
            return pods
        return [pod for pod in pods if pod.node or pod.uid in self.memory.bound or is_replacement(pod)]

    @property
    def is_deleted(self) -> bool:
        """One of ours that has not run may not be there yet; somebody else's was there before we knew of it."""
        was_there = self.wanted.has_begun or not self.origin.is_ours
        return self.seen.object is None and was_there and not self.wanted.is_stopping

    @property
    def is_swept(self) -> bool:
        """Does it go with its namespace? What its pods and its object say of their end is no verdict then."""
        found = self.seen.object
        has_succeeded = found is not None and found.verdict is not None and found.verdict.is_success
        return bool(self.seen.ending) and not (has_succeeded or self.wanted.is_stopping)

    @property
    def swept(self) -> str:
        return f"namespace {self.seen.ending}"

    @property
    def suspended(self) -> str:
        """Also before it was seen to run. That it was us, or that we have not resumed it yet, is written on it."""
        attempt, found = self.wanted.attempt, self.seen.object
        if found is None or not found.is_suspended or found.attempt != attempt or found.suspended_in == attempt:
            return ""
        is_over = found.is_deleting or found.verdict is not None
        return "" if is_over else f"{found.kind} {found.namespace}/{found.name}"

    @property
    def may_make_pods(self) -> bool:
        found = self.seen.object
        if not self.origin.has_object:
            return False
        return found is not None and not (found.is_suspended or found.verdict or found.is_deleting)

    @property
    def is_of_another(self) -> bool:
        """What the pods of an earlier attempt have done is told already; nothing of this one has begun."""
        return self.seen.object is not None and self.seen.object.attempt != self.wanted.attempt

    @property
    def trouble(self) -> str:
        """Why it does not start, or does not go on, in words; empty: it does, or nothing is known."""
        wanted, seen = self.wanted, self.seen
        if wanted.is_stopping:
            return self.memory.problem if wanted.evicts else ""
        if self.memory.problem:
            return self.memory.problem
        if self.memory.held:
            return self.memory.held
        if self.memory.refused:
            return self.memory.refused
        for _, pod in seen.pods:
            if keeps := _keeps_ending(pod, self.now):
                return keeps
            if pod.waiting and not pod.has_ended:
                return f"pod {pod.name}: {pod.waiting}{refusal(pod, pod.waiting)}"
        return ""

    def newest(self, rank: int) -> PodSeen | None:
        """Of this attempt, where we make its pods ourselves; one that ends counts as long as there is no other."""
        is_any = self.origin.has_object or not self.origin.is_ours
        own = (None, self.wanted.attempt)
        pods = [pod for number, pod in self.seen.pods if number == rank and (is_any or pod.attempt in own)]
        alive = [pod for pod in pods if not pod.is_deleting]
        return alive[-1] if alive else pods[-1] if pods else None

    def task(self, rank: int, pod: PodSeen | None, *, lane: int | None = None) -> TaskSeen:
        """`lane`: of an array; None: a gang's ranks are their lanes."""
        lane = rank if lane is None else lane
        place = self.wanted.places.get(lane) or self.wanted.draining.get(lane)
        node = pod.node if pod is not None and pod.node else place.node if place is not None else self.wanted.nodes[0]
        seen_at = None if pod is None else pod.started_at
        started_at = self.memory.started.get(rank, self.now) if seen_at is None else seen_at
        return TaskSeen(self.wanted.attempt, rank, node, lane, started_at)

    def end(
        self,
        rank: int,
        pod: PodSeen | None,
        cause: str,
        problem: str = "",
        *,
        code: int | None = None,
        lane: int | None = None,
    ) -> TaskSeen:
        task = self.task(rank, pod, lane=lane)
        at = self.now if pod is None or pod.ended is None or not pod.ended.at else pod.ended.at
        return with_end(task, max(at, task.started_at), code, cause, problem)

    def pod_end(self, rank: int, pod: PodSeen, *, lane: int | None = None) -> TaskSeen:
        assert pod.ended is not None
        cause, problem = self._cause(pod, pod.ended)
        return self.end(rank, pod, cause, problem, code=pod.ended.exit_code, lane=lane)

    def _cause(self, pod: PodSeen, end: Ended) -> tuple[str, str]:
        """And what is said of it."""
        if pod.is_evicted:
            return CAUSE_EVICTED, end.message or BY_REQUEST
        if end.reason == "OOMKilled":
            return CAUSE_MEMORY, end.message
        if end.reason in DEADLINES:
            return CAUSE_TIME_LIMIT, end.message
        return (CAUSE_STOPPED if self.wanted.is_stopping and end.exit_code != 0 else ""), ""


def with_end(task: TaskSeen, at: float, code: int | None, cause: str, problem: str = "") -> TaskSeen:
    return TaskSeen(task.attempt, task.index, task.node, task.lane, task.started_at, at, code, cause, problem)


def _keeps_ending(pod: PodSeen, now: float) -> str:
    """Its kubelet begins it again and again, which looks like a pod that runs; empty: it does not."""
    again = pod.restarted
    if again is None or pod.has_ended or pod.started_at is None:
        return ""
    runs_again = again.runs_since is not None and (again.times == 1 or now - again.runs_since > RECOVERED_S)
    if runs_again:
        return ""
    times = "once" if again.times == 1 else f"{again.times} times"
    word = "" if again.reason in ("", "Error", "Completed") else f" ({again.reason})"
    return f"pod {pod.name} keeps ending: begun again {times}, the last time after exit code {again.exit_code}{word}"
