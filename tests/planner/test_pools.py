"""How many workers of a pool do the waiting jobs lack, and which jobs are they for?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.placement import PlacementRules, Toleration
from swell.model.plan import Snapshot
from swell.model.pool import PoolOffer
from swell.planner import make_plan
from swell.planner.pools import PoolCapacity, PoolNeed, can_hold, find_pool_needs

from .world import array, node, queued, running, under, world

SMALL = PoolOffer(2000, 8192)
GPU = PoolOffer(8000, 65536, gpus=4, gpu_memory_mib=16384)
BUSY = (node("a", cpus=1), running(99, on="a"))


def pool(name: str = "lab", offer: PoolOffer = SMALL, *, under_way: int = 0, more: int = 10) -> PoolCapacity:
    return PoolCapacity(name, offer, under_way, more)


def needs(now: Snapshot, *pools: PoolCapacity) -> dict[str, PoolNeed]:
    return find_pool_needs(now, make_plan(now), pools)


def test_nobody_waits_and_nobody_is_needed() -> None:
    assert needs(world(*BUSY), pool()) == {"lab": PoolNeed()}


def test_two_jobs_of_one_cpu_share_a_worker_of_two() -> None:
    jobs = [queued(number) for number in range(1, 6)]
    assert needs(world(*BUSY, *jobs), pool()) == {"lab": PoolNeed(3, (1, 2, 3, 4, 5))}


def test_without_any_node_the_first_worker_is_needed() -> None:
    assert needs(world(queued(1)), pool()) == {"lab": PoolNeed(1, (1,))}


def test_workers_on_their_way_are_counted_and_used_first() -> None:
    jobs = [queued(number) for number in range(1, 5)]
    assert needs(world(*BUSY, *jobs), pool(under_way=2, more=0)) == {"lab": PoolNeed(2, (1, 2, 3, 4))}
    assert needs(world(*BUSY, *jobs), pool(under_way=5, more=5)) == {"lab": PoolNeed(2, (1, 2, 3, 4))}


def test_no_more_than_it_may_launch() -> None:
    jobs = [queued(number, cpus=2) for number in range(1, 9)]
    assert needs(world(*BUSY, *jobs), pool(more=3)) == {"lab": PoolNeed(3, (1, 2, 3))}


def test_a_gang_takes_what_is_free_and_lacks_the_rest() -> None:
    gang = queued(1, cpus=2, tasks=3)
    assert needs(world(node("a", cpus=2), gang), pool()) == {"lab": PoolNeed(2, (1,))}


def test_half_a_gang_calls_for_nobody() -> None:
    assert needs(world(*BUSY, queued(1, cpus=2, tasks=5)), pool(more=4)) == {"lab": PoolNeed()}


@pytest.mark.parametrize(
    "job",
    [
        queued(1, cpus=3),
        queued(1, memory_gib=9),
        queued(1, gpus=1),
        under(queued(1), PlacementRules(selector=(("swell.dev/tag", "big"),))),
        replace(queued(1), waits_for=(9,)),
    ],
)
def test_a_job_that_no_worker_could_run_calls_for_none(job: object) -> None:
    assert needs(world(*BUSY, job), pool()) == {"lab": PoolNeed()}  # type: ignore[arg-type]


def test_tags_groups_and_gpus_decide_as_the_planner_decides() -> None:
    tagged = under(
        queued(1),
        PlacementRules(selector=(("swell.dev/tag", "big"),), tolerations=(Toleration("swell.dev/tag", "big"),)),
    )
    of_group = under(queued(2), PlacementRules(groups=("vision",)))
    exclusive = pool("big", replace(SMALL, tag="big", is_exclusive=True))
    vision = pool("vision", replace(SMALL, group="vision"))
    now = world(*BUSY, tagged, of_group, queued(3), queued(4, gpus=2), queued(5, gpus=2))
    assert needs(now, exclusive, vision, pool("gpu", GPU)) == {
        "big": PoolNeed(1, (1,)),
        "vision": PoolNeed(1, (2,)),
        "gpu": PoolNeed(1, (3, 4, 5)),
    }


def test_the_smallest_worker_that_will_do_is_asked_for() -> None:
    now = world(*BUSY, queued(1), queued(2, gpus=1))
    assert needs(now, pool("gpu", GPU), pool("lab")) == {"gpu": PoolNeed(1, (2,)), "lab": PoolNeed(1, (1,))}


def test_an_idle_machine_is_used_before_a_worker_is_called() -> None:
    """What starts in this plan has taken its room already."""
    now = world(node("a", cpus=2), queued(1), queued(2), queued(3))
    assert needs(now, pool()) == {"lab": PoolNeed(1, (3,))}


def test_an_array_that_waits_calls_for_a_worker() -> None:
    assert needs(world(*BUSY, array(1, tasks=8)), pool()) == {"lab": PoolNeed(1, (1,))}


def test_a_job_could_be_held_by_machines_and_workers_together() -> None:
    assert can_hold(queued(1, cpus=2, tasks=3), (node("a", cpus=2),), SMALL, 2)
    assert not can_hold(queued(1, cpus=2, tasks=3), (node("a", cpus=2),), SMALL, 1)
    assert not can_hold(queued(1, gpus=1), (), SMALL, 10)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=12),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_never_more_than_can_come_and_none_without_a_job(
    wanted: list[tuple[int, int]], under_way: int, more: int
) -> None:
    jobs = [queued(number, cpus=cpus, tasks=tasks) for number, (cpus, tasks) in enumerate(wanted, 1)]
    found = needs(world(*BUSY, *jobs), pool(under_way=under_way, more=more))["lab"]
    assert found.workers <= under_way + more
    assert bool(found.workers) == bool(found.jobs)
    assert set(found.jobs) <= {job.id for job in jobs}
    assert found.workers <= sum(tasks for number, (_, tasks) in enumerate(wanted, 1) if number in found.jobs)
