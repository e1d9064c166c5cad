"""How full do shared GPUs get? Pods of Alibaba's published cluster ("openb") arrive until no more fit; nobody leaves.

`--data DIR` names a folder that has `openb/` as it was published. Pods are drawn at random, as many as ask together for
130 % of the GPUs. The figure is the part of all GPUs that is allocated when 100 % and 130 % have arrived. Random and
best fit say whether the data is read as its authors read it; FGD is the best they published.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

import numpy as np

from bench.rows import Row, Setting, progress
from swell.model.cluster import Node
from swell.model.job import Dimension, JobState
from swell.model.placement import Operator, PlacementRules, Requirement, Term
from swell.model.plan import JobView, Shape
from swell.planner.fit import find
from swell.planner.mix import Mix
from swell.planner.room import Room
from swell.sim.traces.openb import OpenbPod, read_nodes, read_pods
from swell.sim.workload import SimCluster

LISTS = ("default", "gpushare40", "multigpu20", "gpuspec10")
PUBLISHED = {  # random, best fit, FGD, when 100 % have arrived
    "default": (86.3, 92.9, 95.2),
    "gpushare40": (84.9, 91.4, 94.0),
    "multigpu20": (86.9, 93.7, 95.5),
    "gpuspec10": (86.3, 93.1, 94.7),
}
SEEDS = 10
MODEL = "gpu-model"  # the label by which a pod that names GPU models chooses its nodes
LOOK_AGAIN = 1.25  # the mix is counted again when a quarter more pods have arrived: it changes slowly


@dataclass
class Nodes:
    """What is left on every node, one row each."""

    cpus: np.ndarray
    memory: np.ndarray
    gpus: np.ndarray  #: thousandths of each GPU; -1: there is no such GPU
    models: np.ndarray
    most: tuple[float, float, float]  #: CPUs, memory and GPUs of the largest node

    @classmethod
    def of(cls, cluster: SimCluster) -> Nodes:
        widest = max(len(node.devices) for node in cluster.nodes)
        gpus = np.array([[1000] * len(n.devices) + [-1] * (widest - len(n.devices)) for n in cluster.nodes])
        cpus = np.array([float(node.cpus_milli) for node in cluster.nodes])
        memory = np.array([float(node.memory_mib) for node in cluster.nodes])
        models = np.array([node.devices[0].model if node.devices else "" for node in cluster.nodes])
        return cls(cpus, memory, gpus, models, (cpus.max(), memory.max(), 1000.0 * widest))

    def feasible(self, pod: OpenbPod) -> np.ndarray:
        """The numbers of the nodes that it fits on."""
        fits = (self.cpus >= pod.needs.cpus_milli) & (self.memory >= pod.needs.memory_mib)
        if pod.needs.is_share:
            fits &= (self.gpus >= pod.gpu_milli).any(axis=1)
        elif pod.needs.gpus:
            fits &= (self.gpus == 1000).sum(axis=1) >= pod.needs.gpus
        if pod.models:
            fits &= np.isin(self.models, pod.models)
        return np.flatnonzero(fits)

    def take(self, node: int, pod: OpenbPod) -> None:
        self.cpus[node] -= pod.needs.cpus_milli
        self.memory[node] -= pod.needs.memory_mib
        if pod.needs.is_share:
            row = self.gpus[node]
            fitting = np.flatnonzero(row >= pod.gpu_milli)
            row[fitting[np.argmin(row[fitting])]] -= pod.gpu_milli
        elif pod.needs.gpus:
            self.gpus[node][np.flatnonzero(self.gpus[node] == 1000)[: pod.needs.gpus]] = 0


class Packing(Protocol):
    """Where pods go, one after the other."""

    def put(self, pod: OpenbPod) -> bool:
        """False: there is no room for it."""
        ...


Choose = Callable[[Nodes, np.ndarray, OpenbPod, random.Random], int]


class Reference:
    """One of the published policies."""

    def __init__(self, cluster: SimCluster, choose: Choose, chance: random.Random) -> None:
        self._nodes, self._choose, self._chance = Nodes.of(cluster), choose, chance

    def put(self, pod: OpenbPod) -> bool:
        feasible = self._nodes.feasible(pod)
        if len(feasible):
            self._nodes.take(self._choose(self._nodes, feasible, pod, self._chance), pod)
        return len(feasible) > 0


def at_random(_: Nodes, feasible: np.ndarray, __: OpenbPod, chance: random.Random) -> int:
    return int(feasible[chance.randrange(len(feasible))])


def best_fit(nodes: Nodes, feasible: np.ndarray, _: OpenbPod, __: random.Random) -> int:
    """Where the least is left, each kind of thing beside what the largest node has of it."""
    left = nodes.cpus[feasible] / nodes.most[0] + nodes.memory[feasible] / nodes.most[1]
    gpus = np.maximum(nodes.gpus[feasible], 0).sum(axis=1)
    return int(feasible[np.argmin(left + gpus / nodes.most[2])])


class Planner:
    """The planner's own search for a place, as `admit` calls it for a job that waits.

    What it knows of the mix are the pods that have arrived, those that found no room included.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._nodes = tuple(_labeled(node) for node in cluster.nodes)
        self._room = Room.of(self._nodes)
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._arrived: list[JobView] = []
        self._counted = 0

    def put(self, pod: OpenbPod) -> bool:
        shape = self._shapes.setdefault((pod.needs, pod.models), _shape(pod))
        self._arrived.append(JobView(len(self._arrived), shape, 0, JobState.QUEUED))
        if len(self._arrived) > LOOK_AGAIN * self._counted:
            self._counted = len(self._arrived)
            self._room = self._room.knowing(Mix.of(self._arrived, self._nodes))
        places = find(shape, (self._room,))
        self._room.take(places or ())
        return places is not None


