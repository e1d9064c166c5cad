"""What can be said of a job that waits, whatever it waits for?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swell.model.plan import JobView, Snapshot, Verdict
from swell.model.quantity import number_of
from swell.model.reason import Evidence
from swell.model.resources import NOTHING, Resources, gpus_of
from swell.planner.fit import Groups
from swell.planner.room import size
from swell.planner.seat import least
from swell.planner.why.asking import Asking
from swell.planner.why.facts import Facts, facts

NAMES_SHOWN_MAX = 5  # a sentence with more ids is not read


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One job that waits, and everything that can be said about it."""

    snapshot: Snapshot
    job: JobView
    verdict: Verdict
    asking: Asking

    @property
    def groups(self) -> Groups:
        return least(self.job.shape)

    @property
    def task(self) -> Resources:
        """The most demanding of its tasks."""
        return max((resources for resources, _ in self.groups), key=size)

    @property
    def wants(self) -> str:
        shape = self.job.shape
        if shape.is_array:
            return f"{self.task} for each task"
        at_least = "at least " if shape.width_min < shape.width_max else ""
        if sum(count for _, count in self.groups) == 1:
            return f"{at_least}{self.task}"
        roles = " and ".join(f"{tasks(count)} of {resources}" for resources, count in self.groups)
        return f"{at_least}{roles}, all at once"

    @property
    def gpus(self) -> float:
        """Of all its tasks together; a share counts as the part of a GPU that it is."""
        return sum(count * gpus_of(resources, self.snapshot.card_mib) for resources, count in self.groups)

    @property
    def is_one_machine(self) -> bool:
        return len(self.snapshot.nodes) == 1

    @property
    def facts(self) -> Facts:
        return facts(self.snapshot, self.job.shape.rules)

    def evidence(self) -> Evidence:
        task, free = self.task, nearest(self.facts.free, self.task)
        memory: Evidence = {}
        if task.gpu_memory_mib:
            memory = {"wants_gpu_memory_mib": task.gpu_memory_mib, "largest_free_gpu_memory_mib": free.gpu_memory_mib}
        return memory | {
            "wants_tasks": sum(count for _, count in self.groups),
            "wants_cpus": task.cpus_milli / 1000,
            "wants_memory_mib": task.memory_mib,
            "wants_gpus": task.gpus,
            "largest_free_cpus": free.cpus_milli / 1000,
            "largest_free_memory_mib": free.memory_mib,
            "largest_free_gpus": free.gpus,
            "nodes": len(self.snapshot.nodes),
        }


def nearest(rooms: Iterable[Resources], wanted: Resources) -> Resources:
    """What there is on the one node that comes nearest to holding a task."""
    return max(rooms, key=lambda room: (_share(wanted, room), *size(room)), default=NOTHING)


def _share(wanted: Resources, free: Resources) -> float:
    """How much of the demand is there, by the resource that is shortest."""
    wants, there = size(wanted), size(free)
    if wanted.is_share:
        wants, there = (wanted.gpu_memory_mib, *wants[1:]), (free.gpu_memory_mib, *there[1:])
    pairs = zip(wants, there, strict=True)
    return min((min(1.0, has / want) for want, has in pairs if want), default=1.0)


def tasks(count: int) -> str:
    return number_of(count, "task")
