"""Commands that a reader types beside a server of their own do what the documents say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

import pytest

from e2e.containers import ContainerServer, free_port, podman
from server import Server

from .blocks import Block
from .reader import Reader, registered
from .recipes import Recipe, Tier
from .registry import RECIPES

pytestmark = pytest.mark.slow
CPUS = 32  # more than the simulated GPUs' jobs want


@contextmanager
def stage_of(recipe: Recipe, folder: Path) -> Iterator[Server]:
    made = (
        ContainerServer(folder, podman(), "--volume /usr:/usr:ro")
        if recipe.has_containers
        else Server(folder, cpus=CPUS)
    )
    with made as server:
        if not recipe.has_server:
            assert server.down().code == 0
        yield server


@pytest.mark.parametrize("block", registered(Tier.PRIVATE), ids=lambda block: block.key)
def test_a_block_does_what_it_shows(block: Block, tmp_path: Path) -> None:
    recipe = RECIPES[block.key]
    with stage_of(recipe, tmp_path) as server:
        known = {"state": str(server.root), "machine": gethostname(), "port": str(free_port())}
        if isinstance(server, ContainerServer):
            known["image"] = server.runtime.image
        Reader(tmp_path, server.environment(), known).follow(block, recipe, server)
