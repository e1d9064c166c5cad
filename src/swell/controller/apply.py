"""How does a decision become an effect?

First as a change to be stored (`enact`), then, when that is on disk, as calls to the engine (`carry_out`).
Nothing here writes "running": it asks, and the next look at the world says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from swell.controller.observe import Effect, Forget, Stop
from swell.controller.world import LiveJob, World, with_slots
from swell.engines import Engine
from swell.model.job import AttemptId, JobState
from swell.model.launch import Lane, Launch
from swell.model.plan import Plan, SetSlots, Slot, Start
from swell.model.quantity import IndexSet
from swell.model.reason import Code
from swell.store import AttemptRecord, Changes, EventRecord, JobRecord


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell the engine about an attempt, new or with other lanes."""

    attempt: AttemptRecord
    done: frozenset[int] = frozenset()  #: an array's indices that earlier attempts have ended


def enact(world: World, plan: Plan, changes: Changes, now: float) -> list[Begin]:
    """What the plan changes; a plan that changes nothing writes nothing."""
    begins = []
    for action in plan.actions:
        job = world.jobs[action.job]
        if isinstance(action, Start):
            _start(job, action, changes, now)
        else:
            _set_slots(job, action, changes)
        assert job.attempt is not None
        begins.append(Begin(job.attempt, done_before(job)))
    for job_id, verdict in plan.verdicts.items():
        job = world.jobs[job_id]
        if job.reason is not verdict.code:
            job.reason, job.evidence = verdict.code, {}
            changes.set_job(job_id, reason_code=str(verdict.code), reason_evidence={})
    return begins


def _start(job: LiveJob, start: Start, changes: Changes, now: float) -> None:
    job.attempts += 1
    job.begun_now.clear()
    if not job.shape.is_array:
        job.tasks_total = len(start.slots)  # a gang that is elastic in tasks has as many as it was given
    job.nodes = tuple(dict.fromkeys(slot.node for slot in start.slots))
    job.state, job.reason, job.evidence = JobState.STARTING, Code.STARTING, {"nodes": ", ".join(job.nodes)}
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
        ),
        changes,
    )
    job.write(changes)
    detail = {"attempt": job.attempts, "width": start.width, "nodes": list(job.nodes)}
    changes.events.append(EventRecord("Started", job.id, detail=detail))


def _placement(slot: Slot) -> dict[str, Any]:
    return {"task": slot.number, "node": slot.node, "devices": list(slot.devices)}


def _set_slots(job: LiveJob, action: SetSlots, changes: Changes) -> None:
    assert job.attempt is not None
    job.set_attempt(with_slots(job.attempt, action.slots, revision=job.attempt.revision + 1), changes)
    job.write(changes)


def done_before(job: LiveJob) -> frozenset[int]:
    """What a later attempt of an array need not do again. In the first nothing was done before."""
    return frozenset(job.ended) - job.begun_now if job.attempts > 1 and job.shape.is_array else frozenset()


def carry_out(engine: Engine, effects: Iterable[Effect], generation: int) -> None:
    for effect in effects:
        if isinstance(effect, Stop):
            engine.stop(effect.attempt, effect.grace_s, generation)
        else:
            assert isinstance(effect, Forget)
            engine.forget(effect.attempt)


def begin(engine: Engine, begins: Iterable[Begin], generation: int, read: Callable[[int], JobRecord]) -> None:
    for one in begins:
        engine.start(launches(read(one.attempt.job_id), one.attempt, generation, one.done))


def launches(
    job: JobRecord, attempt: AttemptRecord, generation: int, done: frozenset[int] = frozenset()
) -> tuple[Launch, ...]:
    """One launch per node, the same for the same attempt whenever it is made."""
    spec = job.spec
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
            command=spec.roles[0].command,
            workdir=spec.workdir,
            umask=spec.umask,
            environment=job.environment,
            env=spec.env,
            lanes=tuple(_lane(slot) for slot in attempt.slots if slot.node == node and not slot.is_draining),
            indices=str(_without(spec.array.indices, done)) if spec.array else _ranks(attempt.slots, node),
            is_array=spec.array is not None,
            world_size=world_size if spec.array is None else len(spec.array.indices),
            nodes=nodes,
            time_limit_s=spec.time_limit_s,
            grace_s=spec.grace_s,
        )
        for node in nodes
    )


def _lane(slot: Slot) -> Lane:
    return Lane(slot.number, slot.devices)


def _without(indices: IndexSet, done: frozenset[int]) -> IndexSet:
    if not done:
        return indices
    return IndexSet(tuple((index, index, 1) for index in indices if index not in done))


def _ranks(slots: tuple[Slot, ...], node: str) -> str:
    ranks = [slot.number for slot in slots if slot.node == node]
    return str(IndexSet(tuple((rank, rank, 1) for rank in ranks)))
