"""Could a job ever run here, were it alone?

Asked before it is accepted, with the rule that the planner itself goes by: what outsiders use, what others hold, and
nodes and GPUs that do not answer at the moment count as there.
"""

from __future__ import annotations

from swell.model.cluster import Node
from swell.model.job import JobState
from swell.model.plan import JobView, Shape, Snapshot, Standing
from swell.model.reason import Code
from swell.planner.asking import asking
from swell.planner.case import Case
from swell.planner.plan import make_plan
from swell.planner.unsuitable import Misfit, find_misfit, find_over_limit

WAITS_FOR_EVER = {Code.CANNOT_RUN_HERE: find_misfit, Code.USER_LIMIT: find_over_limit}


def never_runs(
    nodes: tuple[Node, ...], shape: Shape, *, user: str = "", gpus_max: int | None = None, kind: str = ""
) -> Misfit | None:
    """Why not, and what to ask for instead; None: it could, or nobody can say yet.

    `gpus_max`: what its user may hold at once; None: no limit. `kind`: of the object it was written as; empty: in our
    own notation.
    """
    job = JobView(0, shape, 0, JobState.QUEUED, user=user)
    snapshot = Snapshot(0.0, nodes, (job,), users={user: Standing(gpus_max=gpus_max)})
    verdict = make_plan(snapshot).verdicts.get(job.id)
    if verdict is None or verdict.code not in WAITS_FOR_EVER:
        return None
    return WAITS_FOR_EVER[verdict.code](Case(snapshot, job, verdict, asking(kind)))