def _labeled(node: Node) -> Node:
    return replace(node, labels=((MODEL, node.devices[0].model),) if node.devices else ())


def _shape(pod: OpenbPod) -> Shape:
    wanted = Requirement(MODEL, Operator.IN, pod.models)
    rules = (PlacementRules(terms=(Term((wanted,)),)),) if pod.models else ()
    return Shape(((pod.needs, 1),), Dimension.TASKS, 1, 1, is_array=False, time_limit_s=None, rules=rules)


POLICIES: dict[str, Callable[[SimCluster, random.Random], Packing]] = {
    "random": lambda cluster, chance: Reference(cluster, at_random, chance),
    "best fit": lambda cluster, chance: Reference(cluster, best_fit, chance),
    "swell": lambda cluster, _: Planner(cluster),
}


def run(setting: Setting) -> Iterator[Row]:
    if setting.data is None:
        progress("packing needs --data DIR with openb/ in it; it is left out")
        return
    folder = setting.data / "openb"
    cluster = read_nodes(folder / "openb_node_list_gpu_node.csv")
    for name in LISTS:
        pods = read_pods(folder / f"openb_pod_list_{name}.csv")
        for place, policy in enumerate(POLICIES):
            row = f"{name}, {policy}"
            if not setting.rows or any(wanted in row for wanted in setting.rows):
                yield _row(setting, cluster, pods, policy, row, PUBLISHED[name][place])


def _row(setting: Setting, cluster: SimCluster, pods: list[OpenbPod], policy: str, row: str, theirs: float) -> Row:
    """`theirs`: what was published for the same policy, and for the planner the best that was."""
    found = []
    began = time.process_time()
    for seed in range(setting.seed, setting.seed + SEEDS):
        found.append(pack(cluster, pods, POLICIES[policy], seed))
        progress(f"{row}: {seed - setting.seed + 1} of {SEEDS}")
    at_100, at_130 = (100 * fmean(one) for one in zip(*found, strict=True))
    each = [round(100 * one, 2) for one, _ in found]
    detail = {"at_100": at_100, "at_130": at_130, "each": each, "cpu_s": time.process_time() - began}
    is_ours = policy == "swell"
    return Row("packing", row, "%", at_100 if is_ours else None, theirs, f">= {theirs}" if is_ours else "", detail)


def pack(
    cluster: SimCluster, pods: list[OpenbPod], policy: Callable[[SimCluster, random.Random], Packing], seed: int
) -> tuple[float, float]:
    """Which part of the GPUs is allocated when 100 % and 130 % of them have been asked for."""
    chance = random.Random(seed)
    packing, capacity = policy(cluster, chance), 1000 * cluster.gpus
    asked = allocated = 0
    at_100: float | None = None
    while asked < 1.3 * capacity:
        order = pods[:]
        chance.shuffle(order)
        for pod in order:
            asked += pod.gpu_milli
            if packing.put(pod):
                allocated += pod.gpu_milli
            if at_100 is None and asked >= capacity:
                at_100 = allocated / capacity
            if asked >= 1.3 * capacity:
                break
    return at_100 or 0.0, allocated / capacity
