"""What has become of an attempt's tasks, given its object and its pods?

An object's own controller restarts what fails, so a pod that ended is no verdict: the object's is. Only of pods that
have no object is every end final.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from swell.engines.kubernetes.attempt.follow_array import follow_array
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.state import DEADLINES, AttemptState, Followed, with_end
from swell.engines.kubernetes.attempt.steps import is_left_over
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.objects.objects import ObjectVerdict
from swell.engines.kubernetes.sharing.reservations import refusal
from swell.engines.kubernetes.watch.observed_objects import Ended, PodSeen
from swell.model.launch import (
    CAUSE_DELETED,
    CAUSE_EVICTED,
    CAUSE_IMAGE,
    CAUSE_LEFT_OUT,
    CAUSE_NODE_LOST,
    CAUSE_NOT_PLACED,
    CAUSE_POD_LOST,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
    TaskSeen,
)
from swell.model.member_loss import MemberLoss
from swell.model.quantity import IndexSet

Ranked = tuple[tuple[int | None, PodSeen], ...]


def number(ranked: Ranked, wanted: Wanted, memory: AttemptMemory) -> Ranked:
    """Those that have a number keep it."""
    if all(rank is not None for rank, _ in ranked):
        return ranked
    known = [(memory.ranks.get(pod.uid) if rank is None else rank, pod) for rank, pod in ranked]
    used = {rank for rank, pod in known if pod.phase != "Failed" and not pod.is_deleting}
    indices = IndexSet.parse(wanted.indices) if wanted.is_array else sorted(wanted.places)
    free = (index for index in indices if index not in used)
    return tuple((_given(pod, free, memory) if rank is None else rank, pod) for rank, pod in known)


def _given(pod: PodSeen, free: Iterator[int], memory: AttemptMemory) -> int | None:
    """None: it is over, or there are more pods than tasks."""
    if pod.has_ended or pod.is_deleting:
        return None
    chosen = next(free, None)
    if chosen is not None:
        memory.ranks[pod.uid] = chosen
    return chosen


#: A container's waiting reason → it will not get better by waiting
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
IMAGE_TROUBLE = (*HOPELESS, "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
IMAGE_S = 600.0  # a registry may be away for a while; room is not held for longer than that


def follow(
    wanted: Wanted,
    seen: AttemptSeen,
    memory: AttemptMemory,
    now: float,
    origin: Origin,
) -> Followed:
    """What became of an attempt, by what is seen of it now."""
    state = AttemptState(wanted, seen, memory, now, origin)
    if wanted.is_array:
        return follow_array(state)
    tasks = tuple(_gang(state))
    ended = {task.index for task in tasks if task.ended_at is not None}
    is_over = wanted.is_stopping or ended.issuperset(wanted.places)
    is_still = not state.alive and not state.may_make_pods
    if wanted.is_stopping and is_still:
        tasks = (*tasks, *(_left_behind(state, rank) for rank in sorted(set(wanted.places) - ended)))
    emptied = frozenset() if is_over else frozenset(_emptied(state, tasks))
    return Followed(tasks, is_over and is_still, state.trouble, suspended=state.suspended, emptied=emptied)


def _emptied(state: AttemptState, tasks: Iterable[TaskSeen]) -> Iterator[int]:
    """Ranks that have succeeded, or whose pod has: no controller makes another for them."""
    wanted = state.wanted
    if state.is_of_another or not wanted.has_begun:
        return
    told = {task.index for task in tasks if (task.exit_code == 0 and not task.cause) or task.cause == CAUSE_LEFT_OUT}
    alive = {rank for rank, pod in state.seen.pods if not pod.has_ended}
    for rank in wanted.places:
        pod = state.newest(rank)
        is_done = rank in told or (pod is not None and pod.phase == "Succeeded")
        if is_done and rank not in alive:
            yield rank


def _left_behind(state: AttemptState, rank: int) -> TaskSeen:
    """We stopped it; whatever code it left with is no verdict."""
    pods = [pod for number, pod in state.seen.pods if number == rank and pod.ended is not None]
    code = pods[-1].ended.exit_code if pods and pods[-1].ended is not None else None
    return state.end(rank, pods[-1] if pods else None, CAUSE_STOPPED, code=code)


def _gang(state: AttemptState) -> Iterator[TaskSeen]:
    wanted, seen, memory = state.wanted, state.seen, state.memory
    found = seen.object
    if state.is_swept:
        yield from (state.end(rank, state.newest(rank), CAUSE_DELETED, state.swept) for rank in sorted(wanted.places))
        return
    if found is not None and found.attempt == wanted.attempt and found.verdict is not None:
        yield from _judged(state, found.verdict)
        return
    if memory.is_overdue:
        first = min(wanted.places)
        yield state.end(first, state.newest(first), CAUSE_TIME_LIMIT)
        return
    if memory.unplaced:
        yield state.end(_first_unplaced(state), None, CAUSE_NOT_PLACED, memory.unplaced)
        return
    if state.origin.has_object and state.is_deleted:
        yield from (state.end(rank, None, CAUSE_DELETED, memory.kind) for rank in sorted(wanted.places))
        return
    if state.is_of_another:
        return
    for rank in sorted(wanted.places):
        pod = state.newest(rank)
        task = _member(state, rank, pod)
        if task is not None:
            yield task


def _first_unplaced(state: AttemptState) -> int:
    """Others may have run, and ended, before it was given up."""
    ranks = sorted(state.wanted.places)
    placed = {rank for rank, pod in state.seen.staying.items() if pod.node}
    return next((rank for rank in ranks if rank not in placed), ranks[0])


def _member(state: AttemptState, rank: int, pod: PodSeen | None) -> TaskSeen | None:
    wanted = state.wanted
    if pod is None:
        return _gone(state, rank)
    if state.origin.is_remade and is_left_over(pod, wanted, state.memory):
        return None
    if not pod.node and wanted.places[rank].node not in state.seen.present and not wanted.is_stopping:
        cause = CAUSE_NODE_LOST if wanted.has_begun else CAUSE_NOT_PLACED
        return state.end(rank, pod, cause, _lost_node(wanted.places[rank].node))
    if pod.ended is not None:
        return _ended(state, rank, pod, pod.ended)
    if pod.node and pod.node != wanted.places[rank].node and not wanted.is_stopping:
        return state.end(rank, pod, CAUSE_NOT_PLACED, _elsewhere(pod, wanted.places[rank].node))
    if pod.started_at is not None:
        return state.task(rank, pod)
    if not pod.node and wanted.has_begun and not wanted.is_stopping and (lost := _unusable(state, rank, pod)):
        return lost
    is_late = state.now - pod.created_at > IMAGE_S and pod.waiting.startswith(IMAGE_TROUBLE)
    if is_late or pod.waiting.startswith(HOPELESS):
        return state.end(rank, pod, CAUSE_IMAGE, pod.waiting)
    return None


def _ended(state: AttemptState, rank: int, pod: PodSeen, how: Ended) -> TaskSeen | None:
    said = f"{how.reason}: {how.message}"
    if refused := refusal(pod, said):
        return state.end(rank, pod, CAUSE_NOT_PLACED, f"{said}{refused}")
    if pod.is_refused and not pod.is_evicted:
        return state.end(rank, pod, CAUSE_NOT_PLACED, said)
    if state.origin.has_object:
        return state.task(rank, pod) if how.has_run else None  # its controller decides what follows
    end = state.pod_end(rank, pod)
    is_taken = pod.is_deleting and end.cause == "" and end.exit_code != 0
    if is_taken:
        return _taken_away(state, rank, pod)
    is_left_out = end.cause == CAUSE_EVICTED and state.seen.on_loss is MemberLoss.GO_ON
    return replace(end, cause=CAUSE_LEFT_OUT) if is_left_out else end


def _gone(state: AttemptState, rank: int) -> TaskSeen | None:
    """Of a pod that came by kubectl there will be no other, unless it was us who took it away."""
    if state.origin.has_object or state.wanted.is_stopping:
        return None
    before = state.seen.departed.get(rank)
    if before is not None and before.ended is not None:
        return _ended(state, rank, before, before.ended)
    is_lost = rank in state.memory.met or state.wanted.has_begun
    if not state.origin.is_ours:
        return _lost(state, rank, None) if is_lost or not state.origin.is_remade else None
    return state.end(rank, None, *_who_took(state, rank)) if is_lost else None


def _taken_away(state: AttemptState, rank: int, pod: PodSeen) -> TaskSeen | None:
    """Somebody deletes it: the code is that of being killed, and no failure of its own."""
    return state.end(rank, pod, *_who_took(state, rank)) if state.origin.is_ours else _lost(state, rank, pod)


def _lost(state: AttemptState, rank: int, pod: PodSeen | None) -> TaskSeen | None:
    """Somebody has deleted a pod that came by kubectl. None: its place is kept for the pod that replaces it."""
    if state.seen.on_loss is MemberLoss.GO_ON:
        return state.end(rank, pod, CAUSE_LEFT_OUT, "somebody has deleted its pod")
    if state.seen.on_loss is MemberLoss.WAIT:
        return _unusable(state, rank, pod)
    return state.end(rank, pod, CAUSE_DELETED, "Pod")


def _unusable(state: AttemptState, rank: int, pod: PodSeen | None) -> TaskSeen | None:
    """Its end, if no pod can replace it where it was, so that all begin again elsewhere."""
    node = state.wanted.places[rank].node
    if node not in state.seen.present:
        return state.end(rank, pod, CAUSE_NODE_LOST, _lost_node(node))
    if node in state.seen.closed:
        return state.end(rank, pod, CAUSE_EVICTED, f"node {node} is cordoned")
    return None


def _who_took(state: AttemptState, rank: int) -> tuple[str, str]:
    """A pod of ours: pods go with their node, and from one that is there somebody has deleted it."""
    node = state.wanted.places[rank].node
    if node in state.seen.present:
        return CAUSE_POD_LOST, "somebody has deleted its pod"
    return CAUSE_NODE_LOST, _lost_node(node)


def _lost_node(node: str) -> str:
    return f"node {node} is gone, or not ready"


def _elsewhere(pod: PodSeen, node: str) -> str:
    return f"somebody else has bound pod {pod.name} to node {pod.node}; it was to run on {node}"


def _for_good(end: TaskSeen, verdict: ObjectVerdict) -> TaskSeen:
    """What came by kubectl and has failed cannot be begun again, even if it was its node that refused a pod of it."""
    if end.cause not in (CAUSE_NOT_PLACED, CAUSE_EVICTED) or end.ended_at is None:
        return end
    return with_end(end, end.ended_at, end.exit_code, "", f"{end.problem}; {verdict.message}")


def _judged(state: AttemptState, verdict: ObjectVerdict) -> Iterator[TaskSeen]:
    """Its controller has spoken. Of a success nobody asks the ranks; of a failure those that failed tell why."""
    ranks = sorted(state.wanted.places)
    if verdict.is_success:
        for rank in ranks:
            pod = state.newest(rank)
            yield with_end(state.task(rank, pod), verdict.at, 0, "")
        return
    blamed = False
    for rank in ranks:
        pod = state.newest(rank)
        if pod is not None and pod.ended is not None and pod.ended.exit_code != 0:
            blamed = True
            is_refused = not pod.ended.has_run and pod.ended.reason != "Evicted"
            problem = f"{pod.ended.reason}: {pod.ended.message}"
            end = state.end(rank, pod, CAUSE_NOT_PLACED, problem) if is_refused else state.pod_end(rank, pod)
            yield end if state.origin.is_ours else _for_good(end, verdict)
        elif rank == ranks[-1] and not blamed:
            cause = CAUSE_TIME_LIMIT if verdict.reason in DEADLINES else ""
            yield with_end(state.task(rank, pod), verdict.at, None, cause, verdict.message)
        else:
            yield with_end(state.task(rank, pod), verdict.at, None, CAUSE_STOPPED)
