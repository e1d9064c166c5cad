"""Where do the ranks of a gang on several machines meet?

At the address of rank 0's machine, and at a port that its worker has found to be free there. No rank begins before
every worker has taken its part on, so a gang begins whole.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from swell.model.assignment import Assignment
from swell.model.cluster import Node, NodeId
from swell.model.launch import Rendezvous


def unreachable_host(nodes: Sequence[Node]) -> str:
    """Why the ranks on these nodes cannot reach each other, and what to do; empty: nothing is known against it."""
    if len({node.machine for node in nodes}) < 2 and len({_is_loopback(node.address) for node in nodes}) < 2:
        return ""
    for node in nodes:
        others = [other.id for other in nodes if not _is_beside(node, other)]
        if _is_loopback(node.address) and others:
            return (
                f"tasks on {', '.join(others)} cannot reach {node.id} at {node.address}, which is a loopback address; "
                f"start the worker on {node.id} with --address HOST"
            )
    return ""


def _is_beside(node: Node, other: Node) -> bool:
    return node.machine == other.machine and _is_loopback(other.address)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def needs_rendezvous(assignment: Assignment) -> bool:
    return not assignment.is_array and len(assignment.nodes) > 1


def rendezvous_of(
    assignment: Assignment, *, ports: Mapping[NodeId, int], addresses: Mapping[NodeId, str]
) -> Rendezvous | None:
    """None: a worker has not taken its part on yet, or has not said where its machine is reached.

    `ports`: of the workers that have taken their parts on.
    """
    nodes = assignment.nodes
    if any(node not in ports or not addresses.get(node) for node in nodes) or not ports[nodes[0]]:
        return None
    by_rank = {slot.number: nodes.index(slot.node) for slot in assignment.slots}
    return Rendezvous(
        ports[nodes[0]],
        tuple(addresses[node] for node in nodes),
        tuple(by_rank[rank] for rank in range(assignment.tasks)),
    )
