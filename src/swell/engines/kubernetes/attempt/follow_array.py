"""What has become of an array's tasks, given its object and its pods?"""

from __future__ import annotations

from collections.abc import Iterator

from swell.engines.kubernetes.attempt.state import DEADLINES, AttemptState, Followed, with_end
from swell.engines.kubernetes.attempt.steps import lanes_in_use
from swell.engines.kubernetes.objects.objects import ObjectVerdict
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.model.launch import CAUSE_DELETED, CAUSE_NOT_PLACED, CAUSE_STOPPED, CAUSE_TIME_LIMIT, TaskSeen
from swell.model.quantity import IndexSet


def follow_array(state: AttemptState) -> Followed:
    wanted, seen = state.wanted, state.seen
    found = seen.object
    verdict = found.verdict if found is not None and found.attempt == wanted.attempt else None
    given_up = IndexSet.parse(found.failed_indexes) if found is not None and found.failed_indexes else ()
    indices = IndexSet.parse(wanted.indices)  # without those that earlier attempts have done
    lanes = lanes_in_use(wanted, seen, state.memory)
    tasks = list(_indices(state, lanes, given_up, is_over=verdict is not None))
    if verdict is not None and not state.is_swept:
        tasks = list(_array_judged(state, verdict, tasks))
    elif state.is_deleted or state.is_swept:
        # Its pods go with it, also those whose end was told before: who has heard of that does not listen again.
        ended = {task.index for task in tasks if task.ended_at is not None}
        left = [index for index in indices if index not in ended]
        what = state.swept if state.is_swept else state.memory.kind
        tasks += (state.end(index, None, CAUSE_DELETED, what, lane=0) for index in left)
    if state.memory.unplaced:
        tasks.append(state.end(next(iter(indices)), None, CAUSE_NOT_PLACED, state.memory.unplaced, lane=0))
    is_still = not state.alive and not state.may_make_pods
    begun = {rank for rank, pod in seen.pods if rank is not None and rank in indices and _is_begun(rank, pod, given_up)}
    repeated = {
        rank
        for rank, pod in seen.pods
        if rank is not None and rank not in indices and not (pod.node or pod.has_ended or pod.is_deleting)
    }  # its controller did not count their ends, and they need room once more
    is_over = verdict is not None or wanted.is_stopping
    not_begun = 0 if is_over else len(indices) - len(begun) + len(repeated)
    in_use = tuple(sorted(lanes.values()))
    return Followed(tuple(tasks), is_over and is_still, state.trouble, in_use, not_begun, state.suspended)


def _is_begun(rank: int, pod: PodSeen, given_up: IndexSet | tuple[()]) -> bool:
    """Of a pod that failed its controller makes another, and room is needed for that, until it gives the index up."""
    return rank in given_up or pod.phase == "Succeeded" or (bool(pod.node) and not pod.has_ended)


def _array_judged(state: AttemptState, verdict: ObjectVerdict, tasks: list[TaskSeen]) -> Iterator[TaskSeen]:
    """Its controller begins no other: every index has an end, also one whose pod is gone, or never was."""
    ended = {task.index: task for task in tasks if task.ended_at is not None}
    yield from ended.values()
    left = [index for index in IndexSet.parse(state.wanted.indices) if index not in ended]
    if verdict.is_success:
        yield from (state.end(index, None, "", code=0, lane=0) for index in left)
        return
    if left and not any(_is_failure(task) for task in ended.values()):
        cause = CAUSE_TIME_LIMIT if verdict.reason in DEADLINES else ""
        yield with_end(state.task(left.pop(0), None, lane=0), verdict.at, None, cause, verdict.message)
    yield from (state.end(index, None, CAUSE_STOPPED, lane=0) for index in left)


def _indices(
    state: AttemptState, lanes: dict[str, int], given_up: IndexSet | tuple[()], *, is_over: bool
) -> Iterator[TaskSeen]:
    indices = IndexSet.parse(state.wanted.indices)  # without those that earlier attempts have done
    for rank, pod in () if state.is_of_another else state.seen.pods:
        if rank is None or rank not in indices or (pod.started_at is None and pod.ended is None):
            continue
        lane = lanes.get(pod.uid, 0)
        end = pod.ended
        if end is None:
            yield state.task(rank, pod, lane=lane)
        elif pod.phase == "Succeeded":
            yield with_end(state.task(rank, pod, lane=lane), end.at, 0, "")
        elif rank in given_up or is_over:
            yield state.pod_end(rank, pod, lane=lane)


def _is_failure(task: TaskSeen) -> bool:
    return task.ended_at is not None and (task.exit_code != 0 or bool(task.cause))
