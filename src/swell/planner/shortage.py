"""For which waiting jobs is there not enough in the cluster, so that another node would let them start?

Not for those that wait for something else: another job, their turn, a limit of their user, a pause before they are
tried again. A user's limits are counted down the line: a node that nobody may use must not be called for.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.model.job import JobId
from swell.model.placement import PlacementRules
from swell.model.plan import JobView, Place, Plan, Snapshot
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner.quota import UserTotals
from swell.planner.seat import least

LACKING = frozenset(
    {
        Code.CANNOT_RUN_HERE,
        Code.NO_SUITABLE_NODE,
        Code.NO_WORKER,
        Code.WORKER_UNREACHABLE,
        Code.WAITING_FOR_ROOM,
    }
)


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks that are alike."""

    resources: Resources  #: of one
    count: int
    rules: PlacementRules | None  #: which nodes they may go to; None: any


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a job lacks: all its tasks at its least width; of an array, one."""

    job: JobId
    groups: tuple[Group, ...]  #: by role

    @property
    def tasks(self) -> int:
        return sum(group.count for group in self.groups)


def find_shortages(snapshot: Snapshot, plan: Plan) -> tuple[Shortage, ...]:
    """In the order of the line."""
    totals = UserTotals(snapshot)
    for job in snapshot.holding:
        totals.add(job, job.places)
    found = []
    for number, verdict in plan.verdicts.items():
        job = snapshot.jobs_by_id[number]
        if verdict.code in LACKING and _is_its_turn(job, snapshot.now) and totals.allows(job):
            groups = _groups(job)
            totals.add(job, [place for group in groups for place in [Place("", group.resources)] * group.count])
            found.append(Shortage(job.id, groups))
    return tuple(found)


def _is_its_turn(job: JobView, now: float) -> bool:
    """Without any node everybody is told just that."""
    return not job.waits_for and (job.not_before is None or job.not_before <= now)


def _groups(job: JobView) -> tuple[Group, ...]:
    tasks = enumerate(least(job.shape))
    return tuple(Group(resources, count, job.shape.rules_of(role)) for role, (resources, count) in tasks)
