"""Commands that a reader types beside a cluster do what the documents say: pods on a real kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.binaries import program
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.starting import module_cluster
from server import Server

from .blocks import Block
from .reader import Reader, registered
from .recipes import Tier
from .registry import RECIPES

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
cluster = module_cluster(kubelets=1, gpus=4, images=("python",))


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    server: Server


@contextmanager
def staged(cluster: Cluster, folder: Path) -> Iterator[Stage]:
    """A server that has been used with this cluster and is down: every block begins with `swell up`, or comes after."""
    options = ["--engine", "kubernetes", "--kubeconfig", str(cluster.kubeconfig)]
    options += ["--reservation-image", name_of("busybox")]
    found = {"PATH": f"{program('kubectl').parent}:/usr/bin:/bin", "KUBECONFIG": str(cluster.kubeconfig)}
    with Server(folder, *options, gpus=None, env=found) as server:
        yield Stage(cluster, server)


@pytest.mark.parametrize("block", registered(Tier.CLUSTER), ids=lambda block: block.key)
def test_a_block_does_what_it_shows(block: Block, cluster: Cluster, tmp_path: Path) -> None:
    recipe = RECIPES[block.key]
    [node] = [node["metadata"]["name"] for node in cluster.api.get("/api/v1/nodes")["items"]]
    known = {
        "node": node,
        "kubeconfig": str(cluster.kubeconfig),
        "image": name_of("python"),
        "busybox": name_of("busybox"),
    }
    with staged(cluster, tmp_path) as stage:
        if not recipe.has_server:
            assert stage.server.down().code == 0
        reader = Reader(tmp_path, stage.server.environment(), {**known, "state": str(stage.server.root)})
        reader.follow(block, recipe, stage)
