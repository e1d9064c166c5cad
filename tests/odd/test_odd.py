"""No object can stop the scheduler, on a real control plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster
from cluster.starting import started
from onitscluster import module_server
from server import Server

from .rounds import NODES, OPERATORS, play

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

OBJECTS, JOBS = 300, 12  # `make soak` makes 2,000 beside fifty jobs

server = module_server()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("odd"), kwok=NODES, operators=OPERATORS) as cluster:
        yield cluster


def test_whatever_somebody_writes_into_objects_of_any_kind_others_jobs_end(cluster: Cluster, server: Server) -> None:
    print("repeat with: PYTHONPATH=tests .venv/bin/python -m odd.rounds 1")
    assert play(1, cluster, server, OBJECTS, JOBS) == []
