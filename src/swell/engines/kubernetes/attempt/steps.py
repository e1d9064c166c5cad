"""What is missing between what is wanted and what is there?

Pure: every half-way state that a crash, a lost answer or somebody else can leave is a row of a table of tests. Steps
are carried out in order, and worked out again from what is seen then; doing one twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, TaskPlace, Wanted
from swell.engines.kubernetes.objects.objects import ObjectSeen
from swell.engines.kubernetes.watch.observed_objects import JOB, NUMBER, PodSeen
from swell.model.cluster import DeviceId
from swell.model.job import AttemptId


@dataclass(frozen=True, slots=True)
class CreateObject:
    """The object, suspended; of pods without one, the pod of this rank."""

    rank: int | None = None


@dataclass(frozen=True, slots=True)
class UpdateSecret:
    """Write what the attempt is told."""


@dataclass(frozen=True, slots=True)
class ResizeObject:
    """Give a suspended object the attempt's size, and resume it; if the API does not allow it, remove it first."""


@dataclass(frozen=True, slots=True)
class MarkObject:
    """Note that somebody else's object is in our attempt."""


@dataclass(frozen=True, slots=True)
class SuspendObject:
    pass


@dataclass(frozen=True, slots=True)
class ResumeObject:
    pass


@dataclass(frozen=True, slots=True)
class RemoveObject:
    """The object."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    pod: PodSeen
    grace_s: float
    evicts: bool = False


@dataclass(frozen=True, slots=True)
class AskBudgets:
    """May all pods of it be evicted now? Whole jobs are, so what would end a part of one ends nothing."""


@dataclass(frozen=True, slots=True)
class BindPod:
    pod: PodSeen
    place: TaskPlace
    rank: int | None = None  #: to be written on it first; None: it says so itself
    gpu: str = ""  #: UUID of the GPU that it shares; empty: it shares none, or it is not known yet
    attempt: AttemptId | None = None  #: to be written on it with the bind; None: it is known


Step = (
    CreateObject
    | UpdateSecret
    | ResizeObject
    | MarkObject
    | SuspendObject
    | ResumeObject
    | RemoveObject
    | DeletePod
    | AskBudgets
    | BindPod
)


def object_steps(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, origin: Origin) -> tuple[Step, ...]:
    """For jobs whose pods are made by an object's controller."""
    found = seen.object
    if wanted.is_stopping:
        return _guarded(wanted, seen, memory, _stop(wanted, seen, memory, origin))
    if found is None:
        # With pods of the last one left, a new one of that name would count them as its own.
        return (CreateObject(),) if origin.is_ours and not wanted.has_begun and not seen.alive else ()
    if found.is_deleting:
        return ()
    if found.attempt != wanted.attempt:
        return _take_up(wanted, seen, memory, found, origin)
    if found.verdict is not None:
        return tuple(_kills(seen, memory, wanted.grace_s))
    if found.is_suspended:
        is_by_us = found.suspended_in == wanted.attempt
        return (UpdateSecret(), ResumeObject()) if is_by_us and not wanted.has_begun else ()
    if outdated := _outdated(found, seen, memory):
        return tuple(DeletePod(pod, pod.grace_s) for pod in outdated if pod.uid not in memory.deleted)
    return tuple(_binds(wanted, seen, memory))


def _outdated(found: ObjectSeen, seen: AttemptSeen, memory: AttemptMemory) -> list[PodSeen]:
    """Those that its controller has made from what the object was before: it may hear of a change long after us. They
    may have another size; taken away, they are made again as they should be."""
    return [
        pod
        for _, pod in seen.pods
        if pod.attempt != found.pods_attempt and not (pod.is_deleting or pod.has_ended) and _is_unbound(pod, memory)
    ]


def _take_up(
    wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, found: ObjectSeen, origin: Origin
) -> tuple[Step, ...]:
    """It is in an earlier attempt, or, if it came by kubectl, in none."""
    if found.verdict is not None and not origin.is_ours:
        return (MarkObject(),)  # it has ended as its last attempt was stopped, and will not begin again: so has its job
    if found.verdict is not None:
        return () if seen.alive else (RemoveObject(),)
    if not found.is_suspended:
        needs_telling = wanted.is_elastic or any(wanted.shares_mib)  # which pods that are there cannot be
        is_as_wanted = found.attempt is None and _has_size(found, wanted) and not needs_telling
        return (MarkObject(),) if is_as_wanted else (SuspendObject(),)
    if seen.alive:
        return ()  # resumed now, its controller would count those that are still ending (docs/decisions/0010)
    there = [pod for _, pod in seen.pods if not pod.is_deleting]
    if left := [pod for pod in there if pod.is_refused or (pod.has_ended and not wanted.is_array)]:
        # Told already, and their controller may take them for pods of this attempt, as we would.
        return tuple(DeletePod(pod, 0.0) for pod in left if pod.uid not in memory.deleted)
    return (UpdateSecret(), ResizeObject())


