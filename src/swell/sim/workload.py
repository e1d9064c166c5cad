"""Which jobs are submitted when, and on which machines do they run?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from swell.engines.simulated import Speed
from swell.engines.simulated.behavior import Placement
from swell.model.cluster import Device, Node
from swell.model.resources import Resources

GPU_MEMORY_MIB = 16 * 1024
ONE_GPU = Resources(cpus_milli=100, gpus=1)
WIDTHS_FINE_MAX, WIDTHS_STEP = 16, 4  # above this width, speeds are told in such steps


@dataclass(frozen=True)
class SimCluster:
    """Nodes that are all alike, or a list of them."""

    nodes: tuple[Node, ...]

    @property
    def gpus(self) -> int:
        return sum(len(node.devices) for node in self.nodes)

    @property
    def gpus_per_node(self) -> int:
        return max((len(node.devices) for node in self.nodes), default=0)

    @classmethod
    def of(
        cls,
        nodes: int,
        gpus: int,
        *,
        cpus: float = 64,
        memory_mib: int = 1024 * 1024,
        gpu_memory_mib: int = GPU_MEMORY_MIB,
    ) -> SimCluster:
        return cls(tuple(_node(f"n{n:03}", gpus, cpus, memory_mib, gpu_memory_mib) for n in range(nodes)))


def _node(name: str, gpus: int, cpus: float, memory_mib: int, gpu_memory_mib: int) -> Node:
    devices = tuple(Device(f"{name}-g{n}", gpu_memory_mib, "simulated", simulated=True) for n in range(gpus))
    return Node(name, round(cpus * 1000), memory_mib, devices)


@dataclass(frozen=True)
class SimJob:
    """One job of a workload."""

    name: str
    submit_s: float  #: since the beginning of the workload
    speed: Speed
    epochs: int
    width: int  #: what its user asked for; policies that resize nobody give it that
    width_min: int
    width_max: int
    per_task: Resources = ONE_GPU  #: of one task; the width counts tasks
    priority: int = 0
    user: str = "user"
    resumes: bool = True  #: False: it tells nothing, and begins again when it is stopped
    whole_seconds: bool = False  #: see `Behavior`
    gang: str = ""  #: of which this job is one pod, that waits for the others; empty: it is whole by itself
    gang_size: int = 1
    script: str = ""  #: jobs of one user with the same one share a curve; empty: it shares none
    estimate_s: float | None = None  #: what its user says its run time will be; None: nothing

    def left_s(self, placement: Placement, done: float) -> float:
        """Seconds of training that are left when so many epochs are done."""
        first, part = int(done), done - int(done)
        whole = self.speed.remaining_s(placement, first, self.epochs)
        return whole - (part * self.speed.epoch_s(placement, first) if part else 0.0)

    def alone_s(self, cluster: SimCluster, restart_s: float) -> float:
        """From its submission to its end, were nobody else there and it had its best width at once."""
        return self.shared_s(cluster, restart_s, 1.0)

    def shared_s(self, cluster: SimCluster, restart_s: float, jobs: float) -> float:
        """The same with an equal share of the cluster, of so many jobs, and at the best width within it."""
        high = max(self.width_min, min(self.width_max, int(cluster.gpus / max(jobs, 1.0))))
        return restart_s + min(
            self.left_s(compact(width, cluster.gpus_per_node), 0.0) for width in widths(self.width_min, high)
        )


@dataclass(frozen=True)
class Workload:
    name: str
    jobs: tuple[SimJob, ...]  #: by the time of submission

    def faster(self, factor: float) -> Workload:
        """The same jobs in less time: `factor` times the load."""
        return Workload(self.name, tuple(replace(job, submit_s=round(job.submit_s / factor)) for job in self.jobs))


@lru_cache(maxsize=4096)
def compact(width: int, per_node: int) -> Placement:
    """On as few nodes as possible, full ones first."""
    if not per_node:
        return (width,)
    full, rest = divmod(width, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


@lru_cache(maxsize=4096)
def widths(low: int, high: int) -> tuple[int, ...]:
    """All that are worth telling apart."""
    steps = range(low, high + 1)
    return tuple(n for n in steps if n <= WIDTHS_FINE_MAX or n % WIDTHS_STEP == 0 or n in (low, high))
