from __future__ import annotations

from collections.abc import Iterator

import pytest

from pools.slurm_cluster import SlurmCluster
from server import Server


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, slurm: SlurmCluster) -> Iterator[Server]:
    """Its own machine has one CPU to offer: what wants two needs a worker of a pool."""
    with Server(tmp_path_factory.mktemp("server"), gpus=0, cpus=1, env=slurm.env) as shared:
        yield shared
