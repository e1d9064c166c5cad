"""What has become of an attempt's tasks, given its object and its pods?

An object's own controller restarts what fails, so a pod that ended is no verdict: the object's is. Only of pods that
have no object is every end final.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from swell.engines.kubernetes.objects import Verdict
from swell.engines.kubernetes.picture import PodSeen
from swell.engines.kubernetes.reservations import refusal
from swell.engines.kubernetes.steps import lanes_in_use
from swell.engines.kubernetes.wanted import Memory, Seen, Wanted
from swell.model.launch import (
    CAUSE_DELETED,
    CAUSE_EVICTED,
    CAUSE_IMAGE,
    CAUSE_MEMORY,
    CAUSE_NODE_LOST,
    CAUSE_NOT_PLACED,
    CAUSE_POD_LOST,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
    TaskSeen,
)
from swell.model.quantity import IndexSet

#: A container's waiting reason → it will not get better by waiting
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
IMAGE_TROUBLE = (*HOPELESS, "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
IMAGE_S = 600.0  # a registry may be away for a while; room is not held for longer than that
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


@dataclass(frozen=True, slots=True)
class _Sheet:
    wanted: Wanted
    seen: Seen
    memory: Memory
    now: float
    has_object: bool
    is_ours: bool
    remakes: bool

    @property
    def alive(self) -> list[PodSeen]:
        """Of those that came as plain pods, only what is bound: the others are their users'."""
        pods = self.seen.alive
        if self.has_object or self.is_ours:
            return pods
        return [pod for pod in pods if pod.node or pod.uid in self.memory.bound]

    def task(self, rank: int, pod: PodSeen | None, *, lane: int | None = None) -> TaskSeen:
        place = self.wanted.places.get(rank)
        node = pod.node if pod is not None and pod.node else place.node if place is not None else self.wanted.nodes[0]
        seen_at = None if pod is None else pod.started_at
        started_at = self.memory.started.get(rank, self.now) if seen_at is None else seen_at
        return TaskSeen(self.wanted.attempt, rank, node, rank if lane is None else lane, started_at)

    def end(
        self, rank: int, pod: PodSeen | None, cause: str, problem: str = "", *, code: int | None = None
    ) -> TaskSeen:
        task = self.task(rank, pod)
        at = self.now if pod is None or pod.ended is None or not pod.ended.at else pod.ended.at
        return _ended(task, max(at, task.started_at), code, cause, problem)


def _ended(task: TaskSeen, at: float, code: int | None, cause: str, problem: str = "") -> TaskSeen:
    return TaskSeen(task.attempt, task.index, task.node, task.lane, task.started_at, at, code, cause, problem)


def follow(
    wanted: Wanted,
    seen: Seen,
    memory: Memory,
    now: float,
    *,
    has_object: bool,
    is_ours: bool = True,
    remakes: bool = False,
) -> Followed:
    """`has_object`: its pods are made by an object's controller. `is_ours`: by us, or at our word.

    `remakes`: they came as plain pods, and we make again those that an earlier attempt took away.
    """
    sheet = _Sheet(wanted, seen, memory, now, has_object, is_ours, remakes)
    if wanted.is_array:
        return _follow_array(sheet)
    tasks = tuple(_gang(sheet))
    ended = {task.index for task in tasks if task.ended_at is not None}
    is_over = wanted.is_stopping or ended.issuperset(wanted.places)
    is_still = not sheet.alive and not _may_make_pods(sheet)
    if wanted.is_stopping and is_still:
        tasks = (*tasks, *(_left_behind(sheet, rank) for rank in sorted(set(wanted.places) - ended)))
    return Followed(tasks, is_over and is_still, _trouble(sheet), suspended=_suspended(sheet))


def _is_deleted(sheet: _Sheet) -> bool:
    """One of ours that has not run may not be there yet; somebody else's was there before we knew of it."""
    was_there = sheet.wanted.has_begun or not sheet.is_ours
    return sheet.seen.object is None and was_there and not sheet.wanted.is_stopping


def _suspended(sheet: _Sheet) -> str:
    """Before it has run it may be us who have not resumed it yet."""
    wanted, found = sheet.wanted, sheet.seen.object
    if found is None or wanted.is_stopping or not wanted.has_begun or found.attempt != wanted.attempt:
        return ""
    is_over = found.is_deleting or found.verdict is not None
    return f"{found.kind} {found.namespace}/{found.name}" if found.is_suspended and not is_over else ""


