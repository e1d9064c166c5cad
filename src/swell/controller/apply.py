"""How does a decision become an effect?

First as a change to be stored (`enact`), then, when that is on disk, as calls to the engine (`carry_out`).
Nothing here writes "running": it asks, and the next look at the world says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from swell.controller.livejob import LiveJob
from swell.controller.observe import Effect, Forget
from swell.controller.reporting import Reporting
from swell.controller.world import World, with_slots
from swell.controller.yielding import Stop, ask
from swell.engines import Engine
from swell.model.job import AttemptId, Dimension, JobId, JobSpec, JobState, Role
from swell.model.launch import Lane, Launch, LaunchRole
from swell.model.launcher import launch_words
from swell.model.plan import Plan, Preempt, Resize, SetSlots, Slot, Start
from swell.model.quantity import IndexSet
from swell.model.reason import Code
from swell.model.task_environment import ranks_of
from swell.model.training import Resume
from swell.store import AttemptRecord, Changes, EventRecord, JobRecord

NUM_PROCESSES = re.compile(r"--num_processes=\d+")


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
        if job.reason is not verdict.code:
            job.reason, job.evidence = verdict.code, {}
            changes.set_job(job_id, reason_code=str(verdict.code), reason_evidence={})
    return begins, stops


def _ask(world: World, job: LiveJob, action: Resize | Preempt, changes: Changes, now: float) -> list[Stop]:
    width = action.width if isinstance(action, Resize) else 0
    assert job.attempt is not None
    if isinstance(action, Preempt):
        cause = f"preempted by job {action.room_for}"
    elif width == job.wanted_width:
        cause = f"scaled to {width} by hand"
    elif width > job.attempt.width:
        cause = f"grows from {job.attempt.width} to {width}"
    elif action.room_for is not None:
        cause = f"shrinks from {job.attempt.width} to {width} for job {action.room_for}"
    else:
        cause = f"shrinks from {job.attempt.width} to {width}, of more use elsewhere"
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
    )


def _start(job: LiveJob, start: Start, changes: Changes, now: float) -> None:
    job.attempts += 1
    job.begun_now.clear()
    job.trouble = {}
    if not job.shape.is_array:
        job.tasks_total = len(start.slots)  # a gang that is elastic in tasks has as many as it was given
    job.nodes = tuple(dict.fromkeys(slot.node for slot in start.slots))
    job.state, job.reason, job.evidence = JobState.STARTING, Code.STARTING, {"nodes": ", ".join(job.nodes)}
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
    detail = {"attempt": job.attempts, "width": start.width, "nodes": list(job.nodes), "waited_s": waited_s}
    changes.events.append(EventRecord("Started", job.id, detail=detail))


def _resume(job: LiveJob) -> Resume:
    checkpoint = None if job.training is None else job.training.checkpoint
    if checkpoint is None:
        return Resume(used_s=job.used_s)
    return Resume(checkpoint.epochs_done, checkpoint.path, job.used_s)


def _placement(slot: Slot) -> dict[str, Any]:
    return {"task": slot.number, "node": slot.node, "devices": list(slot.devices)}


def _set_slots(job: LiveJob, action: SetSlots, changes: Changes, now: float) -> None:
    assert job.attempt is not None
    working = sum(not slot.is_draining for slot in action.slots)
    changed = with_slots(job.attempt, action.slots, now)
    job.set_attempt(replace(changed, revision=job.attempt.revision + 1, width=working), changes)
    job.write(changes)


def done_before(job: LiveJob) -> frozenset[int]:
    """What a later attempt of an array need not do again. In the first nothing was done before."""
    return frozenset(job.ended) - job.begun_now if job.attempts > 1 and job.shape.is_array else frozenset()


def carry_out(engine: Engine, effects: Iterable[Effect], generation: int) -> None:
    for effect in effects:
        if isinstance(effect, Stop):
            engine.stop(effect.attempt, effect.grace_s, generation)
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
        engine.start(launches(records[one.attempt.job_id], one.attempt, generation, reporting, one.done))


def launches(
    job: JobRecord,
    attempt: AttemptRecord,
    generation: int,
    reporting: Reporting,
    done: frozenset[int] = frozenset(),
) -> tuple[Launch, ...]:
    """One launch per node, the same for the same attempt whenever it is made."""
    spec = job.spec
    own = () if spec.array is not None else reporting.variables(spec, attempt)
    of_rank = _roles_by_rank(spec, attempt.width)
    roles = tuple(
        _role(spec, role, attempt.width, job.gpu_memory_mib, of_rank.index(number) if of_rank else 0)
        for number, role in enumerate(spec.roles)
    )
    is_elastic = spec.array is None and spec.width_min < spec.width_max
    limit_s = None if spec.time_limit_s is None else max(1.0, spec.time_limit_s - attempt.resume.used_s)
    nodes = tuple(dict.fromkeys(str(place["node"]) for place in attempt.placements))
    # Every place it ever had counts for the gang's size; an array's tasks stand alone.
    world_size = len(attempt.placements) if spec.array is None else 1
    return tuple(
        Launch(
            attempt=AttemptId(job.id, attempt.number),
            node=node,
            generation=generation,
            revision=attempt.revision,
            name=job.name,
            roles=roles,
            workdir=spec.workdir,
            umask=spec.umask,
            environment=job.environment,
            env=spec.env,
            own=own,
            lanes=tuple(_lane(slot, of_rank) for slot in attempt.slots if slot.node == node and not slot.is_draining),
            indices=str(_without(spec.array.indices, done)) if spec.array else _ranks(attempt.slots, node),
            is_array=spec.array is not None,
            world_size=world_size if spec.array is None else len(spec.array.indices),
            nodes=nodes,
            time_limit_s=limit_s,
            grace_s=spec.grace_s,
            tensorboard=spec.tensorboard if node == nodes[0] else None,
            user=None if job.uid is None else job.owner,
            uid=job.uid,
            idle=spec.idle,
            container=spec.container,
            ranks=ranks_of(spec),
            width=attempt.width,
            is_elastic=is_elastic,
            rewrites_width=is_elastic and spec.rewrites_width,
            manifest=job.manifest,
            has_begun=attempt.started_at is not None,
            shares_mib=tuple(_share_mib(role, job.gpu_memory_mib) for role in spec.roles),
            draining=tuple(_lane(slot, of_rank) for slot in attempt.slots if slot.node == node and slot.is_draining),
        )
        for node in nodes
    )


def _lane(slot: Slot, of_rank: list[int]) -> Lane:
    role, given = of_rank[slot.number] if of_rank else 0, slot.resources
    return Lane(slot.number, slot.devices, role, given.memory_mib, given.cpus_milli)


def _roles_by_rank(spec: JobSpec, width: int) -> list[int]:
    """Which role each rank has; empty: all have the first."""
    if len(spec.roles) == 1:
        return []
    counts = [role.count for role in spec.roles]
    if spec.dimension is Dimension.TASKS:
        counts[0] = width
    return [number for number, count in enumerate(counts) for _ in range(count)]


def _role(spec: JobSpec, role: Role, width: int, measured_mib: int | None, first_rank: int) -> LaunchRole:
    """Manifests of genai's manager follow the width: a variable NGPU, and `--num_processes=` in the command."""
    reserved = role.resources.with_share(measured_mib).gpu_memory_mib
    env = (*role.env, ("RESERVED_MEM", str(reserved))) if reserved else role.env
    if spec.launcher is not None:
        return LaunchRole(launch_words(spec.launcher, role.command), env, role.numbered, first_rank)
    if not spec.rewrites_width:
        return LaunchRole(role.command, env, role.numbered, first_rank)
    told = tuple((name, str(width) if name == "NGPU" else text) for name, text in env)
    command = tuple(NUM_PROCESSES.sub(f"--num_processes={width}", word) for word in role.command)
    return LaunchRole(command, told, role.numbered, first_rank)


def _share_mib(role: Role, measured_mib: int | None) -> int:
    """Of whole GPUs `gpu_memory_mib` is what each must have, and nothing is shared."""
    needs = role.resources.with_share(measured_mib)
    return needs.gpu_memory_mib if needs.is_share else 0


def _without(indices: IndexSet, done: frozenset[int]) -> IndexSet:
    if not done:
        return indices
    return IndexSet(tuple((index, index, 1) for index in indices if index not in done))


def _ranks(slots: tuple[Slot, ...], node: str) -> str:
    ranks = [slot.number for slot in slots if slot.node == node]
    return str(IndexSet(tuple((rank, rank, 1) for rank in ranks)))