def _has_size(found: ObjectSeen, wanted: Wanted) -> bool:
    return [(group.count, group.gpus) for group in found.groups] == [(size.tasks, size.gpus) for size in wanted.sizes()]


def _stop(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, origin: Origin) -> tuple[Step, ...]:
    found = seen.object
    suspends = found is not None and not (found.is_suspended or found.is_deleting or found.verdict)
    if suspends:
        return (SuspendObject(),)
    kills = tuple(_kills(seen, memory, wanted.grace_s))
    is_ended_by_others = not origin.is_ours if found is None else not (found.is_deleting or found.verdict)
    if is_ended_by_others:
        # Its controller hears of it a moment later, and ends its pods; those that end before would be failures. What
        # was deleted with kubectl, the garbage collector ends, unless its user wants to keep the pods.
        return tuple(kill for kill in kills if kill.pod.is_deleting)
    return kills


def _guarded(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Evictions: the budgets are asked first, once for all of its pods. What has begun to go, goes.

    Pods with a controller of ours are ended by the suspension of their object: evicted, they would count as failures.
    """
    is_broken = not wanted.is_array and any(pod.is_deleting for _, pod in seen.pods)  # an array loses one task by that
    is_going = memory.may_evict or is_broken
    ends_none = not _has_pod_kills(steps) and not any(isinstance(one, SuspendObject) for one in steps)
    if not wanted.evicts or ends_none or (is_going and not _has_pod_kills(steps)):
        return steps
    evictions = tuple(replace(one, evicts=True) if isinstance(one, DeletePod) else one for one in steps)
    return evictions if is_going else (AskBudgets(), *evictions)


def _has_pod_kills(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(one, DeletePod) and not one.pod.is_deleting for one in steps)


def _kills(seen: AttemptSeen, memory: AttemptMemory, grace_s: float) -> Iterator[DeletePod]:
    """Those that would take longer than they may, or that nobody else ends."""
    for _, pod in seen.pods:
        is_slow = pod.is_deleting and pod.grace_s > grace_s
        if not pod.has_ended and pod.uid not in memory.deleted and (is_slow or not pod.is_deleting):
            yield DeletePod(pod, min(grace_s, pod.grace_s))


def pod_steps(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, origin: Origin) -> tuple[Step, ...]:
    """For jobs whose pods we make ourselves, or that came as plain pods."""
    if not origin.is_ours:
        return _found_pod_steps(wanted, seen, memory, origin)
    if wanted.is_stopping:
        return _guarded(wanted, seen, memory, tuple(_kills(seen, memory, wanted.grace_s)))
    old = [pod for _, pod in seen.pods if pod.attempt != wanted.attempt]
    if old:
        return tuple(
            DeletePod(pod, pod.grace_s) for pod in old if pod.uid not in memory.deleted and not pod.is_deleting
        )
    missing = [rank for rank in sorted(wanted.places) if rank not in seen.staying]
    lost = wanted.has_begun or any(rank in memory.met for rank in missing)
    if missing and not lost:
        return tuple(CreateObject(rank) for rank in missing if rank not in memory.created)
    if missing:
        return ()
    return (*(() if memory.told else (UpdateSecret(),)), *_binds(wanted, seen, memory))


def _found_pod_steps(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory, origin: Origin) -> tuple[Step, ...]:
    if wanted.is_stopping:
        # Those that are not bound hold nothing; they wait for the next attempt, or for whoever has created them. One
        # that was to replace another is of this attempt only: its controller makes the next.
        kills = tuple(
            kill
            for kill in _kills(seen, memory, wanted.grace_s)
            if not _is_unbound(kill.pod, memory) or is_replacement(kill.pod)
        )
        return _guarded(wanted, seen, memory, kills)
    if left := [pod for _, pod in seen.pods if origin.is_remade and is_left_over(pod, wanted, memory)]:
        return tuple(DeletePod(pod, 0.0) for pod in left if not pod.is_deleting and pod.uid not in memory.deleted)
    known = {rank for rank, _ in seen.pods} | memory.met.keys()
    missing = [rank for rank in sorted(wanted.places) if rank not in known]
    if missing and origin.is_remade and not wanted.has_begun:
        return tuple(CreateObject(rank) for rank in missing if rank not in memory.created)
    binds = _binds(wanted, seen, memory)
    return tuple(replace(bind, attempt=wanted.attempt) if origin.is_remade else bind for bind in binds)


def is_replacement(pod: PodSeen) -> bool:
    """Of a pod that came by kubectl: did it get the place of one that was deleted? Those have a controller."""
    return JOB in pod.labels and pod.owner is not None


def is_left_over(pod: PodSeen, wanted: Wanted, memory: AttemptMemory) -> bool:
    """Of one that came as a plain pod, in a later attempt: it has ended in one before, where that was told.

    A gang begins again whole: also what had succeeded when another of it was refused is done again. One that was alone
    and has ended by itself is no reason for another attempt.
    """
    is_over = pod.has_ended if len(wanted.places) > 1 else pod.is_spoilt
    return is_over and not wanted.has_begun and pod.uid not in memory.bound and pod.attempt != wanted.attempt


def _binds(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> Iterator[BindPod]:
    if wanted.is_array:
        yield from _array_binds(wanted, seen, memory)
        return
    if not seen.staying.keys() >= _first_bound(wanted, seen) - wanted.emptied:
        return  # whole, or not at all
    for rank, place in sorted(wanted.places.items()):
        pod = seen.staying.get(rank)
        if pod is None:
            continue
        is_free = place.node in seen.present - seen.closed and not _is_still_run(rank, pod, seen, memory)
        if not pod.has_ended and _is_unbound(pod, memory) and is_free:
            yield _bind(rank, pod, place)


def _first_bound(wanted: Wanted, seen: AttemptSeen) -> frozenset[int]:
    """Ranks that are bound together. Room for those that are made when others are bound is theirs from the start."""
    ranks = frozenset(wanted.places)
    leaders = frozenset() if seen.object is None else seen.object.leaders
    return ranks & leaders if leaders else ranks


def _array_binds(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> Iterator[BindPod]:
    lanes = lanes_in_use(wanted, seen, memory)
    free = [
        place
        for number, place in sorted(wanted.places.items())
        if number not in lanes.values() and place.node in seen.present
    ]
    waiting = [
        (rank, pod)
        for rank, pod in seen.pods
        if rank is not None
        and not (pod.is_deleting or pod.has_ended or _is_still_run(rank, pod, seen, memory))
        and _is_unbound(pod, memory)
    ]
    for (rank, pod), place in zip(sorted(waiting, key=lambda one: one[0]), free, strict=False):
        yield _bind(rank, pod, place)


def _bind(rank: int, pod: PodSeen, place: TaskPlace) -> BindPod:
    is_of_a_job = pod.owner is not None and pod.owner.kind == "Job"
    return BindPod(pod, place, rank if is_of_a_job and not pod.is_numbered else None)


def lanes_in_use(wanted: Wanted, seen: AttemptSeen, memory: AttemptMemory) -> dict[str, int]:
    """uid → lane. Which lane of its node a pod is in matters only where lanes are of different GPUs that are shared.

    Lanes that drain are filled last: the first pod that ends on their node empties one of them.
    """
    alive = sorted(
        (pod.created_at, pod.uid, pod.node or memory.bound[pod.uid], _shared(pod, memory))
        for _, pod in seen.pods
        if not pod.has_ended and not _is_unbound(pod, memory)
    )
    free = dict([*sorted(wanted.places.items()), *sorted(wanted.draining.items())])
    lanes: dict[str, int] = {}
    for _, uid, node, device in alive:
        number = next(
            (
                number
                for number, place in free.items()
                if place.node == node and (not device or place.devices == (device,))
            ),
            None,
        )
        if number is not None:
            del free[number]
            lanes[uid] = number
    return lanes


def _shared(pod: PodSeen, memory: AttemptMemory) -> DeviceId:
    """Which GPU of its node it shares; empty: none."""
    return memory.shared.get(pod.uid) or pod.annotations.get(NUMBER, "")


def _is_still_run(rank: int, pod: PodSeen, seen: AttemptSeen, memory: AttemptMemory) -> bool:
    """By one that this pod takes the place of, and that has not come to its end: a Job does not wait for it."""
    others = (one for number, one in seen.pods if number == rank and one.uid != pod.uid)
    return any(not one.has_ended and not _is_unbound(one, memory) for one in others)


def _is_unbound(pod: PodSeen, memory: AttemptMemory) -> bool:
    return not pod.node and pod.uid not in memory.bound