def _may_make_pods(sheet: _Sheet) -> bool:
    found = sheet.seen.object
    if not sheet.has_object:
        return False
    return found is not None and not (found.is_suspended or found.verdict or found.is_deleting)


def _left_behind(sheet: _Sheet, rank: int) -> TaskSeen:
    """We stopped it; whatever code it left with is no verdict."""
    pods = [pod for number, pod in sheet.seen.pods if number == rank and pod.ended is not None]
    code = pods[-1].ended.exit_code if pods and pods[-1].ended is not None else None
    return sheet.end(rank, pods[-1] if pods else None, CAUSE_STOPPED, code=code)


# -- gangs -----------------------------------------------------------------------------------------------------


def _gang(sheet: _Sheet) -> Iterator[TaskSeen]:
    wanted, seen, memory = sheet.wanted, sheet.seen, sheet.memory
    found = seen.object
    if found is not None and found.attempt == wanted.attempt and found.verdict is not None:
        yield from _judged(sheet, found.verdict)
        return
    if memory.is_overdue:
        first = min(wanted.places)
        yield sheet.end(
            first, _newest(seen, first, wanted, is_any=sheet.has_object or not sheet.is_ours), CAUSE_TIME_LIMIT
        )
        return
    if memory.unplaced:
        yield sheet.end(_first_unplaced(sheet), None, CAUSE_NOT_PLACED, memory.unplaced)
        return
    if sheet.has_object and _is_deleted(sheet):
        yield from (sheet.end(rank, None, CAUSE_DELETED, memory.kind) for rank in sorted(wanted.places))
        return
    if _is_of_another(sheet):
        return
    for rank in sorted(wanted.places):
        pod = _newest(seen, rank, wanted, is_any=sheet.has_object or not sheet.is_ours)
        task = _member(sheet, rank, pod)
        if task is not None:
            yield task


def _first_unplaced(sheet: _Sheet) -> int:
    """Others may have run, and ended, before it was given up."""
    ranks = sorted(sheet.wanted.places)
    placed = {rank for rank, pod in sheet.seen.staying.items() if pod.node}
    return next((rank for rank in ranks if rank not in placed), ranks[0])


def _is_of_another(sheet: _Sheet) -> bool:
    """What the pods of an earlier attempt have done is told already; nothing of this one has begun."""
    return sheet.seen.object is not None and sheet.seen.object.attempt != sheet.wanted.attempt


def _newest(seen: Seen, rank: int, wanted: Wanted, *, is_any: bool) -> PodSeen | None:
    """Of this attempt, or of any; one that ends counts as long as there is no other."""
    pods = [pod for number, pod in seen.pods if number == rank and (is_any or pod.attempt in (None, wanted.attempt))]
    alive = [pod for pod in pods if not pod.is_deleting]
    return alive[-1] if alive else pods[-1] if pods else None


def _member(sheet: _Sheet, rank: int, pod: PodSeen | None) -> TaskSeen | None:
    wanted = sheet.wanted
    if pod is None:
        return _gone(sheet, rank)
    if not pod.node and wanted.places[rank].node not in sheet.seen.present and not wanted.is_stopping:
        cause = CAUSE_NODE_LOST if wanted.has_begun else CAUSE_NOT_PLACED
        return sheet.end(rank, pod, cause, _lost_node(wanted.places[rank].node))
    if pod.ended is not None:
        said = f"{pod.ended.reason}: {pod.ended.message}"
        if refused := refusal(pod, said):
            return sheet.end(rank, pod, CAUSE_NOT_PLACED, f"{said}{refused}")
        if not pod.ended.has_run and not pod.is_disrupted and pod.ended.reason != "Evicted" and pod.phase == "Failed":
            return sheet.end(rank, pod, CAUSE_NOT_PLACED, said)
        if sheet.has_object:
            return sheet.task(rank, pod) if pod.ended.has_run else None  # its controller decides what follows
        end = _pod_end(sheet, rank, pod)
        is_taken = pod.is_deleting and end.cause == "" and end.exit_code != 0
        return _taken_away(sheet, rank, pod) if is_taken else end
    if pod.started_at is not None:
        return sheet.task(rank, pod)
    is_late = sheet.now - pod.created_at > IMAGE_S and pod.waiting.startswith(IMAGE_TROUBLE)
    if is_late or pod.waiting.startswith(HOPELESS):
        return sheet.end(rank, pod, CAUSE_IMAGE, pod.waiting)
    return None


