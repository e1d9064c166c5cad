"""How does a decision become an effect?

First as a change to be stored (`enact`), then, when that is on disk, as calls to the engine (`carry_out`).
Nothing here writes "running": it asks, and the next look at the world says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from swell.controller.livejob import LiveJob
from swell.controller.observe import Effect, Forget
from swell.controller.reporting import Reporting
from swell.controller.world import World, with_slots
from swell.controller.yielding import Stop, ask
from swell.engines import Engine
from swell.model.assignment import Assignment
from swell.model.attempt import Resume
from swell.model.job import AttemptId, JobId, JobSpec, JobState, ResizeMode, Role
from swell.model.launch import LaunchRole
from swell.model.launcher import MPI_SLOTS, Launcher, launch_words
from swell.model.plan import Plan, Preempt, Resize, SetSlots, Slot, Start, Weighed
from swell.model.quantity import IndexSet
from swell.model.reason import Code
from swell.model.task_environment import ranks_of
from swell.model.width import tasks_at
from swell.model.width_words import following_command, following_value
from swell.store import AttemptRecord, Changes, EventRecord, JobRecord


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell the engine about an attempt, new or with other lanes."""

    attempt: AttemptRecord
    done: frozenset[int] = frozenset()  #: an array's indices that earlier attempts have ended


def enact(world: World, plan: Plan, changes: Changes, now: float) -> tuple[list[Begin], list[Stop]]:
    """What the plan changes; a plan that changes nothing writes nothing."""
    begins: list[Begin] = []
    stops: list[Stop] = []
    for action in plan.actions:
        job = world.jobs[action.job]
        if isinstance(action, Resize | Preempt):
            stops += _ask(world, job, action, changes, now)
            continue
        if isinstance(action, Start):
            _start(job, action, changes, now)
        else:
            _set_slots(job, action, changes, now)
        assert job.attempt is not None
        begins.append(Begin(job.attempt, done_before(job)))
    for job_id, verdict in plan.verdicts.items():
        job = world.jobs[job_id]
        if job.record.reason_code is not verdict.code:
            job.become(job.state, verdict.code, {})
            changes.set_job(job_id, reason_code=str(verdict.code), reason_evidence={})
    return begins, stops


def _ask(world: World, job: LiveJob, action: Resize | Preempt, changes: Changes, now: float) -> list[Stop]:
    width = action.width if isinstance(action, Resize) else 0
    assert job.attempt is not None
    if isinstance(action, Preempt):
        cause = f"preempted by job {action.room_for}"
    elif width == job.record.wanted_width:
        cause = f"scaled to {width} on request"
    elif width > job.attempt.width:
        cause = f"grows from {job.attempt.width} to {width}"
    elif action.room_for is not None:
        cause = f"shrinks from {job.attempt.width} to {width} for job {action.room_for}"
    else:
        cause = f"shrinks from {job.attempt.width} to {width} because the GPUs help other jobs more"
    if isinstance(action, Resize) and action.weighed is not None:
        cause += _why_now_or_later(action.weighed, is_now=action.when is ResizeMode.IMMEDIATE)
    return ask(
        world,
        job,
        changes,
        now,
        width=width,
        when=action.when,
        cause=cause,
        deadline_s=action.deadline_s,
        room_for=action.room_for,
        evicts=isinstance(action, Preempt) and action.evicts,
    )


def _why_now_or_later(weighed: Weighed, *, is_now: bool) -> str:
    again, rest = f"{weighed.again_s:.0f} s of work", f"its epoch ends in about {weighed.epoch_left_s:.0f} s"
    if is_now:
        return f"; it stops now and repeats {again}, because {rest}"
    return f"; it continues until the end of its epoch, because {rest}, and stopping now would repeat {again}"


def _start(job: LiveJob, start: Start, changes: Changes, now: float) -> None:
    nodes = tuple(dict.fromkeys(slot.node for slot in start.slots))
    total = job.record.tasks_total if job.shape.is_array else len(start.slots)  # a gang has as many as it was given
    job.record = replace(job.record, attempts=job.attempts + 1, tasks_total=total, nodes=nodes)
    job.progress.begun_now.clear()
    job.trouble = {}
    job.become(JobState.STARTING, Code.STARTING, {"nodes": ", ".join(nodes)})
    job.drop_reservation()
    job.set_attempt(
        AttemptRecord(
            job_id=job.id,
            number=job.attempts,
            width=start.width,
            slots=start.slots,
            revision=1,
            created_at=now,
            started_at=None,
            ended_at=None,
            outcome=None,
            placements=[_placement(slot) for slot in start.slots],
            resume=_resume(job),
        ),
        changes,
    )
    job.write(changes)
    waited_s = round(max(0.0, now - job.queued_at), 3)
    detail = {"attempt": job.attempts, "width": start.width, "nodes": list(nodes), "waited_s": waited_s}
    if job.returns not in (None, start.width):  # the world has changed since it was asked to make room
        detail |= {"decided_width": job.returns}
    changes.events.append(EventRecord("Started", job.id, detail=detail))


def _resume(job: LiveJob) -> Resume:
    checkpoint = None if job.training is None else job.training.checkpoint
    if checkpoint is None:
        return Resume(used_s=job.record.used_s)
    return Resume(
        checkpoint.epochs_done,
        checkpoint.path,
        job.record.used_s,
        checkpoint.steps_done,
        checkpoint.steps_total,
        checkpoint.samples_done,
    )


def _placement(slot: Slot) -> dict[str, Any]:
    return {"task": slot.number, "node": slot.node, "devices": list(slot.devices)}


