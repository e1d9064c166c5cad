"""Which machines are there, and what do they offer?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from swell.model.placement import Taint
from swell.model.resources import Resources

NodeId = str
DeviceId = str
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  # of a cluster's node, in MiB: NVIDIA's GPU feature discovery writes it


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `simulated` ones exist so that everything can be tried without a GPU, and are labelled so."""

    id: DeviceId  #: NVML's UUID, or sim-N
    memory_mib: int  #: 0: not known, and nothing of it can be promised
    model: str
    simulated: bool = False
    is_watched: bool = False  #: the driver tells which process uses how much of it
    outsiders_mib: int = 0  #: used by processes that are none of ours, rounded up; 0: nothing worth mentioning


@dataclass(frozen=True, slots=True)
class BackendJob:
    """What a batch system or a cluster calls the job, task or pod in which a worker runs."""

    backend: str  #: slurm, aws-batch, azure-batch or kubernetes
    id: str
    log: str = ""  #: its own log: a file, an address or a command; empty: nobody knows


@dataclass(frozen=True)
class Node:
    """A machine that can hold tasks."""

    id: NodeId
    cpus_milli: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    is_reachable: bool = True  #: False: it keeps what it holds, and nothing new is sent there
    container_runtime: str = ""  #: podman, docker, or kubernetes of a cluster's node; empty: none
    unenforced: tuple[tuple[str, str], ...] = ()  #: what tasks are not kept to there (memory, pids, …), and why not
    labels: tuple[tuple[str, str], ...] | None = None  #: of a cluster's node; None: a machine of our own, without rules
    taints: tuple[Taint, ...] = ()  #: of a cluster's node
    is_cordoned: bool = False  #: of a cluster's node: it keeps what it holds, and nobody new is to go there
    tasks_max: int | None = None  #: how many tasks of ours it takes, were all of them there; None: no limit
    lost: tuple[Device, ...] = ()  #: GPUs that have stopped to answer: nothing is sent there, and they may come back
    machine: str = ""  #: the same for nodes on one machine; empty: nobody has said
    is_preemptible: bool = False  #: it may disappear at any moment
    backend: BackendJob | None = None  #: what its worker runs in; None: nothing that Swell knows of
    address: str = ""  #: where tasks on other machines reach those of this one; empty: nobody has said

    @cached_property
    def capacity(self) -> Resources:
        return Resources(self.cpus_milli, self.memory_mib, len(self.devices))

    @cached_property
    def devices_by_size(self) -> tuple[Device, ...]:
        """The order in which GPUs are given away: what is large is left for those who need that.

        Among equals that of the node, where neighbours are often connected more closely.
        """
        return tuple(sorted(self.devices, key=attrgetter("memory_mib")))

    @cached_property
    def sizes_mib(self) -> Mapping[DeviceId, int]:
        """Of its GPUs, in that order, were nobody else there."""
        return {device.id: device.memory_mib for device in self.devices_by_size}

    @cached_property
    def left_mib(self) -> Mapping[DeviceId, int]:
        """What outsiders leave of each."""
        return {device.id: device.memory_mib - device.outsiders_mib for device in self.devices_by_size}

    @cached_property
    def used_outside(self) -> tuple[DeviceId, ...]:
        """GPUs that processes outside Swell use."""
        return tuple(device.id for device in self.devices if device.outsiders_mib)


def with_lost_gpus(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """As if every GPU answered; the same tuple where all do."""
    if not any(node.lost for node in nodes):
        return nodes
    return tuple(replace(node, devices=(*node.devices, *node.lost), lost=()) for node in nodes)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """What a cluster's name for a priority stands for."""

    value: int
    preempts: bool = True  #: may its pods take the room of others? False: `preemptionPolicy: Never`
