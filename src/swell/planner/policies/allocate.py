"""How does a choice, who should run and how wide, become a plan?

Whoever runs at the chosen width stays where it is; whoever should not run, or be wider or narrower, is asked to give
its room back if it can; whoever should run and does not is started where there is room now. What is asked for now is
free for others when it has been seen to end, in a later plan. An array starts with as many slots as fit and keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swell.model.job import JobId, JobState, ResizeMode
from swell.model.plan import Action, JobView, Plan, Preempt, Resize, Snapshot, Standing, Start, Verdict
from swell.model.reason import Code
from swell.model.resources import gpus_of
from swell.planner.policies.free_room import FreeRoom, is_ready, width_to_try

Chosen = Sequence[tuple[JobView, int]]  #: jobs that should run and their widths, in order


def enact(snapshot: Snapshot, chosen: Chosen, *, on_one_node: bool = False, is_strict: bool = False) -> Plan:
    """`is_strict`: when one does not fit, nobody behind it starts."""
    widths = {job.id: width for job, width in chosen}
    yields = _yields(snapshot, widths, [job.id for job, _ in chosen if not job.slots])
    starts: list[Start] = []
    verdicts = {job.id: _verdict(job, snapshot.now) for job in snapshot.jobs if job.state is JobState.QUEUED}
    room, limits = FreeRoom(snapshot), LimitsLeft(snapshot)
    for job, wanted in chosen:
        if not is_ready(job, snapshot.now):
            continue
        width = room.width_to_try(job, limits.width_to_try(job, wanted), on_one_node=on_one_node)
        if not limits.allow(job, width):
            verdicts[job.id] = Verdict(Code.USER_LIMIT)
            continue
        slots = room.take(job, width, on_one_node=on_one_node)
        if slots is None and is_strict:
            break
        if slots is not None:
            limits.add(job, width)
            starts.append(Start(job.id, width, slots))
            del verdicts[job.id]
    return Plan((*yields, *starts), verdicts)


def _yields(snapshot: Snapshot, widths: Mapping[JobId, int], waiting: Sequence[JobId]) -> list[Action]:
    found: list[Action] = []
    for job in sorted(snapshot.holding, key=lambda job: job.id):
        has_just_started = job.started_at == snapshot.now  # what is decided at one moment is decided once
        if widths.get(job.id) == job.width or has_just_started or not can_stop(job):
            continue
        if job.id in widths and job.is_partly_over:
            continue
        if job.id in widths:
            found.append(Resize(job.id, widths[job.id], job.mode, None))
        elif waiting:
            found.append(Preempt(job.id, job.mode, None, waiting[0]))
    return found


def can_stop(job: JobView) -> bool:
    """Does it run, and go on from where it was when it is started again?"""
    if job.state is not JobState.RUNNING or job.yielding is not None or job.shape.is_array:
        return False
    if job.mode is ResizeMode.AT_CHECKPOINT:
        return job.training is not None and job.training.checkpoint_at is not None
    return job.mode is ResizeMode.IMMEDIATE


def _verdict(job: JobView, now: float) -> Verdict:
    if job.waits_for:
        return Verdict(Code.WAITING_FOR_JOB, job.waits_for[0])
    if not is_ready(job, now):
        return Verdict(Code.WAITING_TO_RETRY)
    return Verdict(Code.WAITING_FOR_ROOM)


def width_of(job: JobView) -> int:
    """The width of a job that is given what it asked for: the least; of an array, as many as may run at once."""
    return min(job.shape.width_max, job.unfinished) if job.shape.is_array else job.shape.width_min


def gpus_at(job: JobView, width: int, card_mib: int) -> float:
    return sum(count * gpus_of(task, card_mib) for task, count in job.shape.tasks_at(width))


class LimitsLeft:
    """How much more may each user hold?"""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._gpus = {user: snapshot.gpus_held(user) for user, one in snapshot.users.items() if one.is_limited}
        self._running = {user: sum(job.user == user for job in snapshot.holding) for user in self._gpus}

    def allow(self, job: JobView, width: int) -> bool:
        if job.user not in self._gpus:
            return True
        standing = self._snapshot.users.get(job.user, Standing())
        gpus = self._gpus[job.user] + gpus_at(job, width, self._snapshot.card_mib)
        has_gpus = standing.gpus_max is None or gpus <= standing.gpus_max
        has_place = standing.running_max is None or self._running[job.user] < standing.running_max
        return has_gpus and has_place and (job.has_begun or not standing.has_no_disk_left)

    def width_to_try(self, job: JobView, width: int) -> int:
        """An array takes the most slots that its user may have, and at least one; every other job takes `width`."""
        return width_to_try(job, width, lambda one: self.allow(job, one))

    def add(self, job: JobView, width: int) -> None:
        if job.user in self._gpus:
            self._gpus[job.user] += gpus_at(job, width, self._snapshot.card_mib)
            self._running[job.user] += 1


class Totals:
    """The cluster as one big machine: who could run together, were it not for where the room is?"""

    def __init__(self, snapshot: Snapshot) -> None:
        reachable = [node for node in snapshot.nodes if node.is_reachable]
        self._card_mib = snapshot.card_mib
        self._left: tuple[float, ...] = (
            sum(len(node.devices) for node in reachable),
            sum(node.cpus_milli for node in reachable),
            sum(node.memory_mib for node in reachable),
        )

    def choose(self, wanted: Chosen) -> Chosen:
        """The jobs for which enough is left, in order; what they get is taken. An array may get less than it wants."""
        widths = [(job, self._take_most(job, width)) for job, width in wanted]
        return [(job, width) for job, width in widths if width is not None]

    def _take_most(self, job: JobView, width: int) -> int | None:
        """The width that was taken; None: there is not enough left."""
        width = width_to_try(job, width, lambda one: self._has(self._needs(job, one)))
        return width if self.take(job, width) else None

    def take(self, job: JobView, width: int) -> bool:
        """False: there is not enough left, and nothing is taken."""
        return self._take(self._needs(job, width))

    def widen(self, job: JobView, width: int) -> bool:
        """One more for a job of this width; False: there is none left."""
        before, after = self._needs(job, width), self._needs(job, width + 1)
        return self._take(tuple(more - less for more, less in zip(after, before, strict=True)))

    def _needs(self, job: JobView, width: int) -> tuple[float, ...]:
        """GPUs, CPUs in thousandths, memory in MiB."""
        groups = job.shape.tasks_at(width)
        cpus_milli = sum(task.cpus_milli * count for task, count in groups)
        memory_mib = sum(task.memory_mib * count for task, count in groups)
        return gpus_at(job, width, self._card_mib), cpus_milli, memory_mib

    def _has(self, needs: tuple[float, ...]) -> bool:
        return all(need <= left for need, left in zip(needs, self._left, strict=True))

    def _take(self, needs: tuple[float, ...]) -> bool:
        if not self._has(needs):
            return False
        self._left = tuple(left - need for need, left in zip(needs, self._left, strict=True))
        return True


def runnable(snapshot: Snapshot) -> list[JobView]:
    """Those that run, or wait for nothing but room; those that came first first, higher priority before that."""
    found = [job for job in snapshot.jobs if job.slots or is_ready(job, snapshot.now)]
    return sorted(found, key=lambda job: (-job.priority, job.id))
