"""What runs containers, and on which machine?"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable

from swell.api.services import Services
from swell.api.turns import at_rest
from swell.errors import Rejected, Unavailable
from swell.model.cluster import Node
from swell.model.job import JobSpec

FIRST_NODE_S = 5.0  # a server that was just started hears from its worker within one
LOOK_AGAIN_S = 0.02
OF_ONE = "podman or docker; install one and start the server again (swell down, swell up -d)"
OF_USERS = (
    "podman, which runs containers as their users (docker cannot: who may talk to its engine is root); have the "
    "administrator install it and restart the service"
)


async def refuse_without_runtime(services: Services, specs: list[JobSpec]) -> None:
    """Where no machine has offered itself yet nobody can say; the worker itself refuses then."""
    asked = next((spec for spec in specs if spec.container is not None), None)
    if asked is None:
        return
    nodes = await offered(services, lambda nodes: bool(nodes))
    if nodes and not any(node.container_runtime for node in nodes.values()):
        assert asked.container is not None
        raise Rejected(
            f"job {asked.name!r} wants the image {asked.container.image!r}, but no machine here has "
            f"{OF_USERS if services.box is not None else OF_ONE}, or leave out the image"
        )


async def runtime_on(services: Services, name: str) -> list[str]:
    """The words that run containers there. A job outlives its server, whose workers come back a moment after it."""
    nodes = await offered(services, lambda nodes: name in nodes)
    if name not in nodes:
        raise Unavailable(
            f"the worker on {name} has not spoken to the server yet; try again, or see worker.log in the state folder"
        )
    return shlex.split(nodes[name].container_runtime)


async def offered(services: Services, is_enough: Callable[[dict[str, Node]], bool]) -> dict[str, Node]:
    """The machines, once they are enough, or after a while."""
    until = asyncio.get_running_loop().time() + FIRST_NODE_S
    while True:
        nodes = {node.id: node for node in services.controller.snapshot.nodes}
        if is_enough(nodes) or asyncio.get_running_loop().time() >= until:
            return nodes
        async with at_rest():
            await asyncio.sleep(LOOK_AGAIN_S)
