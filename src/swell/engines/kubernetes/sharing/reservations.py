"""Which GPUs must be kept for those who share them, and who may use one now?

The device plugin hands out whole GPUs and knows of no shares. So a GPU that jobs of ours share is taken out of its
hands by a pod of ours that asks for one and does nothing; who shares it asks the plugin for none, and is told its UUID.

Which GPU a reservation gets is the plugin's choice. Our plans know it by a number; the two come together when the
reservation runs and says what it sees. A reservation that is lost is made again, and may get another GPU than those see
that run already: then nobody else is sent there until they have ended.

Pure: every half-way state is a row of a table of tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from swell.engines.kubernetes.attempt.steps import BindPod
from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.objects.pod_template import VISIBLE
from swell.engines.kubernetes.watch.observed_objects import DEVICE, NODE, NOT_STARTED, NUMBER, RESERVATION, PodSeen
from swell.model.cluster import DeviceId, NodeId

Gpu = tuple[NodeId, DeviceId]  # by its number
REFUSING = (VISIBLE, "nvidia-container", "nvidia-ctk", "runtime handler", "no runtime for")


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Make the pod."""

    gpu: Gpu


@dataclass(frozen=True, slots=True)
class SharedSeat:
    """Bind it to its node."""

    gpu: Gpu
    pod: PodSeen


@dataclass(frozen=True, slots=True)
class AskReservation:
    """Read which GPU it got, and note it on the pod."""

    gpu: Gpu
    pod: PodSeen


@dataclass(frozen=True, slots=True)
class RemoveReservation:
    """Delete it: nobody needs it any more, or it is of no use."""

    gpu: Gpu
    pod: PodSeen


Step = CreateReservation | SharedSeat | AskReservation | RemoveReservation


@dataclass(frozen=True, slots=True)
class Needed:
    wanted: frozenset[Gpu] = frozenset()  #: somebody shares it, or will
    kept: frozenset[Gpu] = frozenset()  #: and those that only somebody shares who is being stopped


def gpu_of(pod: PodSeen) -> Gpu:
    """Of a pod that reserves one."""
    return pod.annotations.get(NODE, pod.node), pod.labels[RESERVATION]


def needed(attempts: Iterable[Wanted]) -> Needed:
    wanted: set[Gpu] = set()
    kept: set[Gpu] = set()
    for attempt in attempts:
        for place in attempt.held:
            if attempt.shares_mib[place.role]:
                (kept if attempt.is_stopping else wanted).update((place.node, device) for device in place.devices)
    return Needed(frozenset(wanted), frozenset(wanted | kept))


def steps(
    need: Needed,
    reservations: Mapping[Gpu, PodSeen],
    sharers: Iterable[PodSeen],
    present: Set[NodeId],
    *,
    is_settled: bool,
) -> tuple[Step, ...]:
    """`sharers`: pods of ours on these nodes that see a shared GPU. Not settled: not all attempts may be known yet."""
    in_use = {(pod.node, pod.annotations.get(NUMBER, "")) for pod in sharers}
    found: list[Step] = []
    for gpu in sorted(need.wanted | reservations.keys()):
        pod = reservations.get(gpu)
        is_needed = gpu in need.kept or gpu in in_use or not is_settled
        if pod is None:
            if gpu[0] in present:
                found.append(CreateReservation(gpu))
        elif pod.is_deleting:
            continue  # another of its name comes when it is gone
        elif pod.has_ended or not is_needed:
            found.append(RemoveReservation(gpu, pod))
        elif not pod.node:
            found += [SharedSeat(gpu, pod)] if gpu[0] in present else []
        elif pod.started_at is not None and DEVICE not in pod.annotations:
            found.append(AskReservation(gpu, pod))
    return tuple(found)


# -- who may be bound ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """What may be bound now, and why the rest may not."""

    binds: tuple[BindPod, ...]
    why: str = ""  #: empty: all may


def admit(
    wanted: Wanted,
    binds: Iterable[BindPod],
    reservations: Mapping[Gpu, PodSeen],
    sharers: Iterable[PodSeen],
    problems: Mapping[Gpu, str],
) -> HeldReservation:
    """A gang whole or not at all; the tasks of an array each for itself."""
    there = list(sharers)
    may: list[BindPod] = []
    why = ""
    for bind in binds:
        is_share = bool(wanted.shares_mib[bind.place.role])
        gpus = [(bind.place.node, device) for device in bind.place.devices]
        if not is_share:
            kept = next((gpu for gpu in gpus if gpu in reservations), None)
            why = why if kept is None else f"{name(kept)} is being given back by those who shared it"
            may += [bind] if kept is None else []
            continue
        problem = obstacle(gpus[0], reservations.get(gpus[0]), there, problems.get(gpus[0], ""))
        why = problem or why
        if not problem:
            may.append(replace(bind, gpu=reservations[gpus[0]].annotations[DEVICE]))
    return HeldReservation(() if why and not wanted.is_array else tuple(may), why)


def obstacle(gpu: Gpu, pod: PodSeen | None, sharers: Iterable[PodSeen], problem: str) -> str:
    """Why nobody can be sent to share this GPU now; empty: they can."""
    if pod is None or pod.is_deleting or pod.has_ended:
        return f"{name(gpu)} cannot be reserved for sharing: {problem}" if problem else f"{name(gpu)} is being reserved"
    uuid = pod.annotations.get(DEVICE)
    if uuid is None:
        runtime = f" (RuntimeClass {pod.runtime_class})" if pod.runtime_class else ""
        said = pod.waiting or problem
        what = f"{said}{runtime}" if said else f"its pod {pod.namespace}/{pod.name}{runtime} does not run yet"
        return f"{name(gpu)} is being reserved: {what}"
    for other in sharers:
        seen, number = other.annotations.get(DEVICE), other.annotations.get(NUMBER, "")
        if other.node == gpu[0] and (seen == uuid) != (number == gpu[1]):
            return (
                f"{name(gpu)} is {uuid} since its reservation was made anew, but pod {other.namespace}/{other.name} "
                f"runs on {seen} as {name((other.node, number))}; nobody else is sent there until it has ended"
            )
    return ""


def refusal(pod: PodSeen, said: str) -> str:
    """What is behind it when a container does not start; empty: not that its node keeps a shared GPU from it."""
    is_of_the_runtime = said.startswith(("CreateContainerError", "RunContainerError", *NOT_STARTED))
    if NUMBER not in pod.annotations or not is_of_the_runtime or not any(word in said for word in REFUSING):
        return ""
    runtime = pod.runtime_class or "none, so the default"
    return (
        f"; node {pod.node} does not give a pod the GPU that {VISIBLE} names (RuntimeClass: {runtime}); "
        "allow it there (docs/gpus.md), or ask for whole GPUs"
    )


def name(gpu: Gpu) -> str:
    return f"GPU {gpu[1].removeprefix('gpu-')} of node {gpu[0]}"
