"""Is this plan safe? A second, dull opinion that shares no code with the planner.

It counts again from the snapshot: nothing over-committed on any node or device, no half gang, no width
outside its range, no device that somebody has not been seen to give back, no new task on a node that its rules
forbid, or that a JobSet has to itself; nobody is resized or preempted who would
lose work that was not offered, and only higher priority preempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from swell.model.cluster import Device, Node
from swell.model.job import JobId, JobState, ResizeMode
from swell.model.placement import NO_RULES, Company, PlacementRules, objection
from swell.model.plan import Action, JobView, Plan, Preempt, Resize, SetSlots, Slot, Snapshot, Start


class BrokenPlan(AssertionError):
    """The planner has a bug; the plan must not be applied."""


def check_plan(snapshot: Snapshot, plan: Plan, *, any_rank: bool = False) -> None:
    """Raise `BrokenPlan` unless every action may be carried out, all of them together.

    `any_rank`: a job may be preempted for one that is not above it; for policies with an order of their own.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    holds = {job.id: job.slots for job in snapshot.jobs if job.slots}
    added: list[Slot] = []
    touched: set[JobId] = set()
    growing: set[str] = set()
    for action in plan.actions:
        _require(action.job in jobs, f"an action for job {action.job}, which is not in the snapshot")
        _require(action.job not in touched, f"two actions for job {action.job}")
        touched.add(action.job)
        new = _check_action(jobs, action, snapshot.now, any_rank=any_rank)
        added += new
        if new:
            growing.add(jobs[action.job].user)
        if isinstance(action, Start | SetSlots):  # whoever yields holds what it has until it has been seen to stop
            holds[action.job] = action.slots
    _check_added(snapshot, added)
    _check_rules(snapshot, plan)
    _check_domains(snapshot, plan)
    _check_capacity(snapshot, holds.values(), added)
    _check_limits(snapshot, holds, growing)
    _check_verdicts(snapshot, plan)


def _check_action(jobs: dict[JobId, JobView], action: Action, now: float, *, any_rank: bool) -> list[Slot]:
    """The slots it adds."""
    job = jobs[action.job]
    if isinstance(action, Start):
        _check_start(job, action)
        return list(action.slots)
    if isinstance(action, Resize | Preempt):
        _check_yield(job, action, jobs, now, any_rank=any_rank)
        return []
    _check_slots(job, action)
    known = {slot.number for slot in job.slots}
    return [slot for slot in action.slots if slot.number not in known]


def _check_start(job: JobView, start: Start) -> None:
    shape = job.shape
    _require(job.state is JobState.QUEUED, f"start of job {job.id}, which is {job.state}")
    _require(not job.slots, f"start of job {job.id}, which still holds {len(job.slots)} slots")
    _require(
        shape.width_min <= start.width <= shape.width_max,
        f"job {job.id}: width {start.width} outside {shape.width_min}..{shape.width_max}",
    )
    wanted = [resources for resources, count in shape.tasks_at(start.width) for _ in range(count)]
    given = [slot.resources for slot in start.slots]
    _require(given == wanted, f"job {job.id}: {len(given)} slots are not the {len(wanted)} tasks it wants")
    numbers = [slot.number for slot in start.slots]
    _require(numbers == list(range(len(wanted))), f"job {job.id}: ranks are not 0..{len(wanted) - 1}")


def _check_yield(
    job: JobView, action: Resize | Preempt, jobs: dict[JobId, JobView], now: float, *, any_rank: bool
) -> None:
    who = f"job {job.id}"
    if isinstance(action, Preempt) and action.evicts:
        _check_eviction(job, jobs.get(action.room_for))
        return
    _require(job.state is JobState.RUNNING and bool(job.slots), f"{who} is {job.state} and cannot free resources")
    _require(job.yielding is None, f"{who} is asked twice to free resources")
    _require(not job.shape.is_array, f"{who} is an array; it frees its resources slot by slot")
    _require(_may_be_asked(job, action), f"{who} is resized against its mode")
    training = job.training
    has_checkpoint = training is not None and (training.checkpoint_at is not None or training.saves_at_steps)
    _require(job.mode is ResizeMode.IMMEDIATE or has_checkpoint, f"{who} has never reported a checkpoint")
    if isinstance(action, Resize):
        shape = job.shape
        _require(not job.is_partly_over, f"{who} is resized although some of its tasks have ended")
        in_range = shape.width_min <= action.width <= shape.width_max and action.width != job.width
        _require(in_range, f"{who}: width {action.width} from {job.width}, range {shape.width_min}..{shape.width_max}")
        return
    above = jobs.get(action.room_for)
    is_above = above is not None and (any_rank or _is_above(above, job, now))
    _require(is_above, f"{who} is preempted for one that is not above it")


