"""Why does a JobSet wait whose Jobs want nodes to themselves, in words?"""

from __future__ import annotations

from collections import defaultdict

from swell.model.cluster import Node
from swell.model.job import Dimension
from swell.model.plan import JobView, Shape, Snapshot
from swell.model.reason import Code, Reason
from swell.planner.fit import find
from swell.planner.room import Room
from swell.planner.why.waiting import NAMES_SHOWN_MAX, WaitingJob

AFTER = "it starts when those have ended, or when other nodes get the label"
LABEL = "label more nodes, or ask for fewer or smaller Jobs; it starts as soon as nodes allow it"


def no_domain(waiting: WaitingJob) -> Reason:
    """Of a job that no domains are left for, as many as it has Jobs; its shape is as it was asked for."""
    snapshot, job = waiting.snapshot, waiting.job
    keys = [key for key, _ in job.shape.domains]
    key = max(sorted(set(keys)), key=keys.count)
    wanted = keys.count(key)
    domains = _domains(snapshot, key)
    users = {value: _users(snapshot, job, nodes) for value, nodes in domains.items()}
    able = [value for value, nodes in domains.items() if _could_hold(job, key, nodes)]
    taken = sorted({user for value in able for user in users[value]})
    there = f"of {len(domains)} domains {len(able)} could hold one"
    message = f"each of its {wanted} Jobs wants a domain ({key}) to itself; {there}"
    if taken:
        used = sum(bool(users[value]) for value in able)
        names = ", ".join(str(one) for one in taken[:NAMES_SHOWN_MAX])
        message += f", and {used} of those {'is' if used == 1 else 'are'} used by other JobSets (job {names})"
    evidence = waiting.evidence() | {"domains": len(domains), "domains_able": len(able), "held_by": taken}
    if len(able) >= wanted and taken:
        return Reason(Code.WAITING_FOR_ROOM, message, evidence, AFTER)
    return Reason(Code.NO_SUITABLE_NODE, message, evidence, LABEL)


def _domains(snapshot: Snapshot, key: str) -> dict[str, list[Node]]:
    found: defaultdict[str, list[Node]] = defaultdict(list)
    for node in snapshot.nodes:
        for name, value in node.labels or ():
            if name == key:
                found[value].append(node)
    return found


def _users(snapshot: Snapshot, job: JobView, nodes: list[Node]) -> list[int]:
    here = {node.id for node in nodes}
    return [
        one.id
        for one in snapshot.holding
        if one.shape.is_jobset and one.id != job.id and any(slot.node in here for slot in one.slots)
    ]


def _could_hold(job: JobView, key: str, nodes: list[Node]) -> bool:
    """A Job of it, were nobody there: the largest that wants such a domain."""
    for role, (resources, _) in enumerate(job.shape.tasks_at(job.shape.width_min)):
        rules = job.shape.rules_of(role)
        if rules is None or rules.domain is None or rules.domain.key != key:
            continue
        count = rules.domain.tasks
        group = (resources, count)
        shape = Shape((group,), Dimension.TASKS, count, count, is_array=False, time_limit_s=None, rules=(rules,))
        if find(shape, (Room.of(nodes),)) is None:
            return False
    return True
