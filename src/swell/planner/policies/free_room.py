"""Where would a reference policy put a job?

The simplest placement that keeps every rule that `check.py` knows: whole tasks, on the node with the most room first,
as many there as fit. Reference policies share it; the default policy has a better one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swell.model.cluster import DeviceId, Node
from swell.model.job import JobState
from swell.model.placement import NO_RULES, Company, PlacementRules, objection, unlabeled_objection
from swell.model.plan import JobView, Slot, Snapshot
from swell.model.resources import Resources


@dataclass
class FreeNode:
    """What is left on one node."""

    node: Node
    cpus_milli: int
    memory_mib: int
    whole: list[DeviceId]  #: GPUs that nobody uses, small ones first
    left_mib: dict[DeviceId, int]  #: memory of GPUs that nobody holds whole
    tasks: int  #: how many more tasks it takes

    @classmethod
    def of(cls, node: Node) -> FreeNode:
        unused = [device.id for device in node.devices_by_size if not device.outsiders_mib]
        tasks = node.tasks_max if node.tasks_max is not None else 1_000_000
        return cls(node, node.cpus_milli, node.memory_mib, unused, dict(node.left_mib), tasks)

    def copy(self) -> FreeNode:
        return FreeNode(self.node, self.cpus_milli, self.memory_mib, list(self.whole), dict(self.left_mib), self.tasks)

    def take(self, slot: Slot) -> None:
        self.cpus_milli -= slot.resources.cpus_milli
        self.memory_mib -= slot.resources.memory_mib
        self.tasks -= 1
        for device in slot.devices:
            if device in self.whole:
                self.whole.remove(device)
            if slot.resources.gpus:
                self.left_mib.pop(device, None)
            elif device in self.left_mib:
                self.left_mib[device] -= slot.resources.gpu_memory_mib

    def devices_for(self, task: Resources) -> tuple[DeviceId, ...] | None:
        """None: the task does not fit here."""
        if task.cpus_milli > max(self.cpus_milli, 0) or task.memory_mib > max(self.memory_mib, 0) or self.tasks < 1:
            return None
        if task.is_share:
            shared = [one for one, left in self.left_mib.items() if left >= task.gpu_memory_mib]
            return (min(shared, key=lambda one: (self.left_mib[one], one)),) if shared else None
        sizes = self.node.sizes_mib
        large = [one for one in self.whole if sizes[one] >= task.gpu_memory_mib]
        return tuple(large[: task.gpus]) if len(large) >= task.gpus else None


class FreeRoom:
    """What is left on every node that answers."""

    def __init__(self, snapshot: Snapshot, held: Iterable[JobView] | None = None) -> None:
        """`held`: by whom the rest is held; without: by everybody who holds something at the moment."""
        self._nodes = {node.id: FreeNode.of(node) for node in snapshot.nodes if node.is_reachable}
        for job in snapshot.holding if held is None else held:
            for slot in job.slots:
                if slot.node in self._nodes:
                    self._nodes[slot.node].take(slot)

    def copy(self) -> FreeRoom:
        other = FreeRoom.__new__(FreeRoom)
        other._nodes = {name: node.copy() for name, node in self._nodes.items()}
        return other

    @property
    def gpus(self) -> dict[str, int]:
        """By node: those that nobody uses."""
        return {name: len(node.whole) for name, node in self._nodes.items()}

    def take(self, job: JobView, width: int, *, on_one_node: bool = False) -> tuple[Slot, ...] | None:
        """Places for all its tasks, taken; None: there is no room for all of them, and nothing is taken."""
        kept = {name: node.copy() for name, node in self._nodes.items()}
        slots: list[Slot] = []
        for role, (task, count) in enumerate(job.shape.tasks_at(width)):
            rules = job.shape.rules_of(role) or NO_RULES
            if on_one_node:
                rules = PlacementRules(rules.selector, rules.terms, rules.tolerations, Company.TOGETHER)
            if not self._take_role(task, count, rules, slots):
                self._nodes = kept
                return None
        return tuple(slots)

    def width_to_try(self, job: JobView, width: int, *, on_one_node: bool = False) -> int:
        """See `width_to_try` below: what fits is what has a place on a node."""
        return width_to_try(job, width, lambda one: self.copy().take(job, one, on_one_node=on_one_node) is not None)

    def _take_role(self, task: Resources, count: int, rules: PlacementRules, slots: list[Slot]) -> bool:
        nodes = [node for node in self._nodes.values() if _may_go(rules, node.node)]
        while count:
            nodes.sort(key=lambda node: (-len(node.whole), -node.cpus_milli, node.node.id))
            took = 0
            for node in nodes:
                took = self._fill(node, task, count, rules.company, slots)
                if took:
                    break
            if not took:
                return False
            count -= took
            if rules.company is Company.APART:
                nodes.remove(node)
        return True

    def _fill(self, node: FreeNode, task: Resources, count: int, company: Company, slots: list[Slot]) -> int:
        """How many tasks this node takes."""
        trial = node.copy()
        found: list[Slot] = []
        while len(found) < (1 if company is Company.APART else count):
            devices = trial.devices_for(task)
            if devices is None:
                break
            slot = Slot(len(slots) + len(found), node.node.id, task, devices)
            trial.take(slot)
            found.append(slot)
        if company is Company.TOGETHER and len(found) < count:
            return 0
        if found:
            self._nodes[node.node.id] = trial
            node.whole, node.left_mib, node.tasks = trial.whole, trial.left_mib, trial.tasks
            node.cpus_milli, node.memory_mib = trial.cpus_milli, trial.memory_mib
            self._nodes[node.node.id] = node
        slots += found
        return len(found)


def width_to_try(job: JobView, width: int, fits: Callable[[int], bool]) -> int:
    """An array takes the most slots that fit, up to `width` and at least one; every other job takes `width`."""
    if not job.shape.is_array:
        return width
    return max(1, bisect_left(range(1, width + 1), True, key=lambda one: not fits(one)))


def _may_go(rules: PlacementRules, node: Node) -> bool:
    if node.labels is None:
        return unlabeled_objection(rules) is None
    return objection(rules, dict(node.labels), node.taints, name=node.id, is_cordoned=node.is_cordoned) is None


def is_ready(job: JobView, now: float) -> bool:
    """Does it wait for nothing but room?"""
    is_due = job.not_before is None or job.not_before <= now
    return job.state is JobState.QUEUED and not job.waits_for and is_due
