"""How is a plan written down together with all that it was made from, and read again?

Plans are compared by their lines: one for each action and each verdict, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.model.codec import from_document, to_document
from swell.model.plan import Plan, Shape, Snapshot

FORMAT = "swell-plan/1"


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    policy: str
    snapshot: Snapshot
    lines: tuple[str, ...]  #: of the plan that was made


def plan_lines(plan: Plan) -> tuple[str, ...]:
    verdicts = (f"job {job}: {verdict}" for job, verdict in plan.verdicts.items())
    return (*map(str, plan.actions), *verdicts)


def recorded_plan(snapshot: Snapshot, plan: Plan, policy: str) -> dict[str, Any]:
    return {"format": FORMAT, "policy": policy, "snapshot": to_document(snapshot), "plan": list(plan_lines(plan))}


def parse_recorded_plan(document: Any) -> RecordedPlan:
    """Raises `TypeError`, `ValueError`, `KeyError` or `AttributeError` where it is none."""
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']!r}, not {FORMAT!r}")
    snapshot = from_document(Snapshot, document["snapshot"])
    shapes: dict[Shape, Shape] = {}  # equal shapes are one object to the planner
    jobs = tuple(replace(job, shape=shapes.setdefault(job.shape, job.shape)) for job in snapshot.jobs)
    lines = tuple(str(line) for line in document["plan"])
    return RecordedPlan(str(document["policy"]), replace(snapshot, jobs=jobs), lines)
