"""The invariants of the design, over random clusters, random jobs and the time that passes.

`HYPOTHESIS_PROFILE=soak pytest --timeout=0 tests/planner/test_properties.py` looks much longer; a failure
prints the line that repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swell.model.cluster import Node
from swell.model.job import JobState, ResizeMode
from swell.model.placement import Company, PlacementRules, objection
from swell.model.plan import JobView, Plan, Resize, SetSlots, Slot, Snapshot, Start
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner import check_plan, explain, make_plan
from swell.planner.rank import line_up

from .simulation import Simulation, Story, applied
from .stories import punctual_stories, ruled, sharing_stories, stories, training_stories

ALL = stories() | training_stories() | ruled(stories() | training_stories())
SEVERAL_ROLES = stories(roles_max=3) | training_stories() | ruled(stories(roles_max=3))


def played(story: Story) -> Iterator[tuple[Simulation, Snapshot, Plan]]:
    """Every moment of the story, after its plan was made and before it is carried out."""
    simulation = Simulation(story)
    for _ in range(steps_max(story)):
        snapshot = simulation.snapshot()
        plan = make_plan(snapshot)
        yield simulation, snapshot, plan
        simulation.apply(plan)
        if not simulation.advance():
            return
    raise AssertionError(f"still going on after {steps_max(story)} steps: somebody starves")


def steps_max(story: Story) -> int:
    return 50 + 20 * (story.tasks + len(story.arrivals) + len(story.outages) + len(story.cordons))


# -- a second way to count, that shares nothing with the planner ---------------------------------------------


Free = dict[str, tuple[Node, Resources, int]]  # the node, what is left of it, and how many tasks it still takes


def copies(task: Resources, free: Resources) -> int:
    pairs = ((task.cpus_milli, free.cpus_milli), (task.memory_mib, free.memory_mib), (task.gpus, free.gpus))
    return min((max(there, 0) // want for want, there in pairs if want), default=10**9)


def may_use(rules: PlacementRules, node: Node) -> bool:
    labels = dict(node.labels or ())
    return (
        node.labels is None or objection(rules, labels, node.taints, name=node.id, is_cordoned=node.is_cordoned) is None
    )


def fits(job: JobView, free: Free) -> bool:
    """Exact for equal tasks, which is all that the stories of these properties have."""
    ((task, count),) = job.shape.tasks_at(1 if job.shape.is_array else job.shape.width_min)
    rules = (job.shape.rules or (None,))[0] or PlacementRules()
    is_cluster = any(node.labels is not None for node, _, _ in free.values())
    each = [min(copies(task, left), max(tasks, 0)) for node, left, tasks in free.values() if may_use(rules, node)]
    if rules.company is Company.TOGETHER and is_cluster:
        return max(each, default=0) >= count
    return sum(min(one, 1) if rules.company is Company.APART and is_cluster else one for one in each) >= count


def capacity(nodes: tuple[Node, ...]) -> Free:
    return {node.id: (node, node.capacity, 10**9 if node.tasks_max is None else node.tasks_max) for node in nodes}


def without_rules(free: Free) -> Free:
    return {name: (replace(node, labels=None), left, tasks) for name, (node, left, tasks) in free.items()}


def left_over(snapshot: Snapshot, *, without: frozenset[int] = frozenset()) -> Free:
    """What is free on machines that answer, were some jobs gone."""
    free = capacity(tuple(node for node in snapshot.nodes if node.is_reachable))
    for job, slot in snapshot.held():
        if slot.node in free and job.id not in without:
            node, left, tasks = free[slot.node]
            free[slot.node] = node, left - slot.resources, tasks - 1
    return free


def assert_nothing_is_promised_twice(snapshot: Snapshot) -> None:
    held: dict[str, Resources] = {node.id: Resources() for node in snapshot.nodes}
    devices: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    for _, slot in snapshot.held():
        held[slot.node] += slot.resources
        tasks[slot.node] += 1
        devices.update(slot.devices)
        assert len(slot.devices) == slot.resources.gpus
        assert set(slot.devices) <= {device.id for device in snapshot.nodes_by_id[slot.node].devices}
    for node in snapshot.nodes:
        assert held[node.id].cpus_milli <= node.cpus_milli
        assert held[node.id].memory_mib <= node.memory_mib
        assert node.tasks_max is None or tasks[node.id] <= node.tasks_max
    assert all(holders == 1 for holders in devices.values())


def waiting(snapshot: Snapshot) -> list[JobView]:
    """In the order in which they are served."""
    return [job for job in line_up(snapshot) if job.state is JobState.QUEUED]


def starting(plan: Plan) -> dict[int, Start]:
    return {action.job: action for action in plan.actions if isinstance(action, Start)}


# -- at every moment -----------------------------------------------------------------------------------------


@given(SEVERAL_ROLES)
def test_nothing_is_ever_promised_twice_also_while_slots_drain(story: Story):
    for _, snapshot, plan in played(story):
        assert_nothing_is_promised_twice(snapshot)
        assert_nothing_is_promised_twice(applied(snapshot, plan))
        check_plan(snapshot, plan)


@given(SEVERAL_ROLES)
def test_a_gang_starts_whole_or_not_at_all_and_within_its_widths(story: Story):
    for _, snapshot, plan in played(story):
        for start in starting(plan).values():
            job = snapshot.jobs_by_id[start.job]
            wanted = [task for task, count in job.shape.tasks_at(start.width) for _ in range(count)]
            assert [slot.resources for slot in start.slots] == wanted
            assert job.shape.width_min <= start.width <= job.shape.width_max
            assert all(snapshot.nodes_by_id[slot.node].is_reachable for slot in start.slots)


@given(ruled(stories(roles_max=3) | training_stories()))
def test_no_task_goes_where_its_rules_forbid_it_and_what_runs_stays_where_it_is(story: Story):
    for _, snapshot, plan in played(story):
        for job, slots, new in given_slots(snapshot, plan):
            for slot, rules in zip(slots, rules_by_rank(job, slots), strict=True):
                node, here = snapshot.nodes_by_id[slot.node], sum(one.node == slot.node for one in slots)
                assert slot not in new or may_use(rules, node)
                assert slot in new or slot.is_draining or slot in job.slots
                if slot in new and len(job.shape.roles) == 1:
                    assert rules.company is not Company.APART or here == 1
                    assert rules.company is not Company.TOGETHER or here == len(slots)


def given_slots(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[JobView, tuple[Slot, ...], tuple[Slot, ...]]]:
    """Of each job that gets or loses some: all it has then, and which of them are new."""
    for action in plan.actions:
        if isinstance(action, Start | SetSlots):
            job = snapshot.jobs_by_id[action.job]
            known = {slot.number for slot in job.slots}
            yield job, action.slots, tuple(slot for slot in action.slots if slot.number not in known)


def rules_by_rank(job: JobView, slots: tuple[Slot, ...]) -> list[PlacementRules]:
    if job.shape.is_array:
        return [job.shape.rules[0] or PlacementRules()] * len(slots)
    width = len(slots) - sum(count for _, count in job.shape.roles[1:])
    counts = [width, *(count for _, count in job.shape.roles[1:])]
    return [
        rules or PlacementRules() for rules, count in zip(job.shape.rules, counts, strict=True) for _ in range(count)
    ]


@given(ALL)
def test_every_job_that_waits_has_one_reason_and_it_is_true(story: Story):
    for _, snapshot, plan in played(story):
        queued = {job.id: job for job in waiting(snapshot)}
        assert plan.verdicts.keys() == queued.keys() - starting(plan).keys()
        empty, free = capacity(snapshot.nodes), left_over(snapshot)
        reachable = left_over(snapshot, without=frozenset(snapshot.jobs_by_id))
        for job, verdict in ((queued[number], verdict) for number, verdict in plan.verdicts.items()):
            assert (verdict.code is Code.CANNOT_RUN_HERE) == (not fits(job, without_rules(empty)))
            is_kept_off = fits(job, without_rules(empty)) and not fits(job, empty)
            assert (verdict.code is Code.NO_SUITABLE_NODE) == is_kept_off
            assert (verdict.code is Code.WORKER_UNREACHABLE) == (fits(job, empty) and not fits(job, reachable))
            if verdict.code is Code.WAITING_IN_LINE:
                assert fits(job, free)
                assert verdict.behind not in (None, job.id)
            assert verdict.behind is None or verdict.behind in snapshot.jobs_by_id


@given(ALL)
def test_nobody_overtakes_one_of_the_same_shape(story: Story):
    for _, snapshot, plan in played(story):
        refused = set()
        for job in waiting(snapshot):
            if job.id in plan.verdicts:
                if is_within_its_users_limit(snapshot, job):
                    refused.add(job.shape)
            else:
                assert job.shape not in refused


@given(ALL)
def test_the_one_at_the_head_of_the_line_starts_when_it_fits_and_arrays_give_way_to_it(story: Story):
    for _, snapshot, plan in played(story):
        arrays = [job for job in snapshot.jobs if job.shape.is_array and job.state in HOLDING]
        for job in at_the_head(snapshot, arrays):
            if fits(job, left_over(snapshot)):
                assert job.id in starting(plan)
            elif fits(job, left_over(snapshot, without=frozenset(array.id for array in arrays))):
                after = drained(applied(snapshot, plan))
                yielding = frozenset(one.id for one in after.jobs if one.yielding is not None)
                assert fits(job, left_over(after, without=yielding))


HOLDING = (JobState.STARTING, JobState.RUNNING)


def at_the_head(snapshot: Snapshot, arrays: list[JobView]) -> list[JobView]:
    """The first that waits, if it may have what it asks for and stands before all arrays that run."""
    ahead = min(((-array.priority, array.id) for array in arrays), default=(1, 0))
    allowed = [job for job in waiting(snapshot)[:1] if is_within_its_users_limit(snapshot, job)]
    return [job for job in allowed if (-job.priority, job.id) < ahead]


def is_within_its_users_limit(snapshot: Snapshot, job: JobView) -> bool:
    """Of whole GPUs, which is all that the stories of these properties have."""
    standing = snapshot.users.get(job.user)
    if standing is None or standing.gpus_max is None:
        return True
    held = sum(slot.resources.gpus for other, slot in snapshot.held() if other.user == job.user)
    ((task, count),) = job.shape.tasks_at(1 if job.shape.is_array else job.shape.width_min)
    return not task.gpus or held + task.gpus * count <= standing.gpus_max


def drained(snapshot: Snapshot) -> Snapshot:
    """The same, once everything that drains has gone."""
    jobs = (replace(job, slots=tuple(slot for slot in job.slots if not slot.is_draining)) for job in snapshot.jobs)
    return Snapshot(snapshot.now, snapshot.nodes, tuple(jobs))


@given(ALL)
def test_planning_twice_changes_nothing(story: Story):
    for _, snapshot, plan in played(story):
        assert make_plan(applied(snapshot, plan)).actions == ()


@given(SEVERAL_ROLES, st.integers(0, 1000))
def test_the_order_of_jobs_and_nodes_does_not_matter(story: Story, seed: int):
    chance = random.Random(seed)
    for _, snapshot, plan in played(story):
        jobs = chance.sample(snapshot.jobs, len(snapshot.jobs))
        nodes = chance.sample(snapshot.nodes, len(snapshot.nodes))
        copies = tuple(replace(job, shape=replace(job.shape)) for job in jobs)
        assert make_plan(replace(snapshot, nodes=tuple(nodes), jobs=tuple(jobs))) == plan
        assert make_plan(replace(snapshot, nodes=tuple(nodes), jobs=copies)) == plan


@given(SEVERAL_ROLES | sharing_stories() | ruled(sharing_stories()), st.integers(0, 1000))
def test_a_plan_can_be_made_also_when_nodes_have_less_than_is_held_there(story: Story, seed: int):
    """Pods of others came, devices vanished or are used by others: nothing new goes there, and nothing breaks."""
    chance = random.Random(seed)
    for _, snapshot, _ in played(story):
        now = replace(snapshot, nodes=tuple(shrunk(node, chance) for node in snapshot.nodes))
        plan = make_plan(now)
        check_plan(now, plan)
        assert all(explain(now, now.jobs_by_id[job], verdict).message for job, verdict in plan.verdicts.items())
        assert make_plan(applied(now, plan)).actions == ()


def shrunk(node: Node, chance: random.Random) -> Node:
    some = chance.sample(node.devices, chance.randint(0, len(node.devices)))
    devices = tuple(replace(device, outsiders_mib=chance.choice((0, 0, 4000))) for device in some)
    tasks_max = chance.choice((node.tasks_max, 0, 1, 2))
    return replace(node, cpus_milli=chance.randint(0, node.cpus_milli), devices=devices, tasks_max=tasks_max)


# -- in the long run -----------------------------------------------------------------------------------------


@given(ALL)
def test_every_job_that_can_run_ends_and_drains_are_bounded(story: Story):
    *_, (simulation, _, _) = played(story)
    empty = capacity(story.nodes)
    assert simulation.ended.keys() == {one.job.id for one in story.arrivals if fits(one.job, empty)}
    assert simulation.drains <= drains_max(story)


def drains_max(story: Story) -> int:
    """A slot is drained for somebody who came, started or ended, or for a machine that came or went."""
    widths = sum(one.job.shape.width_max for one in story.arrivals if one.job.shape.is_array)
    return widths * (3 * len(story.arrivals) + 2 * len(story.outages) + 2 * len(story.cordons))


@given(ALL)
def test_preemptions_are_bounded_and_only_for_higher_priority_or_of_those_that_are_late(story: Story):
    """Whoever is started with room that was taken is not itself a victim of the one it was taken from."""
    *_, (simulation, _, _) = played(story)
    jobs = {one.job.id: one.job for one in story.arrivals}
    for victim, winner in ((jobs[victim], jobs[winner]) for victim, winner in simulation.preemptions):
        is_late = victim.estimate_s is not None and victim.priority == winner.priority
        assert victim.priority < winner.priority or is_late
    assert len(simulation.preemptions) <= len(story.arrivals) ** 2


@given(ALL)
def test_no_durable_epoch_is_done_twice_and_none_is_left_out(story: Story):
    *_, (simulation, _, _) = played(story)
    for one in story.arrivals:
        if one.trainee is not None and one.trainee.every is not None and one.job.id in simulation.ended:
            assert simulation.done_epochs[one.job.id] == list(range(one.trainee.epochs))


@given(ALL)
def test_work_is_lost_only_where_that_was_offered_or_a_deadline_passed(story: Story):
    *_, (simulation, _, _) = played(story)
    if all(one.job.mode is not ResizeMode.IMMEDIATE for one in story.arrivals):
        every = {one.trainee.every for one in story.arrivals if one.trainee}
        assert simulation.lost_epochs == 0 or every - {1, None}


@given(ALL)
def test_nobody_is_resized_below_its_least_or_above_its_most(story: Story):
    for _, snapshot, plan in played(story):
        for action in plan.actions:
            if isinstance(action, Resize):
                shape = snapshot.jobs_by_id[action.job].shape
                assert shape.width_min <= action.width <= shape.width_max


@given(punctual_stories() | ruled(punctual_stories(), cordons_max=0))
def test_backfill_never_delays_the_first_that_waits(story: Story):
    """Its promise is the moment at which it would fit if nobody else were started any more.

    The promise is taken when it becomes the first that waits. All have the same priority and end exactly at
    their limits; then it starts at the promised moment at the latest, whoever comes and goes meanwhile.
    """
    promises: dict[int, float] = {}
    for simulation, snapshot, plan in played(story):
        assert all(promises.get(job, snapshot.now) >= snapshot.now for job in starting(plan))
        after = applied(snapshot, plan)
        first = next((job for job in waiting(after) if fits(job, capacity(story.nodes))), None)
        if first is not None:
            promises.setdefault(first.id, promise(after, first))
            assert promises[first.id] > simulation.now


def promise(snapshot: Snapshot, first: JobView) -> float:
    ends = {job.id: job.ends_at for job in snapshot.jobs if job.slots}
    for moment in sorted(set(ends.values())):
        gone = frozenset(job for job, end in ends.items() if end <= moment)
        if fits(first, left_over(snapshot, without=gone)):
            return moment
    raise AssertionError(f"job {first.id} fits on the empty cluster, but not when all have ended")