def _may_be_asked(job: JobView, action: Resize | Preempt) -> bool:
    """In its mode; one that allows either may be stopped inside an epoch, if that was weighed."""
    if job.is_at_once and action.when is ResizeMode.IMMEDIATE:
        return job.mode is ResizeMode.IMMEDIATE or (isinstance(action, Resize) and action.weighed is not None)
    return action.when is job.mode and job.mode is not ResizeMode.NEVER


def _check_eviction(job: JobView, above: JobView | None) -> None:
    who = f"job {job.id}"
    _require(job.state in (JobState.STARTING, JobState.RUNNING) and bool(job.slots), f"{who} is evicted, {job.state}")
    _require(job.yielding is None, f"{who} is evicted, and frees its resources already")
    may = above is not None and above.preempts and above.priority > job.priority
    _require(may, f"{who} is evicted for one whose PriorityClass does not allow it")


def _is_above(one: JobView, other: JobView, now: float) -> bool:
    if one.priority != other.priority:
        return one.priority > other.priority
    return _has_overrun(other, now) and not _has_overrun(one, now)


def _has_overrun(job: JobView, now: float) -> bool:
    """Longer than its user said, and nothing better is known."""
    ran_s = job.used_s + (now - job.started_at if job.started_at is not None else 0.0)
    is_measured = job.training is not None and job.training.left is not None
    return job.estimate_s is not None and not is_measured and ran_s > job.estimate_s


def _check_slots(job: JobView, change: SetSlots) -> None:
    _require(job.shape.is_array, f"job {job.id} is no array; its slots cannot change")
    may_change = job.state in {JobState.STARTING, JobState.RUNNING}
    _require(may_change, f"slots of job {job.id}, which is {job.state}")
    after = {slot.number: slot for slot in change.slots}
    _require(len(after) == len(change.slots), f"job {job.id}: a slot number is used twice")
    for slot in job.slots:
        _require(slot.number in after, f"job {job.id}: slot {slot.number} vanishes before it was seen empty")
        _check_slot(job, slot, after.pop(slot.number))
    if after:
        _require(len(change.slots) <= job.shape.width_max, f"job {job.id}: more slots than may run at once")
    for slot in after.values():
        _require(slot.resources == job.shape.roles[0][0], f"job {job.id}: slot {slot.number} has another size")


def _check_slot(job: JobView, before: Slot, after: Slot) -> None:
    who = f"job {job.id}: slot {before.number}"
    _require(after.devices == before.devices, f"{who} changes devices")
    _require(after.node == before.node, f"{who} changes nodes")
    _require(after.resources == before.resources, f"{who} changes size")
    _require(after.is_draining or not before.is_draining, f"{who} is undrained")


def _check_added(snapshot: Snapshot, added: list[Slot]) -> None:
    nodes = {node.id: node for node in snapshot.nodes}
    for slot in added:
        node = nodes.get(slot.node)
        _require(node is not None and node.is_reachable, f"the plan uses node {slot.node}, out of reach")
        assert node is not None
        wanted = 1 if slot.resources.gpus == 0 and slot.resources.gpu_memory_mib else slot.resources.gpus
        _require(len(slot.devices) == wanted, f"a slot on {slot.node} has {len(slot.devices)} devices, not {wanted}")
        _check_memory(node, slot)
        _require(not slot.is_draining, f"a slot on {slot.node} is new and draining")
        unknown = set(slot.devices) - {device.id for device in node.devices}
        _require(not unknown, f"devices {sorted(unknown)} are not on node {slot.node}")