def _gone(sheet: _Sheet, rank: int) -> TaskSeen | None:
    """Of a pod that came by kubectl there will be no other, unless it was us who took it away."""
    if sheet.has_object or sheet.wanted.is_stopping:
        return None
    is_lost = rank in sheet.memory.met or sheet.wanted.has_begun
    if not sheet.is_ours:
        return sheet.end(rank, None, CAUSE_DELETED, "Pod") if is_lost or not sheet.remakes else None
    return sheet.end(rank, None, *_who_took(sheet, rank)) if is_lost else None


def _taken_away(sheet: _Sheet, rank: int, pod: PodSeen) -> TaskSeen:
    """Somebody deletes it: the code is that of being killed, and no failure of its own."""
    cause, problem = _who_took(sheet, rank) if sheet.is_ours else (CAUSE_DELETED, "Pod")
    return sheet.end(rank, pod, cause, problem)


def _who_took(sheet: _Sheet, rank: int) -> tuple[str, str]:
    """A pod of ours: pods go with their node, and from one that is there somebody has deleted it."""
    node = sheet.wanted.places[rank].node
    if node in sheet.seen.present:
        return CAUSE_POD_LOST, "somebody has deleted its pod"
    return CAUSE_NODE_LOST, _lost_node(node)


def _lost_node(node: str) -> str:
    return f"node {node} is gone, or not ready"


def _pod_end(sheet: _Sheet, rank: int, pod: PodSeen) -> TaskSeen:
    end = pod.ended
    assert end is not None
    if pod.is_disrupted or end.reason == "Evicted":
        return sheet.end(rank, pod, CAUSE_EVICTED, end.message or BY_REQUEST, code=end.exit_code)
    if end.reason == "OOMKilled":
        return sheet.end(rank, pod, CAUSE_MEMORY, end.message, code=end.exit_code)
    if end.reason in DEADLINES:
        return sheet.end(rank, pod, CAUSE_TIME_LIMIT, end.message, code=end.exit_code)
    if sheet.wanted.is_stopping:
        return sheet.end(rank, pod, "" if end.exit_code == 0 else CAUSE_STOPPED, code=end.exit_code)
    return sheet.end(rank, pod, "", code=end.exit_code)


def _judged(sheet: _Sheet, verdict: Verdict) -> Iterator[TaskSeen]:
    """Its controller has spoken. Of a success nobody asks the ranks; of a failure those that failed tell why."""
    ranks = sorted(sheet.wanted.places)
    if verdict.is_success:
        for rank in ranks:
            pod = _newest(sheet.seen, rank, sheet.wanted, is_any=True)
            yield _ended(sheet.task(rank, pod), verdict.at, 0, "")
        return
    blamed = False
    for rank in ranks:
        pod = _newest(sheet.seen, rank, sheet.wanted, is_any=True)
        if pod is not None and pod.ended is not None and pod.ended.exit_code != 0:
            blamed = True
            is_refused = not pod.ended.has_run and pod.ended.reason != "Evicted"
            problem = f"{pod.ended.reason}: {pod.ended.message}"
            yield sheet.end(rank, pod, CAUSE_NOT_PLACED, problem) if is_refused else _pod_end(sheet, rank, pod)
        elif rank == ranks[-1] and not blamed:
            cause = CAUSE_TIME_LIMIT if verdict.reason in DEADLINES else ""
            yield _ended(sheet.task(rank, pod), verdict.at, None, cause, verdict.message)
        else:
            yield _ended(sheet.task(rank, pod), verdict.at, None, CAUSE_STOPPED)


# -- arrays ----------------------------------------------------------------------------------------------------


