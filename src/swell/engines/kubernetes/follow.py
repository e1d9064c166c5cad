"""What has become of an attempt's tasks, given its object and its pods?

An object's own controller restarts what fails, so a pod that ended is no verdict: the object's is. Only of pods that
have no object is every end final.
"""

from __future__ import annotations

from collections.abc import Iterator

from swell.engines.kubernetes.followarray import follow_array
from swell.engines.kubernetes.objects import Verdict
from swell.engines.kubernetes.picture import Ended, PodSeen
from swell.engines.kubernetes.reservations import refusal
from swell.engines.kubernetes.sheet import DEADLINES, Followed, Sheet, with_end
from swell.engines.kubernetes.steps import is_left_over
from swell.engines.kubernetes.wanted import Memory, Seen, Wanted
from swell.model.launch import (
    CAUSE_DELETED,
    CAUSE_EVICTED,
    CAUSE_IMAGE,
    CAUSE_NODE_LOST,
    CAUSE_NOT_PLACED,
    CAUSE_POD_LOST,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
    TaskSeen,
)

#: A container's waiting reason → it will not get better by waiting
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
IMAGE_TROUBLE = (*HOPELESS, "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
IMAGE_S = 600.0  # a registry may be away for a while; room is not held for longer than that


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
    sheet = Sheet(wanted, seen, memory, now, has_object, is_ours, remakes)
    if wanted.is_array:
        return follow_array(sheet)
    tasks = tuple(_gang(sheet))
    ended = {task.index for task in tasks if task.ended_at is not None}
    is_over = wanted.is_stopping or ended.issuperset(wanted.places)
    is_still = not sheet.alive and not sheet.may_make_pods
    if wanted.is_stopping and is_still:
        tasks = (*tasks, *(_left_behind(sheet, rank) for rank in sorted(set(wanted.places) - ended)))
    return Followed(tasks, is_over and is_still, sheet.trouble, suspended=sheet.suspended)


def _left_behind(sheet: Sheet, rank: int) -> TaskSeen:
    """We stopped it; whatever code it left with is no verdict."""
    pods = [pod for number, pod in sheet.seen.pods if number == rank and pod.ended is not None]
    code = pods[-1].ended.exit_code if pods and pods[-1].ended is not None else None
    return sheet.end(rank, pods[-1] if pods else None, CAUSE_STOPPED, code=code)


def _gang(sheet: Sheet) -> Iterator[TaskSeen]:
    wanted, seen, memory = sheet.wanted, sheet.seen, sheet.memory
    found = seen.object
    if found is not None and found.attempt == wanted.attempt and found.verdict is not None:
        yield from _judged(sheet, found.verdict)
        return
    if memory.is_overdue:
        first = min(wanted.places)
        yield sheet.end(first, sheet.newest(first), CAUSE_TIME_LIMIT)
        return
    if memory.unplaced:
        yield sheet.end(_first_unplaced(sheet), None, CAUSE_NOT_PLACED, memory.unplaced)
        return
    if sheet.has_object and sheet.is_deleted:
        yield from (sheet.end(rank, None, CAUSE_DELETED, memory.kind) for rank in sorted(wanted.places))
        return
    if sheet.is_of_another:
        return
    for rank in sorted(wanted.places):
        pod = sheet.newest(rank)
        task = _member(sheet, rank, pod)
        if task is not None:
            yield task


def _first_unplaced(sheet: Sheet) -> int:
    """Others may have run, and ended, before it was given up."""
    ranks = sorted(sheet.wanted.places)
    placed = {rank for rank, pod in sheet.seen.staying.items() if pod.node}
    return next((rank for rank in ranks if rank not in placed), ranks[0])


def _member(sheet: Sheet, rank: int, pod: PodSeen | None) -> TaskSeen | None:
    wanted = sheet.wanted
    if pod is None:
        return _gone(sheet, rank)
    if sheet.remakes and is_left_over(pod, wanted, sheet.memory):
        return None
    if not pod.node and wanted.places[rank].node not in sheet.seen.present and not wanted.is_stopping:
        cause = CAUSE_NODE_LOST if wanted.has_begun else CAUSE_NOT_PLACED
        return sheet.end(rank, pod, cause, _lost_node(wanted.places[rank].node))
    if pod.ended is not None:
        return _ended(sheet, rank, pod, pod.ended)
    if pod.node and pod.node != wanted.places[rank].node and not wanted.is_stopping:
        return sheet.end(rank, pod, CAUSE_NOT_PLACED, _elsewhere(pod, wanted.places[rank].node))
    if pod.started_at is not None:
        return sheet.task(rank, pod)
    is_late = sheet.now - pod.created_at > IMAGE_S and pod.waiting.startswith(IMAGE_TROUBLE)
    if is_late or pod.waiting.startswith(HOPELESS):
        return sheet.end(rank, pod, CAUSE_IMAGE, pod.waiting)
    return None


def _ended(sheet: Sheet, rank: int, pod: PodSeen, how: Ended) -> TaskSeen | None:
    said = f"{how.reason}: {how.message}"
    if refused := refusal(pod, said):
        return sheet.end(rank, pod, CAUSE_NOT_PLACED, f"{said}{refused}")
    if pod.is_refused and not pod.is_evicted:
        return sheet.end(rank, pod, CAUSE_NOT_PLACED, said)
    if sheet.has_object:
        return sheet.task(rank, pod) if how.has_run else None  # its controller decides what follows
    end = sheet.pod_end(rank, pod)
    is_taken = pod.is_deleting and end.cause == "" and end.exit_code != 0
    return _taken_away(sheet, rank, pod) if is_taken else end


def _gone(sheet: Sheet, rank: int) -> TaskSeen | None:
    """Of a pod that came by kubectl there will be no other, unless it was us who took it away."""
    if sheet.has_object or sheet.wanted.is_stopping:
        return None
    before = sheet.seen.departed.get(rank)
    if before is not None and before.ended is not None:
        return _ended(sheet, rank, before, before.ended)
    is_lost = rank in sheet.memory.met or sheet.wanted.has_begun
    if not sheet.is_ours:
        return sheet.end(rank, None, CAUSE_DELETED, "Pod") if is_lost or not sheet.remakes else None
    return sheet.end(rank, None, *_who_took(sheet, rank)) if is_lost else None


def _taken_away(sheet: Sheet, rank: int, pod: PodSeen) -> TaskSeen:
    """Somebody deletes it: the code is that of being killed, and no failure of its own."""
    cause, problem = _who_took(sheet, rank) if sheet.is_ours else (CAUSE_DELETED, "Pod")
    return sheet.end(rank, pod, cause, problem)


def _who_took(sheet: Sheet, rank: int) -> tuple[str, str]:
    """A pod of ours: pods go with their node, and from one that is there somebody has deleted it."""
    node = sheet.wanted.places[rank].node
    if node in sheet.seen.present:
        return CAUSE_POD_LOST, "somebody has deleted its pod"
    return CAUSE_NODE_LOST, _lost_node(node)


def _lost_node(node: str) -> str:
    return f"node {node} is gone, or not ready"


def _elsewhere(pod: PodSeen, node: str) -> str:
    return f"somebody else has bound pod {pod.name} to node {pod.node}; it was to run on {node}"


def _for_good(end: TaskSeen, verdict: Verdict) -> TaskSeen:
    """What came by kubectl and has failed cannot be begun again, even if it was its node that refused a pod of it."""
    if end.cause not in (CAUSE_NOT_PLACED, CAUSE_EVICTED) or end.ended_at is None:
        return end
    return with_end(end, end.ended_at, end.exit_code, "", f"{end.problem}; {verdict.message}")


def _judged(sheet: Sheet, verdict: Verdict) -> Iterator[TaskSeen]:
    """Its controller has spoken. Of a success nobody asks the ranks; of a failure those that failed tell why."""
    ranks = sorted(sheet.wanted.places)
    if verdict.is_success:
        for rank in ranks:
            pod = sheet.newest(rank)
            yield with_end(sheet.task(rank, pod), verdict.at, 0, "")
        return
    blamed = False
    for rank in ranks:
        pod = sheet.newest(rank)
        if pod is not None and pod.ended is not None and pod.ended.exit_code != 0:
            blamed = True
            is_refused = not pod.ended.has_run and pod.ended.reason != "Evicted"
            problem = f"{pod.ended.reason}: {pod.ended.message}"
            end = sheet.end(rank, pod, CAUSE_NOT_PLACED, problem) if is_refused else sheet.pod_end(rank, pod)
            yield end if sheet.is_ours else _for_good(end, verdict)
        elif rank == ranks[-1] and not blamed:
            cause = CAUSE_TIME_LIMIT if verdict.reason in DEADLINES else ""
            yield with_end(sheet.task(rank, pod), verdict.at, None, cause, verdict.message)
        else:
            yield with_end(sheet.task(rank, pod), verdict.at, None, CAUSE_STOPPED)