def _check_rules(snapshot: Snapshot, plan: Plan) -> None:
    """Of tasks that are new; one that runs may stay where it is, whatever has become of its node."""
    nodes = {node.id: node for node in snapshot.nodes}
    for action in plan.actions:
        job = snapshot.jobs_by_id[action.job]
        if isinstance(action, Start):
            first = 0
            for role, (_, count) in enumerate(job.shape.tasks_at(action.width)):
                slots = action.slots[first : first + count]
                _check_role(job, job.shape.rules[role] if job.shape.rules else None, slots, slots, nodes)
                first += count
        elif isinstance(action, SetSlots):
            known = {slot.number for slot in job.slots}
            new = tuple(slot for slot in action.slots if slot.number not in known)
            _check_role(job, job.shape.rules[0] if job.shape.rules else None, new, action.slots, nodes)


def _check_role(
    job: JobView, rules: PlacementRules | None, new: tuple[Slot, ...], all_: tuple[Slot, ...], nodes: dict[str, Node]
) -> None:
    tasks = Counter(slot.node for slot in all_)
    for node in (nodes[name] for name in {slot.node for slot in new} if name in nodes):
        if node.labels is None:
            _check_unlabeled(job, rules, node)
            continue
        labels = dict(node.labels)
        why = objection(rules or NO_RULES, labels, node.taints, name=node.id, is_cordoned=node.is_cordoned)
        _require(why is None, f"job {job.id} may not use {node.id}: {why}")
        here = tasks[node.id]
        if rules is not None and rules.company is Company.APART:
            _require(here == 1, f"job {job.id}: {here} tasks on {node.id} want to be apart")
        if rules is not None and rules.company is Company.TOGETHER:
            _require(here == len(all_), f"job {job.id}: tasks that want to be on one node are on several")


def _check_domains(snapshot: Snapshot, plan: Plan) -> None:
    """Of JobSets that start: tasks that have nodes to themselves, and those that stay off others' nodes."""
    starts = {action.job: action.slots for action in plan.actions if isinstance(action, Start)}
    starts = {job: slots for job, slots in starts.items() if snapshot.jobs_by_id[job].shape.is_jobset}
    if not starts:
        return
    labels = {node.id: dict(node.labels or ()) for node in snapshot.nodes}
    there = {job.id: job.slots for job in snapshot.jobs if job.slots and job.shape.is_jobset} | starts
    owned: dict[tuple[str, str | None], list[tuple[JobId, int]]] = {}  # domain → whose tasks, and the first of them
    for job, slots in there.items():
        for key, first, last in _exclusive(snapshot.jobs_by_id[job]):
            values = {labels.get(slot.node, {}).get(key) for slot in slots if first <= slot.number < last}
            if job in starts:
                _require(len(values) == 1 and None not in values, f"job {job}: tasks {first}.. are in {key} {values}")
            for value in values:
                owned.setdefault((key, value), []).append((job, first))
    for (key, value), owners in owned.items():
        users = [(job, slot) for job, slots in there.items() for slot in slots if labels[slot.node].get(key) == value]
        is_new = any(job in starts for job, _ in users)
        if not is_new:
            continue
        _require(len(owners) == 1, f"{key} {value} is for one Job alone, and has {owners}")
        [(owner, start)] = owners
        last = next(last for one, first, last in _exclusive(snapshot.jobs_by_id[owner]) if (one, first) == (key, start))
        others = [job for job, slot in users if job != owner or not start <= slot.number < last]
        _require(not others, f"{key} {value} is for tasks of job {owner} alone, and has some of jobs {others}")


def _exclusive(job: JobView) -> list[tuple[str, int, int]]:
    """Ranks that have nodes to themselves: the label, the first rank, and the one after the last."""
    found: list[tuple[str, int, int]] = []
    first = 0
    for role, (_, count) in enumerate(job.shape.tasks_at(job.width or job.shape.width_min)):
        rules = job.shape.rules[role] if job.shape.rules else None
        if rules is not None and rules.domain is not None:
            key, step = rules.domain.key, rules.domain.tasks
            found += [(key, begin, begin + step) for begin in range(first, first + count, step)]
        first += count
    return found


