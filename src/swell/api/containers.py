"""Is there a machine that can run the containers of a submission?"""

from __future__ import annotations

import asyncio

from swell.api.services import Services
from swell.errors import Rejected
from swell.model.job import JobSpec

FIRST_NODE_S = 5.0  # a server that was just started hears from its worker within one
LOOK_AGAIN_S = 0.02


async def refuse_without_runtime(services: Services, specs: list[JobSpec]) -> None:
    """Where no machine has offered itself yet nobody can say; the worker itself refuses then."""
    asked = next((spec for spec in specs if spec.container is not None), None)
    if asked is None:
        return
    nodes = services.controller.snapshot.nodes
    until = asyncio.get_running_loop().time() + FIRST_NODE_S
    while not nodes and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(LOOK_AGAIN_S)
        nodes = services.controller.snapshot.nodes
    if nodes and not any(node.container_runtime for node in nodes):
        assert asked.container is not None
        raise Rejected(
            f"job {asked.name!r} wants the image {asked.container.image!r}, but no machine here has podman or docker; "
            "install one and start the server again (swell down, swell up -d), or leave out the image"
        )
