"""What would happen to jobs, were they submitted now, and which of them could never run?

The planner decides, as it would: first on the jobs that are there, then with the new ones among them. What the second
plan asks of running jobs, and the first does not, is done for the new ones. When they start is the same planner run
forward (`planner/forecast.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from swell.controller.curves import SharedCurves, script_of
from swell.controller.world import shape_of
from swell.model.cluster import Node
from swell.model.job import JobId, JobSpec, JobState
from swell.model.plan import JobView, Plan, Preempt, Resize, Shape, Snapshot
from swell.model.reason import Reason
from swell.model.training import SharedCurve
from swell.planner.forecast import RunLength, StartRange, run_forward, start_range
from swell.planner.why.explain import WaitingWords, explain
from swell.planner.why.unsuitable import Misfit, never_runs


@dataclass(frozen=True, slots=True)
class Change:
    """What a running job would be asked to give."""

    job: JobId
    width: int  #: that it has now
    new_width: int  #: 0: it would be preempted


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of one job that is not submitted."""

    name: str
    start: StartRange
    width: int | None  #: that it would start with; None: nobody can say
    nodes: tuple[str, ...]  #: where; empty: nobody can say
    reason: Reason | None  #: why it would wait; None: it would start at once
    changes: tuple[Change, ...]  #: what would be asked of others at once, for all the new jobs together


def what_if(
    snapshot: Snapshot,
    policy: Callable[[Snapshot], Plan],
    specs: Sequence[JobSpec],
    user: str,
    *,
    words: WaitingWords | None = None,
    curves: SharedCurves | None = None,
) -> list[Outlook]:
    """`curves`: what earlier jobs have measured; None: nothing."""
    known = SharedCurves() if curves is None else curves
    first = max((job.id for job in snapshot.jobs), default=0) + 1
    new = [
        _view(number, spec, user, snapshot.now, known.of(script_of(spec, user)))
        for number, spec in enumerate(specs, first)
    ]
    together = replace(snapshot, jobs=(*snapshot.jobs, *new))
    plan = policy(together)
    without = set(_changes(snapshot, policy(snapshot)))
    changes = tuple(one for one in _changes(together, plan) if one not in without)
    soon, late = (run_forward(together, policy, run_length).starts for run_length in (RunLength.SOON, RunLength.LATE))
    found = []
    for job, spec in zip(new, specs, strict=True):
        verdict = plan.verdicts.get(job.id)
        reason = None if verdict is None else explain(together, job, verdict, spec.kind, words=words)
        _, width, nodes = soon.get(job.id, (0.0, None, ()))
        start = start_range(soon.get(job.id), late.get(job.id), snapshot.now)
        found.append(Outlook(spec.name, start, width, nodes, reason, changes))
    return found


def _view(job: JobId, spec: JobSpec, user: str, now: float, curve: SharedCurve | None) -> JobView:
    return JobView(
        job,
        shape_of(spec),
        spec.priority,
        JobState.QUEUED,
        unfinished=spec.tasks_total if spec.array is not None else 1,
        mode=spec.resize.of(has_checkpoint=False),
        estimate_s=spec.estimate_s,
        waits_for=tuple(after.job for after in spec.after),
        lined_up_at=now,
        user=user,
        curve=curve,
    )


def _changes(snapshot: Snapshot, plan: Plan) -> list[Change]:
    found = []
    for action in plan.actions:
        job = snapshot.jobs_by_id[action.job]
        if isinstance(action, Resize) and action.width < job.width:
            found.append(Change(job.id, job.width, action.width))
        elif isinstance(action, Preempt):
            found.append(Change(job.id, job.width, 0))
    return found


def find_impossible(
    nodes: tuple[Node, ...], specs: Sequence[JobSpec], *, user: str, gpus_max: int | None, vias: Sequence[str]
) -> list[Misfit | None]:
    """For each of them why not, in the words of its `via`; None: it could. Jobs of one shape are looked at once."""
    known: dict[tuple[Shape, str, str], Misfit | None] = {}
    found: list[Misfit | None] = []
    for spec, via in zip(specs, vias, strict=True):
        key = shape_of(spec), spec.kind, via
        if key not in known:
            known[key] = never_runs(nodes, key[0], user=user, gpus_max=gpus_max, kind=spec.kind, via=via)
        found.append(known[key])
    return found