def _check_unlabeled(job: JobView, rules: PlacementRules | None, node: Node) -> None:
    """On a machine of our own only the labels under swell.dev/ count."""
    wanted = [key for key, _ in rules.selector if key.split("/")[0] == "swell.dev"] if rules is not None else []
    _require(not wanted, f"job {job.id} may not use {node.id}, which has no label {', '.join(wanted)}")


def _check_capacity(snapshot: Snapshot, holds: Iterable[tuple[Slot, ...]], added: list[Slot]) -> None:
    held_on, added_on = _by_node(slot for slots in holds for slot in slots), _by_node(added)
    for node in snapshot.nodes:
        if node.id in added_on:
            _check_node(node, held_on[node.id], added_on[node.id])


def _by_node(slots: Iterable[Slot]) -> dict[str, list[Slot]]:
    by_node: dict[str, list[Slot]] = {}
    for slot in slots:
        by_node.setdefault(slot.node, []).append(slot)
    return by_node


def _check_node(node: Node, held: list[Slot], added: list[Slot]) -> None:
    # A node may offer less than it holds (a GPU fell off the bus): no plan's fault, unless it adds to that.
    if any(slot.resources.cpus_milli for slot in added):
        cpus_milli = sum(slot.resources.cpus_milli for slot in held)
        _require(cpus_milli <= node.cpus_milli, f"CPUs of {node.id} are promised beyond their number")
    if any(slot.resources.memory_mib for slot in added):
        memory_mib = sum(slot.resources.memory_mib for slot in held)
        _require(memory_mib <= node.memory_mib, f"memory of {node.id} is promised beyond its size")
    if node.tasks_max is not None:
        _require(len(held) <= node.tasks_max, f"{node.id} has {len(held)} tasks and takes {node.tasks_max}")
    for device in node.devices:
        if any(device.id in slot.devices for slot in added):
            _check_device(node, device, [slot for slot in held if device.id in slot.devices])


def _check_memory(node: Node, slot: Slot) -> None:
    small = [d.id for d in node.devices if d.id in slot.devices and d.memory_mib < slot.resources.gpu_memory_mib]
    _require(not small, f"devices {small} of {node.id} have less memory than was asked for")


def _check_device(node: Node, device: Device, holders: list[Slot]) -> None:
    who = f"device {device.id} of {node.id}"
    if any(slot.resources.gpus for slot in holders):
        _require(len(holders) == 1, f"{who} is promised {len(holders)} times")
        _require(device.outsiders_mib == 0, f"{who} is promised whole, and outsiders use it")
    promised = sum(slot.resources.gpu_memory_mib for slot in holders if not slot.resources.gpus)
    _require(promised <= device.memory_mib - device.outsiders_mib, f"{who}: its memory is promised beyond its size")


def _check_limits(snapshot: Snapshot, holds: dict[JobId, tuple[Slot, ...]], users: set[str]) -> None:
    """Of those who were given more: nobody holds more than they may."""
    card_mib = max([1, *(device.memory_mib for node in snapshot.nodes for device in node.devices)])
    for user in users & snapshot.users.keys():
        limit = snapshot.users[user]
        begins = any(
            not job.slots and not job.used_s and holds.get(job.id) for job in snapshot.jobs if job.user == user
        )
        is_full = limit.disk is not None and limit.disk.bytes > limit.disk.bytes_max
        _require(not (begins and is_full), f"{user} has more on the disk than they may, and a job of theirs begins")
        mine = [slots for job, slots in holds.items() if snapshot.jobs_by_id[job].user == user and slots]
        sizes = [slot.resources for slots in mine for slot in slots]
        gpus = sum(one.gpus or one.gpu_memory_mib / card_mib for one in sizes)
        _require(limit.gpus_max is None or gpus <= limit.gpus_max + 1e-6, f"{user} holds more GPUs than they may")
        _require(limit.running_max is None or len(mine) <= limit.running_max, f"{user} runs more jobs than they may")


def _check_verdicts(snapshot: Snapshot, plan: Plan) -> None:
    started = {action.job for action in plan.actions if isinstance(action, Start)}
    waiting = {job.id for job in snapshot.jobs if job.state is JobState.QUEUED} - started
    wrong = sorted(waiting.symmetric_difference(plan.verdicts))
    _require(not wrong, f"either a start or a reason, never both or neither: jobs {wrong}")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise BrokenPlan(problem)
