"""Small words to tell planner stories with: `world(node("a", gpus=8), running(1, on="a"), queued(2))`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

from swell.model.cluster import Device, Node
from swell.model.job import Dimension, JobState, ResizeMode
from swell.model.placement import PlacementRules, Taint
from swell.model.plan import JobView, Shape, Slot, Snapshot
from swell.model.quantity import parse_cpus, parse_range, parse_seconds
from swell.model.resources import Resources
from swell.model.training import Training

GIB = 1024


def node(
    name: str,
    *,
    cpus: float = 64,
    memory_gib: float = 256,
    gpus: int = 0,
    is_reachable: bool = True,
    gpu_gib: float = 16,
    outsiders_gib: tuple[float, ...] = (),
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    is_cordoned: bool = False,
    tasks_max: int | None = None,
) -> Node:
    """`outsiders_gib`: what processes outside Swell use of the first GPUs. With labels it is a cluster's node."""
    used = (*outsiders_gib, *(0.0,) * (gpus - len(outsiders_gib)))
    devices = tuple(
        Device(f"{name}-gpu{n}", int(gpu_gib * GIB), "test", simulated=True, outsiders_mib=int(gib * GIB))
        for n, gib in enumerate(used)
    )
    return Node(
        name,
        parse_cpus(cpus),
        int(memory_gib * GIB),
        devices,
        is_reachable,
        labels=None if labels is None else tuple(sorted(labels.items())),
        taints=taints,
        is_cordoned=is_cordoned,
        tasks_max=tasks_max,
    )


@cache
def shape(
    *,
    cpus: float = 1,
    memory_gib: float = 0,
    gpus: int | str = 0,
    tasks: int | str = 1,
    time: str | None = None,
    extra: tuple[Resources, int] | None = None,
    gpu_gib: float = 0,
) -> Shape:
    """As manifests make it: `gpus="1..4"` or `tasks="1..4"` is elastic; `extra` is a second role.

    `gpu_gib` without GPUs is a share of one.

    Equal shapes are one object, as in the real world.
    """
    (gpus_min, gpus_max), (tasks_min, tasks_max) = parse_range(gpus), parse_range(tasks)
    resources = Resources(parse_cpus(cpus), int(memory_gib * GIB), gpus_min, int(gpu_gib * GIB))
    roles = ((resources, tasks_min),) if extra is None else ((resources, tasks_min), extra)
    limit = None if time is None else parse_seconds(time)
    if tasks_max == 1 and gpus_max > 0:
        return Shape(roles, Dimension.GPUS, gpus_min, gpus_max, is_array=False, time_limit_s=limit)
    return Shape(roles, Dimension.TASKS, tasks_min, tasks_max, is_array=False, time_limit_s=limit)


def queued(
    job: int,
    *,
    priority: int = 0,
    cpus: float = 1,
    memory_gib: float = 0,
    gpus: int | str = 0,
    tasks: int | str = 1,
    time: str | None = None,
    extra: tuple[Resources, int] | None = None,
    gpu_gib: float = 0,
    user: str = "",
) -> JobView:
    wanted = shape(cpus=cpus, memory_gib=memory_gib, gpus=gpus, tasks=tasks, time=time, extra=extra, gpu_gib=gpu_gib)
    return JobView(job, wanted, priority, JobState.QUEUED, user=user)


def running(
    job: int,
    *,
    on: str,
    priority: int = 0,
    cpus: float = 1,
    memory_gib: float = 0,
    gpus: int = 0,
    tasks: int = 1,
    time: str | None = None,
    started: float = 0.0,
    state: JobState = JobState.RUNNING,
    gpu_gib: float = 0,
    device: str | None = None,
    user: str = "",
) -> JobView:
    """All its tasks on one node; `world` gives it devices, but for a share, whose device is named here."""
    held = shape(cpus=cpus, memory_gib=memory_gib, gpus=gpus, tasks=tasks, time=time, gpu_gib=gpu_gib)
    devices = () if device is None else (device,)
    slots = tuple(Slot(rank, on, held.roles[0][0], devices) for rank in range(tasks))
    return JobView(job, held, priority, state, slots, started, user=user)


