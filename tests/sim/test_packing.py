"""The harness that packs pods onto shared GPUs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from bench.packing import POLICIES, Planner, _labeled, _shape, pack

from swell.model.job import JobState
from swell.model.plan import JobView, Snapshot, Start
from swell.model.resources import Resources
from swell.planner import make_plan
from swell.sim.traces.openb import OpenbPod
from swell.sim.workload import SimCluster

HALF = OpenbPod("half", Resources(1000, 0, 0, 500), (), 0.0, 1.0)
CLUSTER = SimCluster.of(3, 2, gpu_memory_mib=1000)


@pytest.mark.parametrize("policy", POLICIES)
def test_halves_fill_every_gpu(policy: str) -> None:
    assert pack(CLUSTER, [HALF] * 12, POLICIES[policy], seed=1) == (1.0, 1.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_no_node_has_is_left_out(policy: str) -> None:
    other = OpenbPod("other", Resources(1000, 0, 1), ("H100",), 0.0, 1.0)
    assert pack(SimCluster.of(1, 2), [other], POLICIES[policy], seed=1) == (0.0, 0.0)


def test_the_harness_puts_pods_where_the_plan_does() -> None:
    """It leaves out everything but the search for a place; that one is not a second one."""
    chance = random.Random(5)
    kinds = [Resources(chance.randint(1, 20) * 1000, 0, *amount) for amount in ((0, 300), (0, 700), (1, 0), (2, 0))]
    cluster = SimCluster.of(4, 4, cpus=32, gpu_memory_mib=1000)
    pods = [OpenbPod(f"p{n}", needs, (), 0.0, 1.0) for n, needs in enumerate(kinds)]
    harness, jobs, nodes = Planner(cluster), [], tuple(_labeled(node) for node in cluster.nodes)
    shapes = {pod.needs: _shape(pod) for pod in pods}
    for number, pod in enumerate(pods, 1):
        before = {name: harness._room.on(name) for name in harness._room.nodes}
        assert harness.put(pod)
        [here] = [name for name in before if harness._room.on(name) != before[name]]
        waiting = JobView(number, shapes[pod.needs], 0, JobState.QUEUED)
        [start] = make_plan(Snapshot(0.0, nodes, (*jobs, waiting))).actions
        assert isinstance(start, Start)
        assert [slot.node for slot in start.slots] == [here]
        jobs.append(replace(waiting, state=JobState.RUNNING, slots=start.slots, width=1, started_at=0.0))
