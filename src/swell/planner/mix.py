"""Which tasks are likely to come next, and how much of a node's free GPUs could they not use?

A task should go where it spoils least for those after it. Who comes after it nobody knows, but they will be like those
that are there: the *mix* is the kinds of GPU tasks of all jobs that run or wait, each as often as it occurs. What is
free on a node is *wasted* on a kind as far as tasks of that kind cannot use it: because a GPU has too little left, or
too few whole ones are left, or the CPUs or the memory end first. The mean over the mix is what a node wastes, and the
best node is the one whose waste grows least (FGD, USENIX ATC '23).

That measure asks whether one more task of a kind fits. Here it also asks how many fit (`ONE_MORE`): a node with eight
free GPUs and the CPUs for one task wastes seven of them. docs/planner.md has what both reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swell.model.cluster import Node, NodeId
from swell.model.placement import PlacementRules
from swell.model.plan import JobView, Shape
from swell.model.resources import COPIES_MAX, Resources
from swell.planner.nodes import NodeTable

ONE_MORE = 0.6  # weight of "does one more fit" beside "how many fit"; flat between 0.3 and 0.7 (bench/packing)
KINDS_MAX = 128  # the most frequent kinds; users can make up as many as they like, and each is counted on each node
STATES_KEPT_MAX = 20_000  # of nodes, for one set of kinds; each costs about a kilobyte
PARTS_OF_GPU = 1_000_000  # waste is compared in whole millionths of a GPU, so that equal ones are equal


class NodeState(NamedTuple):
    """What is free on one node."""

    cpus_milli: int
    memory_mib: int
    gpus: int  #: whole ones
    gpu_mib: int  #: the size of each
    open_mib: tuple[int, ...]  #: what each shared GPU has left, the least first
    rules_met: tuple[bool, ...]  #: which of the mix's rules the node meets

    def after(self, task: Resources, count: int) -> NodeState:
        """When so many such tasks are there, without what they take of shared GPUs."""
        return NodeState(
            self.cpus_milli - count * task.cpus_milli,
            self.memory_mib - count * task.memory_mib,
            self.gpus - count * task.gpus,
            *self[3:],
        )

    def with_share(self, left_mib: int, taken_mib: int) -> NodeState:
        """When so much is taken of a shared GPU that has so much left."""
        others = list(self.open_mib)
        others.remove(left_mib)
        return self._replace(open_mib=tuple(sorted((*others, left_mib - taken_mib))))

    def with_opened(self, size_mib: int, taken_mib: int) -> NodeState:
        """When a whole GPU is shared from now on."""
        return self._replace(gpus=self.gpus - 1, open_mib=tuple(sorted((*self.open_mib, size_mib - taken_mib))))


class _Kind(NamedTuple):
    """One kind of task with GPUs."""

    cpus_milli: int
    memory_mib: int
    gpus: int
    gpu_memory_mib: int
    rules: int  #: number of its rules among those of the mix


Floats = NDArray[np.float64]


class _Kinds:
    """What a node wastes on each kind, remembered by the node's state."""

    def __init__(self, kinds: tuple[_Kind, ...]) -> None:
        columns = np.array(kinds, dtype=np.float64).T
        self._cpus, self._memory, self._gpus, self._mib, rules = columns
        self._rules = rules.astype(int)
        self._is_share = self._gpus == 0
        # What is divided by, never zero: where it is one instead, the quotient is not used.
        self._some_cpus, self._some_memory = np.maximum(self._cpus, 1.0), np.maximum(self._memory, 1.0)
        self._some_gpus, self._some_mib = np.maximum(self._gpus, 1.0), np.maximum(self._mib, 1.0)
        self._known: dict[NodeState, Floats] = {}

    def waste(self, state: NodeState) -> Floats:
        """In MiB of GPU memory."""
        found = self._known.get(state)
        if found is None:
            if len(self._known) >= STATES_KEPT_MAX:
                self._known.clear()
            found = self._known[state] = self._waste(state)
        return found

    def _waste(self, state: NodeState) -> Floats:
        whole_mib = state.gpus * state.gpu_mib
        free_mib = whole_mib + sum(state.open_mib)
        tasks = self._tasks_elsewise(state)
        left = np.array([*state.open_mib, *[state.gpu_mib] * state.gpus], dtype=np.float64)[:, None]
        on_each = left // self._some_mib
        of_shares = (tasks >= 1) * (left * (on_each >= 1)).sum(axis=0)
        all_shares = np.minimum(tasks, on_each.sum(axis=0)) * self._mib
        gangs = np.minimum(tasks, state.gpus // self._some_gpus) * (self._mib <= state.gpu_mib)
        one_more = np.where(self._is_share, of_shares, (gangs >= 1) * float(whole_mib))
        how_many = np.where(self._is_share, all_shares, gangs * self._gpus * state.gpu_mib)
        usable: Floats = ONE_MORE * one_more + (1 - ONE_MORE) * how_many
        return free_mib - usable

    def _tasks_elsewise(self, state: NodeState) -> Floats:
        """How many fit by CPUs, memory and rules."""
        by_cpus = np.where(self._cpus > 0, state.cpus_milli // self._some_cpus, COPIES_MAX)
        by_memory = np.where(self._memory > 0, state.memory_mib // self._some_memory, COPIES_MAX)
        found: Floats = np.maximum(0.0, np.minimum(by_cpus, by_memory))
        return found * np.array(state.rules_met)[self._rules] if state.rules_met else found


@lru_cache(maxsize=4)
def _kinds(kinds: tuple[_Kind, ...]) -> _Kinds:
    return _Kinds(kinds)


Counts = Counter[tuple[Resources, PlacementRules | None]]


def _counted(jobs: Iterable[JobView]) -> Counts:
    """Tasks with GPUs. Equal shapes are one object, so that few of them are looked into."""
    shapes: dict[int, tuple[Shape, int]] = {}
    for job in jobs:
        _, before = shapes.get(id(job.shape), (job.shape, 0))
        shapes[id(job.shape)] = job.shape, before + _at_once(job)
    counts: Counts = Counter()
    for shape, times in shapes.values():
        for role, (task, tasks) in enumerate(shape.tasks_at(1 if shape.is_array else shape.width_min)):
            if task.gpus or task.is_share:
                counts[task, shape.rules_of(role)] += tasks * times
    return counts


def _at_once(job: JobView) -> int:
    """Of an array: how many tasks it still runs side by side."""
    return max(1, min(job.unfinished, job.shape.width_max)) if job.shape.is_array else 1


class Mix:
    """The kinds of tasks that are there, and how often each occurs."""

    def __init__(self, counts: Counts) -> None:
        frequent = sorted(counts.items(), key=lambda one: (-one[1], _order(*one[0])))[:KINDS_MAX]
        frequent.sort(key=lambda one: _order(*one[0]))
        self._rules = tuple(dict.fromkeys(rules for (_, rules), _ in frequent))
        number = {rules: n for n, rules in enumerate(self._rules)}
        keys = tuple(
            _Kind(task.cpus_milli, task.memory_mib, task.gpus, task.gpu_memory_mib, number[rules])
            for (task, rules), _ in frequent
        )
        self._kinds = _kinds(keys)
        total = sum(count for _, count in frequent)
        self._weights = np.array([count / total for _, count in frequent])
        self._known: dict[NodeState, float] = {}
        self._met: dict[NodeId, tuple[bool, ...]] = {}

    @classmethod
    def of(cls, jobs: Iterable[JobView], nodes: Sequence[Node]) -> Mix | None:
        """None: with less than two kinds there is nothing to weigh, the tightest fit is the best.

        Nobody has asked for a whole GPU or a whole node yet? Somebody may: each counts as one task that was seen.
        """
        counts = _counted(jobs)
        if len(counts) < 2:
            return None
        widest = max((len(node.devices) for node in nodes), default=0)
        counts.update([(Resources(gpus=gpus), None) for gpus in (1, widest) if gpus])
        return cls(counts)

    def rules_met(self, table: NodeTable, node: NodeId) -> tuple[bool, ...]:
        """Empty: all of them."""
        if len(self._rules) == 1 and self._rules[0] is None and not table.is_cluster:
            return ()
        if node not in self._met:
            self._met[node] = tuple(node in table.allowed(rules) for rules in self._rules)
        return self._met[node]

    def growth(self, before: NodeState, after: NodeState) -> int:
        """By how much more a node wastes afterwards, in millionths of a GPU; below zero: less."""
        more = self._waste(after) - self._waste(before)
        return round(PARTS_OF_GPU * more / max(1, before.gpu_mib))

    def _waste(self, state: NodeState) -> float:
        found = self._known.get(state)
        if found is None:
            found = self._known[state] = float(self._kinds.waste(state) @ self._weights)
        return found


def _order(task: Resources, rules: PlacementRules | None) -> tuple[object, ...]:
    """The same for the same jobs in any order."""
    return task.gpus, task.gpu_memory_mib, task.cpus_milli, task.memory_mib, repr(rules)
