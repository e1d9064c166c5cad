"""Why could a job not start even if nobody else were there, in words?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.model.cluster import GPU_MEMORY_LABEL, Node, with_lost_gpus
from swell.model.job import JobState
from swell.model.placement import Company
from swell.model.plan import JobView, Shape, Snapshot, Standing
from swell.model.quantity import number_of
from swell.model.reason import Code, Evidence, Reason
from swell.model.resources import Resources
from swell.planner.nodes import counted
from swell.planner.plan import make_plan
from swell.planner.room import Room
from swell.planner.why.asking import asking
from swell.planner.why.facts import forbidden_nodes, offered
from swell.planner.why.waiting import NAMES_SHOWN_MAX, WaitingJob, nearest, tasks


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wanted beside what there is, in words."""

    problem: str  #: "it wants …, but this machine has …"
    lower: str  #: what could be asked for instead


def find_misfit(waiting: WaitingJob) -> Misfit | None:
    """Of a job that is too large for everything there is; None: nobody knows how much memory the GPUs have."""
    if _of_unknown_memory(waiting):
        return None
    problem, lower = _too_large(waiting, _largest(waiting)) or _too_many(waiting)
    return Misfit(f"it wants {waiting.wants}, but {problem}", lower)


def find_over_limit(waiting: WaitingJob) -> Misfit | None:
    """Of a job that wants more than its user may ever hold; None: it may have that."""
    user = waiting.job.user
    gpus_max = waiting.snapshot.users.get(user, Standing()).gpus_max
    if gpus_max is None or waiting.gpus <= gpus_max:
        return None
    return Misfit(
        f"it wants {waiting.wants}, but {user} may hold at most {number_of(gpus_max, 'GPU')}",
        waiting.asking.fewer_gpus(gpus_max),
    )


def cannot_run_here(waiting: WaitingJob) -> Reason:
    largest = _largest(waiting)
    evidence = waiting.evidence()
    evidence |= {"largest_node_cpus": largest.cpus_milli / 1000, "largest_node_gpus": largest.gpus}
    evidence |= {"largest_node_memory_mib": largest.memory_mib}
    misfit = find_misfit(waiting)
    if misfit is None:
        return _memory_not_known(waiting, _of_unknown_memory(waiting), evidence)
    message = f"{misfit.problem}; waiting will not help"
    following = f"cancel it and submit it again with {misfit.lower}, or add a node"
    return Reason(Code.CANNOT_RUN_HERE, message, evidence, following)


def _largest(waiting: WaitingJob) -> Resources:
    """What the node has that comes nearest to holding a task, were nobody else there."""
    room = _empty(waiting)
    return nearest((offered(room, node) for node in room.nodes), waiting.task)


def _empty(waiting: WaitingJob) -> Room:
    return Room.of(with_lost_gpus(waiting.snapshot.nodes))


def _of_unknown_memory(waiting: WaitingJob) -> list[str]:
    """Nodes that would do, if only somebody said how much memory their GPUs have."""
    task = waiting.task
    if not task.gpu_memory_mib:
        return []
    otherwise = replace(task, gpus=max(1, task.gpus), gpu_memory_mib=0)
    return sorted(
        node.id
        for node in waiting.snapshot.nodes
        if any(device.memory_mib == 0 for device in node.devices) and otherwise.fits_in(node.capacity)
    )


def _memory_not_known(waiting: WaitingJob, nodes: list[str], evidence: Evidence) -> Reason:
    named = ", ".join(nodes[:NAMES_SHOWN_MAX]) + (" …" if len(nodes) > NAMES_SHOWN_MAX else "")
    message = (
        f"it wants {waiting.wants}, but the GPU memory of {named} is unknown: the label "
        f"{GPU_MEMORY_LABEL} is missing there"
    )
    following = (
        f"label the nodes (`kubectl label node {nodes[0]} {GPU_MEMORY_LABEL}=MIB`; NVIDIA's GPU "
        "feature discovery sets it automatically), or cancel it and submit it again with whole GPUs"
    )
    return Reason(Code.CANNOT_RUN_HERE, message, evidence | {"gpu_memory_unknown": ", ".join(nodes)}, following)


def _too_large(waiting: WaitingJob, largest: Resources) -> tuple[str, str] | None:
    """One task alone does not fit; None when it does."""
    less = waiting.asking.less(waiting.task, largest)
    where = "this machine has" if waiting.is_one_machine else "the closest node has"
    return (f"{where} {largest.as_far_as(waiting.task)}", less) if less else None


def _too_many(waiting: WaitingJob) -> tuple[str, str]:
    """Each task fits, all together do not."""
    where = "on this machine" if waiting.is_one_machine else "on all nodes"
    if len(waiting.groups) > 1:
        return f"they do not all fit {where}", "fewer or smaller tasks"
    room = _empty(waiting)
    fitting = sum(room.copies(node, waiting.task) for node in room.nodes)
    return f"only {tasks(fitting)} fit{'s' if fitting == 1 else ''} {where}", waiting.asking.fewer(fitting)


def no_suitable_node(waiting: WaitingJob) -> Reason:
    snapshot, rules = waiting.snapshot, waiting.job.shape.rules
    forbidden = forbidden_nodes(snapshot, rules)
    problems = counted(forbidden.values())
    total, allowed = len(snapshot.nodes), len(snapshot.nodes) - len(forbidden)
    if not allowed:
        message = f"it wants {waiting.wants}, but its placement rules allow none of the {total} nodes"
    else:
        message = (
            f"it wants {waiting.wants}{_company(waiting)}, and the {allowed} of {total} nodes that "
            "its placement rules allow "
        )
        message += "could not hold that even if they were empty"
    message = "; ".join((message, *problems[:NAMES_SHOWN_MAX]))
    evidence = waiting.evidence() | {"nodes_allowed": allowed, "objections": problems}
    following = "change its node selector, affinity or tolerations, or label, untaint or uncordon a node"
    return Reason(Code.NO_SUITABLE_NODE, message, evidence, f"{following}; it starts as soon as nodes allow it")


def _company(waiting: WaitingJob) -> str:
    wanted = {one.company for one in waiting.job.shape.rules if one is not None}
    words = {Company.APART: "on as many different nodes", Company.TOGETHER: "all on one node"}
    found = " and ".join(words[one] for one in words if one in wanted)
    return f" {found}" if found else ""


WAITS_FOR_EVER = {Code.CANNOT_RUN_HERE: find_misfit, Code.USER_LIMIT: find_over_limit}


def never_runs(
    nodes: tuple[Node, ...], shape: Shape, *, user: str = "", gpus_max: int | None = None, kind: str = "", via: str = ""
) -> Misfit | None:
    """Why not, and what to ask for instead; None: it could, or nobody can say yet.

    `gpus_max`: what its user may hold at once; None: no limit. `kind`: of the object it was written as; empty: in our
    own notation. `via`: what it was submitted with, whose words are used.
    """
    job = JobView(0, shape, 0, JobState.QUEUED, user=user)
    snapshot = Snapshot(0.0, nodes, (job,), users={user: Standing(gpus_max=gpus_max)})
    verdict = make_plan(snapshot).verdicts.get(job.id)
    if verdict is None or verdict.code not in WAITS_FOR_EVER:
        return None
    return WAITS_FOR_EVER[verdict.code](WaitingJob(snapshot, job, verdict, asking(kind, via)))
