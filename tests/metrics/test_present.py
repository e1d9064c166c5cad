"""How things stand: machines, jobs and use, read when asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from controller.stage import NODE, Stage
from swell.metrics import Present
from swell.model.cluster import Node
from swell.model.job import ResizeMode, Role
from swell.model.resources import Resources

MIB = 1024 * 1024


class Workers:
    """An engine that has heard of one machine a while ago."""

    def silences(self) -> dict[str, float]:
        return {"a": 12.5}

    def gpu_utilizations(self) -> dict[str, float]:
        return {"a": 0.25}

    def unreadable_objects(self) -> dict[str, int]:
        return {"JobSet": 2, "Pod": 0}


@pytest.fixture
def stage(tmp_path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def registry(stage: Stage) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Present(stage.store, stage.controller, Workers(), stage.clock.now))
    return made


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Values of the labels, in their order, and the number."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def gpus(registry: CollectorRegistry) -> dict[str, float]:
    """Of node a, without the states that none is in."""
    return {state: count for (_, state), count in samples(registry, "swell_gpus").items() if count}


def memory(registry: CollectorRegistry) -> dict[str, float]:
    """Of node a, in MiB."""
    return {kind: value / MIB for (_, kind), value in samples(registry, "swell_gpu_memory_bytes").items()}


def with_outsiders(**mib: int) -> Node:
    return replace(NODE, devices=tuple(replace(one, outsiders_mib=mib.get(one.id, 0)) for one in NODE.devices))


def test_before_any_machine_is_there_everything_is_empty_or_zero(registry):
    assert set(samples(registry, "swell_jobs").values()) == {0.0}
    empty = ("swell_gpus", "swell_gpu_allocation_ratio", "swell_waiting_jobs", "swell_checkpoint_age_seconds")
    assert [samples(registry, name) for name in empty] == [{}, {}, {}, {}]
    assert samples(registry, "swell_lost_gpu_seconds_total") == {(): 0.0}


def test_jobs_are_counted_by_state_and_those_that_wait_by_reason(stage, registry):
    running, waiting, never = stage.gang(4), stage.gang(4), stage.gang(9)
    held = stage.gang(1)
    stage.done(stage.controller.hold(held, by="me"))
    stage.begin(running)
    assert stage.states(running, waiting, never, held) == ["running", "queued", "queued", "held"]
    counts = {key: value for key, value in samples(registry, "swell_jobs").items() if value}
    assert counts == {("running",): 1.0, ("queued",): 2.0, ("held",): 1.0}
    assert samples(registry, "swell_waiting_jobs") == {
        ("CannotRunHere",): 1.0,
        ("Held",): 1.0,
        ("WaitingForRoom",): 1.0,
    }


def test_machines_say_what_is_free_and_what_is_held(stage, registry):
    stage.begin(stage.gang(1, gpus=3))
    assert gpus(registry) == {"free": 1.0, "held": 3.0}
    assert samples(registry, "swell_gpu_allocation_ratio") == {("a",): 0.75}
    reserved = {("a", "total"): 4096.0 * MIB, ("a", "reserved"): 3072.0 * MIB}
    assert samples(registry, "swell_gpu_memory_bytes") == reserved
    assert samples(registry, "swell_cpus") == {("a", "free"): 3.0, ("a", "held"): 1.0}
    assert samples(registry, "swell_worker_silence_seconds") == {("a",): 12.5}
    assert samples(registry, "swell_gpu_utilization_ratio") == {("a",): 0.25}


def test_a_machine_without_gpus_has_no_ratio(stage, registry):
    stage.engine.nodes = (replace(NODE, devices=()),)
    stage.cycle()
    assert gpus(registry) == {}
    assert samples(registry, "swell_gpu_allocation_ratio") == {}


def test_every_gpu_is_in_one_state_and_a_share_reserves_what_it_was_promised(stage, registry):
    """Held whole, shared by two, used by somebody else, and shared with somebody else."""
    for gpu_memory_mib, gpus_whole in ((512, 1), (256, 0), (256, 0), (900, 0)):
        stage.begin(stage.submit(roles=(Role("worker", ("true",), Resources(100, 0, gpus_whole, gpu_memory_mib), 1),)))
    stage.engine.nodes = (with_outsiders(g2=128, g3=512),)
    stage.cycle()
    assert gpus(registry) == {"held": 1.0, "shared": 2.0, "outsiders": 1.0}
    assert samples(registry, "swell_gpu_allocation_ratio") == {("a",): 0.75}
    assert memory(registry) == {"total": 4096, "reserved": 1024 + 256 + 256 + 900}


def test_memory_that_jobs_use_is_told_where_the_driver_tells_it(stage, registry):
    stage.engine.nodes = (replace(NODE, devices=tuple(replace(one, is_watched=True) for one in NODE.devices)),)
    one, two = stage.gang(1, gpus=1), stage.gang(1, gpus=1)
    stage.begin(one)
    stage.begin(two)
    assert memory(registry) == {"total": 4096, "reserved": 2048, "used": 0}
    stage.uses(one, memory_mib=700, peak_mib=800)
    stage.uses(two, memory_mib=100, peak_mib=100)
    assert memory(registry) == {"total": 4096, "reserved": 2048, "used": 800}
    stage.finish(one, 0)
    assert memory(registry) == {"total": 4096, "reserved": 1024, "used": 100}


def test_the_oldest_last_checkpoint_of_a_running_job_is_told(stage, registry):
    old, young = stage.elastic(1, 1), stage.elastic(1, 1)
    stage.begin(old)
    stage.begin(young)
    stage.saved(old, 1)
    stage.saved(young, 1, seconds=100)
    stage.clock.time += 50
    assert samples(registry, "swell_checkpoint_age_seconds") == {(): 150.0}


def test_use_is_told_by_user_and_never_falls(stage, registry):
    """A scrape counts a running job until then; it turns out that it had ended a little before."""
    job = stage.elastic(2, 2, resize=ResizeMode.IMMEDIATE)
    stage.begin(job)
    stage.clock.time += 100
    stage.ended(job, 0)
    stage.clock.time += 5
    assert samples(registry, "swell_usage_gpu_seconds_total") == {("me",): 210.0}
    stage.run(job, done=True)
    stage.cycle(0.0)
    assert stage.controller.accounts.used(stage.clock.time)["me"].gpu_s == 200.0
    assert samples(registry, "swell_usage_gpu_seconds_total") == {("me",): 210.0}


def test_lost_work_is_told_as_soon_as_it_is_known(stage, registry):
    job = stage.elastic(2, 2, resize=ResizeMode.IMMEDIATE)
    stage.begin(job)
    stage.done(stage.controller.requeue(job, by="me", is_now=True), seconds=100)
    stage.finish(job, 143, cause="stopped")
    assert samples(registry, "swell_lost_gpu_seconds_total") == {(): 200.0}


def test_objects_of_a_cluster_that_cannot_be_read_are_counted_by_kind(registry: CollectorRegistry) -> None:
    assert samples(registry, "swell_unreadable_objects") == {("JobSet",): 2, ("Pod",): 0}