def trains(
    job: int,
    *,
    on: str | tuple[str, ...],
    width: int,
    gpus: int | str = 0,
    tasks: int | str = 1,
    cpus: float = 1,
    priority: int = 0,
    started: float = 0.0,
    left: float | None = 1000.0,
    epoch_s: tuple[tuple[int, float], ...] = ((1, 100.0),),
    restart_s: float | None = 30.0,
    checkpoint_at: float | None = 0.0,
    every_s: float | None = None,
    mode: ResizeMode = ResizeMode.AT_CHECKPOINT,
    wanted: int | None = None,
    yielding: int | None = None,
) -> JobView:
    """Running, and it reports. By default twice as wide is nearly twice as fast, and its end is far away.

    `on` is one node for all its tasks, or one for each.
    """
    held = shape(cpus=cpus, gpus=gpus, tasks=tasks)
    resources = [resources for resources, count in held.tasks_at(width) for _ in range(count)]
    nodes = (on,) * len(resources) if isinstance(on, str) else on
    slots = tuple(Slot(rank, *place) for rank, place in enumerate(zip(nodes, resources, strict=True)))
    measured = tuple((known, 1, seconds) for known, seconds in epoch_s)
    training = Training(left, measured, restart_s, checkpoint_at, every_s)
    made = JobView(job, held, priority, JobState.RUNNING, slots, started, width=width, mode=mode, training=training)
    return replace(made, wanted=wanted, yielding=yielding)


def array(
    job: int,
    *,
    tasks: int = 100,
    at_once: int | None = None,
    slots: int = 0,
    draining: tuple[int, ...] = (),
    on: str = "a",
    priority: int = 0,
    cpus: float = 1,
    memory_gib: float = 0,
    gpus: int = 0,
    time: str | None = None,
    gpu_gib: float = 0,
    devices: tuple[str, ...] = (),
    user: str = "",
) -> JobView:
    """Queued without slots, running with some; the numbers in `draining` name slots that are taken back."""
    resources = Resources(parse_cpus(cpus), int(memory_gib * GIB), gpus, int(gpu_gib * GIB))
    limit = None if time is None else parse_seconds(time)
    lanes = _lanes(resources, at_once or tasks, limit)
    state = JobState.RUNNING if slots else JobState.QUEUED
    named = [(device,) for device in devices] or [()] * slots
    held = tuple(Slot(n, on, resources, named[n], is_draining=n in draining) for n in range(slots))
    return JobView(job, lanes, priority, state, held, 0.0 if slots else None, unfinished=tasks, user=user)


@cache
def _lanes(resources: Resources, at_once: int, limit: float | None) -> Shape:
    return Shape(((resources, 1),), Dimension.TASKS, 1, at_once, is_array=True, time_limit_s=limit)


@cache
def _with_rules(shape: Shape, rules: tuple[PlacementRules | None, ...]) -> Shape:
    return replace(shape, rules=rules)


def under(job: JobView, *rules: PlacementRules | None) -> JobView:
    """The same job with rules, one for each role."""
    return replace(job, shape=_with_rules(job.shape, rules))


def world(*things: Node | JobView, now: float = 0.0) -> Snapshot:
    nodes = tuple(thing for thing in things if isinstance(thing, Node))
    jobs = tuple(thing for thing in things if isinstance(thing, JobView))
    return Snapshot(now, nodes, _with_devices(nodes, jobs))


def _with_devices(nodes: tuple[Node, ...], jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """Every slot that names none gets the lowest devices of its node that no slot before it has, and none shares."""
    shared = {(slot.node, device) for job in jobs for slot in job.slots for device in slot.devices}
    devices = {node.id: [device.id for device in node.devices if (node.id, device.id) not in shared] for node in nodes}
    used: Counter[str] = Counter()

    def furnished(slot: Slot) -> Slot:
        if slot.devices:
            return slot
        first = used[slot.node]
        used[slot.node] += slot.resources.gpus
        return replace(slot, devices=tuple(devices.get(slot.node, [])[first : used[slot.node]]))

    return tuple(replace(job, slots=tuple(furnished(slot) for slot in job.slots)) for job in jobs)


def slots(count: int, on: str, *, cpus: float = 1, memory_gib: float = 0, first: int = 0) -> tuple[Slot, ...]:
    """Slots without devices, as an array of CPU tasks has them."""
    resources = Resources(parse_cpus(cpus), int(memory_gib * GIB))
    return tuple(Slot(first + n, on, resources) for n in range(count))


def drained(slot: Slot) -> Slot:
    return replace(slot, is_draining=True)
