"""The invariants of the design where GPUs are shared by memory, estimates are wrong and outsiders come and go.

The counting here shares nothing with the planner's.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swell.model.cluster import Node
from swell.model.plan import JobView, Plan, Slot, Snapshot, Standing, Start
from swell.model.reason import Code
from swell.planner import check_plan, make_plan
from swell.planner.rank import line_up

from .simulation import Story, applied
from .stories import sharing_stories, training_stories
from .test_properties import played, starting, waiting


def holders(snapshot: Snapshot, node: Node, device: str) -> list[Slot]:
    return [slot for _, slot in snapshot.held() if slot.node == node.id and device in slot.devices]


def given_now(snapshot: Snapshot, plan: Plan) -> set[tuple[str, str]]:
    before = {(job.id, slot.number) for job, slot in snapshot.held()}
    after = applied(snapshot, plan).held()
    added = [slot for job, slot in after if (job.id, slot.number) not in before]
    return {(slot.node, device) for slot in added for device in slot.devices}


def copies(job: JobView, snapshot: Snapshot, node: Node, *, is_empty: bool) -> int:
    """How many of its equal tasks fit on this node as it is, or were it empty."""
    task = job.shape.roles[0][0]
    held = [] if is_empty else [slot for _, slot in snapshot.held() if slot.node == node.id]
    counts = [10**9]
    if task.cpus_milli:
        counts.append((node.cpus_milli - sum(slot.resources.cpus_milli for slot in held)) // task.cpus_milli)
    if task.memory_mib:
        counts.append((node.memory_mib - sum(slot.resources.memory_mib for slot in held)) // task.memory_mib)
    if task.gpus or task.gpu_memory_mib:
        counts.append(_gpu_copies(job, snapshot, node, is_empty=is_empty))
    return max(0, min(counts))


def _gpu_copies(job: JobView, snapshot: Snapshot, node: Node, *, is_empty: bool) -> int:
    task = job.shape.roles[0][0]
    whole, shares = 0, 0
    for device in node.devices:
        there = [] if is_empty else holders(snapshot, node, device.id)
        outsiders = 0 if is_empty else device.outsiders_mib
        is_free = not there and not outsiders
        whole += is_free
        if task.is_share and (is_free or (there and all(slot.resources.is_share for slot in there))):
            left = device.memory_mib - outsiders - sum(slot.resources.gpu_memory_mib for slot in there)
            shares += max(0, left) // task.gpu_memory_mib
    if task.is_share:
        return shares
    # Which of a node's GPUs a task gets is not up to it: all of them must have the memory it wants.
    has_memory = all(device.memory_mib >= task.gpu_memory_mib for device in node.devices)
    return whole // task.gpus if has_memory else 0


def fits(job: JobView, snapshot: Snapshot, *, is_empty: bool) -> bool:
    ((_, count),) = job.shape.tasks_at(1 if job.shape.is_array else job.shape.width_min)
    return sum(copies(job, snapshot, node, is_empty=is_empty) for node in snapshot.nodes) >= count


def gpus(slot: Slot, snapshot: Snapshot) -> float:
    largest_mib = max(device.memory_mib for node in snapshot.nodes for device in node.devices)
    return slot.resources.gpu_memory_mib / largest_mib if slot.resources.is_share else slot.resources.gpus


def holds(user: str, snapshot: Snapshot) -> tuple[float, int]:
    mine = [job for job in snapshot.jobs if job.user == user and job.slots]
    return sum(gpus(slot, snapshot) for job in mine for slot in job.slots), len(mine)


def may_start(job: JobView, snapshot: Snapshot) -> bool:
    limit = snapshot.users.get(job.user, Standing())
    held, running = holds(job.user, snapshot)
    ((task, count),) = job.shape.tasks_at(1 if job.shape.is_array else job.shape.width_min)
    wants = count * gpus(Slot(0, "", task), snapshot)
    if limit.running_max is not None and running >= limit.running_max:
        return False
    return not wants or limit.gpus_max is None or held + wants <= limit.gpus_max + 1e-9


@given(sharing_stories() | training_stories())
def test_nobody_is_given_more_than_they_may_hold(story: Story):
    for _, snapshot, plan in played(story):
        after = applied(snapshot, plan)
        for user, limit in snapshot.users.items():
            before, (held, running) = holds(user, snapshot), holds(user, after)
            if (held, running) != before:
                assert limit.gpus_max is None or held <= max(limit.gpus_max, before[0]) + 1e-9
                assert limit.running_max is None or running <= limit.running_max


@given(sharing_stories())
def test_no_gpu_is_promised_beyond_its_memory(story: Story):
    for _, snapshot, plan in played(story):
        check_plan(snapshot, plan)
        after = applied(snapshot, plan)
        for node, device_id in given_now(snapshot, plan):
            device = next(one for one in snapshot.nodes_by_id[node].devices if one.id == device_id)
            there = holders(after, snapshot.nodes_by_id[node], device_id)
            if any(slot.resources.gpus for slot in there):
                assert len(there) == 1
                assert device.outsiders_mib == 0
                assert device.memory_mib >= there[0].resources.gpu_memory_mib
            else:
                promised = sum(slot.resources.gpu_memory_mib for slot in there)
                assert promised <= device.memory_mib - device.outsiders_mib


@given(sharing_stories())
def test_every_job_that_waits_has_one_reason_and_it_is_true(story: Story):
    for _, snapshot, plan in played(story):
        queued = {job.id: job for job in waiting(snapshot)}
        assert plan.verdicts.keys() == queued.keys() - starting(plan).keys()
        for job, verdict in ((queued[number], verdict) for number, verdict in plan.verdicts.items()):
            assert (verdict.code is Code.CANNOT_RUN_HERE) == (not fits(job, snapshot, is_empty=True))
            if verdict.code is Code.WAITING_IN_LINE:
                assert fits(job, snapshot, is_empty=False)


@given(sharing_stories())
def test_the_first_in_line_starts_when_it_fits(story: Story):
    for _, snapshot, plan in played(story):
        for job in waiting(snapshot)[:1]:
            is_first = line_up(snapshot)[0].id == job.id
            if is_first and fits(job, snapshot, is_empty=False) and may_start(job, snapshot):
                assert job.id in starting(plan)


@given(sharing_stories())
def test_planning_twice_changes_nothing(story: Story):
    for _, snapshot, plan in played(story):
        assert make_plan(applied(snapshot, plan)).actions == ()


@given(sharing_stories(), st.integers(0, 1000))
def test_the_order_of_jobs_nodes_and_devices_does_not_matter(story: Story, seed: int):
    chance = random.Random(seed)
    for _, snapshot, plan in played(story):
        jobs = tuple(chance.sample(snapshot.jobs, len(snapshot.jobs)))
        nodes = tuple(chance.sample(snapshot.nodes, len(snapshot.nodes)))
        assert make_plan(replace(snapshot, nodes=nodes, jobs=jobs)) == plan


@given(sharing_stories())
def test_every_job_that_can_run_ends(story: Story):
    *_, (simulation, snapshot, _) = played(story)
    left = {job.id for job in snapshot.jobs}
    alone = replace(snapshot, jobs=())
    can_run = {
        one.job.id for one in story.arrivals if fits(one.job, alone, is_empty=True) and may_start(one.job, alone)
    }
    assert simulation.ended.keys() >= can_run
    assert left.isdisjoint(can_run)


@given(sharing_stories())
def test_a_share_opens_a_whole_gpu_only_where_no_open_one_has_room(story: Story):
    """Fragmentation: what is whole stays whole for those who need that, but for one that is kept for somebody."""
    for _, snapshot, plan in played(story):
        starts = [action for action in plan.actions if isinstance(action, Start)]
        if len(plan.actions) != 1 or not starts or snapshot.jobs_by_id[starts[0].job].shape.is_array:
            continue
        [start] = starts
        job = snapshot.jobs_by_id[start.job]
        if len(start.slots) != 1 or not start.slots[0].resources.is_share:
            continue
        if is_room_kept_before(job, snapshot, plan):
            continue
        slot = start.slots[0]
        if holders(snapshot, snapshot.nodes_by_id[slot.node], slot.devices[0]):
            continue
        assert not any(
            holders(snapshot, node, device.id)
            and all(one.resources.is_share for one in holders(snapshot, node, device.id))
            and _left_mib(snapshot, node, device.id) >= slot.resources.gpu_memory_mib
            and copies(job, snapshot, node, is_empty=False)
            for node in snapshot.nodes
            for device in node.devices
        )


def is_room_kept_before(job: JobView, snapshot: Snapshot, plan: Plan) -> bool:
    """Does anybody who can run wait before it?"""
    line = [one.id for one in waiting(snapshot)]
    ahead = [plan.verdicts[one] for one in line[: line.index(job.id)] if one in plan.verdicts]
    return any(verdict.code is not Code.CANNOT_RUN_HERE for verdict in ahead)


def _left_mib(snapshot: Snapshot, node: Node, device_id: str) -> int:
    device = next(one for one in node.devices if one.id == device_id)
    used = sum(slot.resources.gpu_memory_mib for slot in holders(snapshot, node, device_id))
    return device.memory_mib - device.outsiders_mib - used
