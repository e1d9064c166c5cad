"""Which part of an attempt does each worker run?"""

from __future__ import annotations

from collections.abc import Iterable

from swell.model.assignment import Assignment
from swell.model.cluster import NodeId
from swell.model.launch import Lane, Launch, Rendezvous
from swell.model.plan import Slot
from swell.model.quantity import IndexSet


def render_launches(assignment: Assignment, rendezvous: Rendezvous | None = None) -> tuple[Launch, ...]:
    """One for each node that the attempt has ever been on. `rendezvous`: None until the workers have agreed."""
    return tuple(_launch(assignment, node, rendezvous) for node in assignment.nodes)


def _launch(whole: Assignment, node: NodeId, rendezvous: Rendezvous | None) -> Launch:
    here = [slot for slot in whole.slots if slot.node == node]
    return Launch(
        attempt=whole.attempt,
        node=node,
        generation=whole.generation,
        revision=whole.revision,
        name=whole.name,
        roles=whole.roles,
        workdir=whole.workdir,
        umask=whole.umask,
        environment=whole.environment,
        env=whole.env,
        own=whole.own,
        lanes=tuple(_lane(whole, slot) for slot in here if not slot.is_draining),
        indices=whole.indices if whole.is_array else _ranks(here),
        is_array=whole.is_array,
        world_size=whole.tasks,
        nodes=whole.nodes,
        time_limit_s=whole.time_limit_s,
        grace_s=whole.grace_s,
        tensorboard=whole.tensorboard if node == whole.nodes[0] else None,
        user=whole.user,
        uid=whole.uid,
        idle=whole.idle,
        container=whole.container,
        ranks=whole.ranks,
        rendezvous=rendezvous,
        files=whole.files,
        handed=whole.handed,
    )


def _lane(whole: Assignment, slot: Slot) -> Lane:
    given, role = slot.resources, whole.role_of(slot)
    limit = whole.roles[role].cpu_limit_milli
    return Lane(slot.number, slot.devices, role, given.memory_mib, given.cpus_milli, limit)


def _ranks(slots: Iterable[Slot]) -> str:
    return str(IndexSet(tuple((slot.number, slot.number, 1) for slot in slots)))