def _follow_array(sheet: _Sheet) -> Followed:
    wanted, seen = sheet.wanted, sheet.seen
    found = seen.object
    verdict = found.verdict if found is not None and found.attempt == wanted.attempt else None
    given_up = IndexSet.parse(found.failed_indexes) if found is not None and found.failed_indexes else ()
    lanes = lanes_in_use(wanted, seen, sheet.memory)
    tasks = list(_indices(sheet, lanes, given_up, is_over=verdict is not None))
    if verdict is not None:
        tasks = list(_array_judged(sheet, verdict, tasks))
    elif _is_deleted(sheet):
        # Its pods go with it, also those whose end was told before: who has heard of that does not listen again.
        ended = {task.index for task in tasks if task.ended_at is not None}
        left = [index for index in IndexSet.parse(wanted.indices) if index not in ended]
        tasks += (replace(sheet.end(index, None, CAUSE_DELETED, sheet.memory.kind), lane=0) for index in left)
    if sheet.memory.unplaced:
        lowest = next(iter(IndexSet.parse(wanted.indices)))
        tasks.append(sheet.end(lowest, None, CAUSE_NOT_PLACED, sheet.memory.unplaced))
    is_still = not sheet.alive and not _may_make_pods(sheet)
    indices = IndexSet.parse(wanted.indices)
    begun = {rank for rank, pod in seen.pods if rank is not None and rank in indices and _is_begun(rank, pod, given_up)}
    not_begun = 0 if verdict is not None or wanted.is_stopping else len(indices) - len(begun)
    in_use = tuple(sorted(lanes.values()))
    is_over = verdict is not None or wanted.is_stopping
    return Followed(tuple(tasks), is_over and is_still, _trouble(sheet), in_use, max(0, not_begun), _suspended(sheet))


def _is_begun(rank: int, pod: PodSeen, given_up: IndexSet | tuple[()]) -> bool:
    """Of a pod that failed its controller makes another, and room is needed for that, until it gives the index up."""
    return rank in given_up or pod.phase == "Succeeded" or (bool(pod.node) and not pod.has_ended)


def _array_judged(sheet: _Sheet, verdict: Verdict, tasks: list[TaskSeen]) -> Iterator[TaskSeen]:
    """Its controller begins no other: every index has an end, also one whose pod is gone, or never was."""
    ended = {task.index: task for task in tasks if task.ended_at is not None}
    yield from ended.values()
    left = [index for index in IndexSet.parse(sheet.wanted.indices) if index not in ended]
    if verdict.is_success:
        yield from (replace(sheet.end(index, None, "", code=0), lane=0) for index in left)
        return
    if left and not any(_is_failure(task) for task in ended.values()):
        cause = CAUSE_TIME_LIMIT if verdict.reason in DEADLINES else ""
        yield _ended(sheet.task(left.pop(0), None, lane=0), verdict.at, None, cause, verdict.message)
    yield from (replace(sheet.end(index, None, CAUSE_STOPPED), lane=0) for index in left)


def _indices(
    sheet: _Sheet, lanes: dict[str, int], given_up: IndexSet | tuple[()], *, is_over: bool
) -> Iterator[TaskSeen]:
    indices = IndexSet.parse(sheet.wanted.indices)  # without those that earlier attempts have done
    for rank, pod in () if _is_of_another(sheet) else sheet.seen.pods:
        if rank is None or rank not in indices or (pod.started_at is None and pod.ended is None):
            continue
        lane = lanes.get(pod.uid, 0)
        end = pod.ended
        if end is None:
            yield sheet.task(rank, pod, lane=lane)
        elif pod.phase == "Succeeded":
            yield _ended(sheet.task(rank, pod, lane=lane), end.at, 0, "")
        elif rank in given_up or is_over:
            yield _pod_end(sheet, rank, pod)


def _is_failure(task: TaskSeen) -> bool:
    return task.ended_at is not None and (task.exit_code != 0 or bool(task.cause))


def _trouble(sheet: _Sheet) -> str:
    """Why it does not start, or does not go on, in words; empty: it does, or nothing is known."""
    wanted, seen = sheet.wanted, sheet.seen
    if wanted.is_stopping:
        return ""
    if sheet.memory.problem:
        return sheet.memory.problem
    if sheet.memory.held:
        return sheet.memory.held
    for _, pod in seen.pods:
        if keeps := _keeps_ending(pod, sheet.now):
            return keeps
        if pod.waiting and not pod.has_ended:
            return f"pod {pod.name}: {pod.waiting}{refusal(pod, pod.waiting)}"
    return ""


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
