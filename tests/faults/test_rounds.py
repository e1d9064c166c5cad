"""Whatever fails on a real control plane: no job is lost, none runs twice, no node is overfull, nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from cluster.starting import started
from engines.kubernetes.wire import Request
from swell.client import Client

from .arena import Arena
from .disturbances import kill_at_bind
from .proxy import Refuse, bound_pod, is_bind
from .rounds import NODES, OPERATORS, play_kubernetes, verdict
from .workload import gang

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
SEEDS = (1, 7)  # `make soak` plays many; these once found bugs (see docs/testing.md)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("faults"), kwok=NODES, operators=OPERATORS) as cluster:
        yield cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_fails_at_random_moments_and_every_job_ends_as_it_would_have(seed: int, cluster: Cluster) -> None:
    print(f"repeat with: PYTHONPATH=tests .venv/bin/python -m faults.rounds {seed}")
    assert play_kubernetes(seed, cluster) == []


@pytest.mark.parametrize("way", ["submit", "kubectl"])
def test_a_gang_survives_a_kill_between_any_two_of_its_binds(way: str, cluster: Cluster, tmp_path: Path) -> None:
    arena = Arena(0, tmp_path, cluster)
    cases = []
    try:
        for number in range(1, NODES + 1):
            for is_done in (False, True):
                case = gang(f"k{number}{'d' if is_done else 'n'}", tasks=NODES, way=way)
                cases.append(case)
                fired = kill_at_bind(arena, number, is_done=is_done, patience_s=30)
                arena.bring(case)
                with arena.outage("killed at a bind"):
                    assert fired.wait(30), f"bind {number} of {case} never came"
                    arena.revive()
                arena.await_ends(cases)
        assert verdict(arena, cases) == []
    finally:
        arena.close()


@pytest.mark.parametrize("way", ["submit", "kubectl"])
def test_a_gang_whose_last_bind_keeps_failing_gives_its_room_back_and_runs_later(
    way: str, cluster: Cluster, tmp_path: Path
) -> None:
    """For longer than a gang may be half bound; pods that came by kubectl are made again as they came."""
    arena = Arena(0, tmp_path, cluster)
    case = gang("half", tasks=NODES, way=way, is_endless=True)
    try:
        arena.proxy.meddle(lambda request: Refuse(500) if is_bind(request) and is_last(request) else None, 40.0)
        arena.bring(case)
        if way == "kubectl":
            arena.end_when_running(case)
        arena.await_ends([case])
        lives = Client(arena.state).show("half")["attempts"]
        assert [life["outcome"] for life in lives] == ["not-placed", "succeeded"]
        assert verdict(arena, [case]) == []
    finally:
        arena.close()


def is_last(request: Request) -> bool:
    return bound_pod(request).endswith(f"-{NODES - 1}")
