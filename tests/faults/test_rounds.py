"""Whatever fails on a real control plane: no job is lost, none runs twice, no node is overfull, nothing is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from cluster.starting import started
from engines.kubernetes.wire import Request
from swell.client import Client

from .arena import NODES, Arena
from .cast import resized
from .kills import kill_at, kill_at_bind
from .proxy import Refuse, Rule, bound_pod, is_bind, resizes
from .rounds import OPERATORS, play_kubernetes, verdict
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


def test_without_faults_every_job_ends_as_the_rounds_expect(cluster: Cluster) -> None:
    assert play_kubernetes(SEEDS[0], cluster, is_disturbed=False) == []


def test_a_job_survives_a_kill_between_the_writes_of_its_resize(cluster: Cluster, tmp_path: Path) -> None:
    """Before and after it is suspended, told, and changed and resumed; `make soak` goes through all of them."""
    arena = Arena(0, tmp_path, cluster)
    case = resized("again")
    try:
        arena.bring(case)
        for width, (number, is_done) in zip((2, 3, 2, 1), ((1, True), (2, True), (3, False), (3, True)), strict=True):
            arena.until(case.name, lambda job: job["state"] == "running")
            job = Client(arena.state).job(case.name)
            fired = kill_at(
                arena, lambda one, job=job: resizes(one, "again", job.id), number, is_done=is_done, patience_s=30
            )
            arena.ask(case.name, lambda client, width=width: client.scale(case.name, width, now=True))
            with arena.outage("killed at a resize"):
                assert fired.wait(30), f"write {number} of the resize to {width} never came"
                arena.revive()
        arena.until(case.name, lambda job: (job["state"], job["width"]) == ("running", 1))
        arena.let_end(case)
        lives = Client(arena.state).show(case.name)["attempts"]
        assert [life["width"] for life in lives] == [4, 2, 3, 2, 1]
        assert [life["outcome"] for life in lives] == ["yielded"] * 4 + ["succeeded"]
        assert verdict(arena, [case]) == []
    finally:
        arena.close()


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
        arena.proxy.meddle(refusing_the_last_bind(40.0), 300.0)
        arena.bring(case)
        if way == "kubectl":  # the others run for 45 s: a rank that ends before the gang is given up holds nothing
            arena.let_end(case)
        arena.await_ends([case])
        lives = Client(arena.state).show("half")["attempts"]
        assert [life["outcome"] for life in lives] == ["not-placed", "succeeded"]
        assert verdict(arena, [case]) == []
    finally:
        arena.close()


def refusing_the_last_bind(seconds: float) -> Rule:
    """For so long from the first one on, however long a busy machine takes until then."""
    first: list[float] = []

    def rule(request: Request) -> Refuse | None:
        if not is_bind(request) or not is_last(request):
            return None
        first.append(time.monotonic())
        return Refuse(500) if time.monotonic() - first[0] < seconds else None

    return rule


def is_last(request: Request) -> bool:
    return bound_pod(request).endswith(f"-{NODES - 1}")
