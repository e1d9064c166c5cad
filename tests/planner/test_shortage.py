"""For whom another node would help, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.cluster import Node
from swell.model.job import JobState
from swell.model.placement import PlacementRules
from swell.model.plan import JobView, Snapshot, Standing
from swell.model.resources import Resources
from swell.planner import Group, Shortage, find_shortages, make_plan
from swell.planner.rank import line_up

from .world import array, node, queued, running, under, world

SPOT = PlacementRules(selector=(("pool", "spot"),))
CLUSTER = {"zone": "a"}


def shortages(now: Snapshot) -> tuple[Shortage, ...]:
    return find_shortages(now, make_plan(now))


def lacking(now: Snapshot) -> list[int]:
    return [one.job for one in shortages(now)]


@pytest.mark.parametrize(
    ("things", "jobs"),
    [
        ((node("a", labels=CLUSTER), queued(1, gpus=8)), [1]),  # it can run nowhere
        ((node("a", labels=CLUSTER, gpus=8), under(queued(1, gpus=1), SPOT)), [1]),  # its rules keep it off
        ((queued(1, gpus=8),), [1]),  # there is no node
        ((node("a", gpus=8, is_reachable=False), queued(1, gpus=8)), [1]),  # nor one that answers
        ((node("a", gpus=8), running(1, on="a", gpus=4), queued(2, gpus=8)), [2]),  # others hold the room
        ((node("a", gpus=8), queued(1, gpus=8)), []),  # it starts
        (  # the second would fit, but stands behind
            (node("a", gpus=8), running(1, on="a", gpus=4), queued(2, gpus=8), queued(3, gpus=2)),
            [2],
        ),
        ((node("a"), replace(queued(1, gpus=8), waits_for=(9,))), []),
        ((node("a"), replace(queued(1, gpus=8), not_before=60.0)), []),
        ((replace(queued(1, gpus=8), waits_for=(9,)), replace(queued(2, gpus=8), not_before=60.0)), []),
        ((node("a"), replace(queued(1, gpus=8), state=JobState.HELD)), []),
        ((node("a", gpus=8), running(1, on="a", gpus=8, state=JobState.STOPPING)), []),
    ],
)
def test_those_for_whom_there_is_not_enough(things: tuple[Node | JobView, ...], jobs: list[int]) -> None:
    assert lacking(world(*things)) == jobs


def test_what_each_lacks_is_all_its_tasks_at_the_least_width() -> None:
    two_roles = under(queued(1, gpus=8, tasks=2, extra=(Resources(500), 1)), SPOT, None)
    now = world(
        node("a", cpus=2, labels=CLUSTER),
        two_roles,
        queued(2, gpus="2..8"),
        queued(3, gpus=1, tasks="3..9"),
        array(4, tasks=50, gpus=1),
        queued(5, gpu_gib=4),
    )
    assert shortages(now) == (
        Shortage(1, (Group(Resources(1000, 0, 8), 2, SPOT), Group(Resources(500), 1, None))),
        Shortage(2, (Group(Resources(1000, 0, 2), 1, None),)),
        Shortage(3, (Group(Resources(1000, 0, 1), 3, None),)),
        Shortage(4, (Group(Resources(1000, 0, 1), 1, None),)),
        Shortage(5, (Group(Resources(1000, 0, 0, 4096), 1, None),)),
    )


@pytest.mark.parametrize("nodes", [(), (node("a"),)])
def test_they_are_in_the_order_of_the_line(nodes: tuple[Node, ...]) -> None:
    users = {"anna": Standing(used_gpu_s=9e6), "ben": Standing()}
    mine = [queued(1, gpus=8, user="anna"), queued(2, gpus=4, user="anna"), queued(3, gpus=4, user="anna")]
    others = [queued(4, gpus=8, user="ben"), queued(5, gpus=4, user="anna", priority=3)]
    now = replace(world(*nodes, *mine, *others), users=users)
    assert lacking(now) == [job.id for job in line_up(now)] == [5, 4, 1, 2, 3]


@pytest.mark.parametrize(
    ("standing", "jobs"),
    [
        (Standing(), [2, 3, 4, 5]),
        (Standing(gpus_max=8), [3, 4, 5]),  # 4 of them are held: the job of 8 has to wait in any case
        (Standing(gpus_max=6), [3, 5]),
        (Standing(running_max=3), [2, 3]),
        (Standing(running_max=1), []),
    ],
)
def test_nobody_calls_for_more_than_their_limits_allow(standing: Standing, jobs: list[int]) -> None:
    waiting = [queued(2, gpus=8, user="anna"), *(queued(n, gpus=2, cpus=99, user="anna") for n in (3, 4))]
    without_gpus = queued(5, cpus=99, user="anna")
    held = running(1, on="a", gpus=4, user="anna")
    now = world(node("a", gpus=4), held, *waiting, without_gpus)
    assert lacking(replace(now, users={"anna": standing})) == jobs
