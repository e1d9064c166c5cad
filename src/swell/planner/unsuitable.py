"""Why could a job not start even if nobody else were there, in words?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.model.cluster import GPU_MEMORY_LABEL, with_lost_gpus
from swell.model.placement import Company
from swell.model.plan import Standing
from swell.model.reason import Code, Evidence, Reason
from swell.model.resources import Resources
from swell.planner.allow import counted
from swell.planner.case import NAMES_SHOWN_MAX, Case, nearest, tasks
from swell.planner.facts import forbidden_nodes, offered
from swell.planner.room import Room


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wanted beside what there is, in words."""

    problem: str  #: "it wants …, but this machine has …"
    lower: str  #: what could be asked for instead


def find_misfit(case: Case) -> Misfit | None:
    """Of a job that is too large for everything there is; None: nobody knows how much memory the GPUs have."""
    if _of_unknown_memory(case):
        return None
    problem, lower = _too_large(case, _largest(case)) or _too_many(case)
    return Misfit(f"it wants {case.wants}, but {problem}", lower)


def find_over_limit(case: Case) -> Misfit | None:
    """Of a job that wants more than its user may ever hold; None: it may have that."""
    user = case.job.user
    gpus_max = case.snapshot.users.get(user, Standing()).gpus_max
    if gpus_max is None or case.gpus <= gpus_max:
        return None
    return Misfit(
        f"it wants {case.wants}, but {user} may hold at most {gpus_max} GPUs", case.asking.fewer_gpus(gpus_max)
    )


def cannot_run_here(case: Case) -> Reason:
    largest = _largest(case)
    evidence = case.evidence()
    evidence |= {"largest_node_cpus": largest.cpus_milli / 1000, "largest_node_gpus": largest.gpus}
    evidence |= {"largest_node_memory_mib": largest.memory_mib}
    misfit = find_misfit(case)
    if misfit is None:
        return _memory_not_known(case, _of_unknown_memory(case), evidence)
    message = f"{misfit.problem}; waiting will not help"
    following = f"cancel it and submit it again with {misfit.lower}, or add a machine"
    return Reason(Code.CANNOT_RUN_HERE, message, evidence, following)


def _largest(case: Case) -> Resources:
    """What the node has that comes nearest to holding a task, were nobody else there."""
    room = _empty(case)
    return nearest((offered(room, node) for node in room.nodes), case.task)


def _empty(case: Case) -> Room:
    return Room.of(with_lost_gpus(case.snapshot.nodes))


def _of_unknown_memory(case: Case) -> list[str]:
    """Nodes that would do, if only somebody said how much memory their GPUs have."""
    task = case.task
    if not task.gpu_memory_mib:
        return []
    otherwise = replace(task, gpus=max(1, task.gpus), gpu_memory_mib=0)
    return sorted(
        node.id
        for node in case.snapshot.nodes
        if any(device.memory_mib == 0 for device in node.devices) and otherwise.fits_in(node.capacity)
    )


def _memory_not_known(case: Case, nodes: list[str], evidence: Evidence) -> Reason:
    named = ", ".join(nodes[:NAMES_SHOWN_MAX]) + (" …" if len(nodes) > NAMES_SHOWN_MAX else "")
    message = (
        f"it wants {case.wants}, but how much memory the GPUs of {named} have is not known: "
        f"the label {GPU_MEMORY_LABEL} is missing there"
    )
    following = (
        f"label the nodes (`kubectl label node {nodes[0]} {GPU_MEMORY_LABEL}=MIB`; NVIDIA's GPU feature discovery "
        "does it by itself), or cancel it and submit it again with whole GPUs"
    )
    return Reason(Code.CANNOT_RUN_HERE, message, evidence | {"gpu_memory_unknown": ", ".join(nodes)}, following)


def _too_large(case: Case, largest: Resources) -> tuple[str, str] | None:
    """One task alone does not fit; None when it does."""
    less = case.asking.less(case.task, largest)
    where = "this machine has" if case.is_one_machine else "the node that comes nearest has"
    return (f"{where} {largest.as_far_as(case.task)}", less) if less else None


def _too_many(case: Case) -> tuple[str, str]:
    """Each task fits, all together do not."""
    where = "on this machine" if case.is_one_machine else "on all nodes together"
    if len(case.groups) > 1:
        return f"they do not all fit {where}", "fewer or smaller tasks"
    room = _empty(case)
    fitting = sum(room.copies(node, case.task) for node in room.nodes)
    return f"only {tasks(fitting)} fit{'s' if fitting == 1 else ''} {where}", case.asking.fewer(fitting)


def no_suitable_node(case: Case) -> Reason:
    snapshot, rules = case.snapshot, case.job.shape.rules
    forbidden = forbidden_nodes(snapshot, rules)
    problems = counted(forbidden.values())
    total, allowed = len(snapshot.nodes), len(snapshot.nodes) - len(forbidden)
    if not allowed:
        message = f"it wants {case.wants}, but its rules allow none of the {total} nodes"
    else:
        message = f"it wants {case.wants}{_company(case)}, and the {allowed} of {total} nodes that its rules allow "
        message += "could not hold that if they were empty"
    message = "; ".join((message, *problems[:NAMES_SHOWN_MAX]))
    evidence = case.evidence() | {"nodes_allowed": allowed, "objections": problems}
    following = "change its node selector, affinity or tolerations, or label, untaint or uncordon a node"
    return Reason(Code.NO_SUITABLE_NODE, message, evidence, f"{following}; it starts as soon as nodes allow it")


def _company(case: Case) -> str:
    wanted = {one.company for one in case.job.shape.rules if one is not None}
    words = {Company.APART: "on as many different nodes", Company.TOGETHER: "all on one node"}
    found = " and ".join(words[one] for one in words if one in wanted)
    return f" {found}" if found else ""