def _set_slots(job: LiveJob, action: SetSlots, changes: Changes, now: float) -> None:
    assert job.attempt is not None
    working = sum(not slot.is_draining for slot in action.slots)
    changed = with_slots(job.attempt, action.slots, now)
    joined = [slot for slot in _first_by_node(action.slots) if slot.node not in job.record.nodes]
    placements = [*job.attempt.placements, *map(_placement, joined)]
    job.record = replace(job.record, nodes=(*job.record.nodes, *(slot.node for slot in joined)))
    revision = job.attempt.revision + 1
    job.set_attempt(replace(changed, revision=revision, width=working, placements=placements), changes)
    job.write(changes)


def _first_by_node(slots: tuple[Slot, ...]) -> list[Slot]:
    return list({slot.node: slot for slot in reversed(slots)}.values())[::-1]


def done_before(job: LiveJob) -> frozenset[int]:
    """What a later attempt of an array need not do again. In the first nothing was done before."""
    return (
        frozenset(job.progress.ended) - job.progress.begun_now
        if job.attempts > 1 and job.shape.is_array
        else frozenset()
    )


def carry_out(engine: Engine, effects: Iterable[Effect], generation: int) -> None:
    for effect in effects:
        if isinstance(effect, Stop):
            engine.stop(effect.attempt, effect.grace_s, generation, evicts=effect.evicts)
        elif isinstance(effect, Forget):
            engine.forget(effect.attempt)
        else:
            engine.discard(effect.job)


def begin(
    engine: Engine,
    begins: Iterable[Begin],
    generation: int,
    records: Mapping[JobId, JobRecord],
    reporting: Reporting,
) -> None:
    for one in begins:
        engine.start(assignment(records[one.attempt.job_id], one.attempt, generation, reporting, one.done))


def assignment(
    job: JobRecord,
    attempt: AttemptRecord,
    generation: int,
    reporting: Reporting,
    done: frozenset[int] = frozenset(),
) -> Assignment:
    """What the engine is told of an attempt; the same whenever it is made."""
    spec = job.spec
    of_rank = _roles_by_rank(spec, attempt.width)
    is_elastic = spec.array is None and spec.width_min < spec.width_max
    return Assignment(
        attempt=AttemptId(job.id, attempt.number),
        generation=generation,
        revision=attempt.revision,
        name=job.name,
        width=attempt.width,
        roles=tuple(
            _role(spec, role, attempt.width, job.gpu_memory_mib, of_rank.index(number) if of_rank else 0)
            for number, role in enumerate(spec.roles)
        ),
        slots=attempt.slots,
        role_of_rank=tuple(of_rank),
        indices=str(_without(spec.array.indices, done)) if spec.array else "",
        is_array=spec.array is not None,
        # Every place it ever had counts for the gang's size; an array's tasks stand alone.
        tasks=len(attempt.placements) if spec.array is None else len(spec.array.indices),
        nodes=tuple(dict.fromkeys(str(place["node"]) for place in attempt.placements)),
        workdir=spec.workdir,
        umask=spec.umask,
        environment=job.environment,
        env=spec.env,
        own=() if spec.array is not None else reporting.variables(spec, attempt),
        time_limit_s=None if spec.time_limit_s is None else max(1.0, spec.time_limit_s - attempt.resume.used_s),
        grace_s=spec.grace_s,
        manifest=job.manifest,
        has_begun=attempt.started_at is not None,
        is_elastic=is_elastic,
        rewrites_width=is_elastic and spec.rewrites_width,
        shares_mib=tuple(_share_mib(role, job.gpu_memory_mib) for role in spec.roles),
        tensorboard=spec.tensorboard,
        user=None if job.uid is None else job.owner,
        uid=job.uid,
        idle=spec.idle,
        container=spec.container,
        ranks=ranks_of(spec),
        files=spec.files,
        handed=tuple(one.name for one in spec.secrets) if spec.container else (),
    )


def _roles_by_rank(spec: JobSpec, width: int) -> list[int]:
    """Which role each rank has; empty: all have the first."""
    if len(spec.roles) == 1:
        return []
    return [number for number, (_, count) in enumerate(tasks_at(spec, width)) for _ in range(count)]


def _role(spec: JobSpec, role: Role, width: int, measured_mib: int | None, first_rank: int) -> LaunchRole:
    """What each of its tasks is started with; manifests of genai's manager follow the width (`width_words.py`)."""
    reserved = role.resources.with_share(measured_mib).gpu_memory_mib
    env = (*role.env, ("RESERVED_MEM", str(reserved))) if reserved else role.env
    beside = (role.numbered, first_rank, role.cpu_limit_milli)
    if spec.launcher is Launcher.MPI and not role.resources.gpus and MPI_SLOTS not in dict((*spec.env, *env)):
        env = (*env, (MPI_SLOTS, str(max(1, role.resources.cpus_milli // 1000))))
    if spec.launcher is not None:
        return LaunchRole(launch_words(spec.launcher, role.command), env, *beside)
    if not spec.rewrites_width:
        return LaunchRole(role.command, env, *beside)
    told = tuple((name, following_value(name, text, width)) for name, text in env)
    command = following_command(role.command, width, is_elastic=spec.width_min < spec.width_max)
    return LaunchRole(command, told, *beside)


def _share_mib(role: Role, measured_mib: int | None) -> int:
    """Of whole GPUs `gpu_memory_mib` is what each must have, and nothing is shared."""
    needs = role.resources.with_share(measured_mib)
    return needs.gpu_memory_mib if needs.is_share else 0


def _without(indices: IndexSet, done: frozenset[int]) -> IndexSet:
    if not done:
        return indices
    return IndexSet(tuple((index, index, 1) for index in indices if index not in done))
