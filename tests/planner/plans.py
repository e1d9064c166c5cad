"""Plans in one line, for stories about running jobs."""

from __future__ import annotations

from dataclasses import replace

from swell.model.job import ResizeMode
from swell.model.plan import Plan, Preempt, Resize, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.planner import check_plan, make_plan

from .simulation import applied
from .world import world

NOW = 1000.0
AT_CHECKPOINT, IMMEDIATE, NEVER = ResizeMode.AT_CHECKPOINT, ResizeMode.IMMEDIATE, ResizeMode.NEVER
FOR_ROOM = Verdict(Code.WAITING_FOR_ROOM)


def plan_of(*things: object, now: float = NOW, arrivals: tuple[float, ...] = ()) -> Plan:
    """Checked, and made again from what it leads to: planning twice changes nothing."""
    snapshot = replace(world(*things, now=now), arrivals=arrivals)  # type: ignore[arg-type]
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    assert make_plan(applied(snapshot, plan)).actions == ()
    return plan


def starts(snapshot: Snapshot) -> dict[int, list[str]]:
    """The node of each task of those that start."""
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return {action.job: [slot.node for slot in action.slots] for action in plan.actions}  # type: ignore[union-attr]


def shrinks(job: int, width: int, room_for: int | None, deadline_s: float | None = 600.0) -> Resize:
    return Resize(job, width, AT_CHECKPOINT, deadline_s, room_for)


def grows(job: int, width: int, when: ResizeMode = AT_CHECKPOINT) -> Resize:
    return Resize(job, width, when, None, None)


def preempts(victim: int, winner: int, deadline_s: float | None = 600.0) -> Preempt:
    return Preempt(victim, AT_CHECKPOINT, deadline_s, winner)


def started(plan: Plan) -> dict[int, int]:
    return {action.job: action.width for action in plan.actions if isinstance(action, Start)}


def asked(plan: Plan) -> list[int]:
    return [action.job for action in plan.actions if isinstance(action, Resize | Preempt)]
