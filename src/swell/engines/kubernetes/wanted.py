"""What was the engine asked for, and what of it is there?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from swell.engines.kubernetes.objects import ObjectSeen, RoleSize
from swell.engines.kubernetes.picture import PodSeen
from swell.model.cluster import DeviceId, NodeId
from swell.model.job import AttemptId
from swell.model.launch import Launch
from swell.model.quantity import IndexSet
from swell.model.task_environment import Ranks

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank runs; of an array, a lane."""

    node: NodeId
    devices: tuple[DeviceId, ...]
    role: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One attempt, over all its nodes."""

    attempt: AttemptId
    name: str
    manifest: str
    width: int
    revision: int
    generation: int
    places: Mapping[int, Place]
    nodes: tuple[NodeId, ...]
    shares_mib: tuple[int, ...]  #: of each role: of a GPU that is shared; 0: whole ones, or none
    is_array: bool
    indices: str
    own: Mapping[str, str]
    is_stopping: bool
    grace_s: float
    has_begun: bool  #: it was seen before, also by a server before this one
    tasks: int  #: ranks; of an array all its indices, also those that are done
    is_elastic: bool = False  #: its pods must be told where to report
    rewrites_width: bool = False  #: `--num_processes=` of their commands follows their GPUs
    time_limit_s: float | None = None  #: of a gang; None: endless
    ranks: Ranks = Ranks.TASKS
    draining: Mapping[int, Place] = field(default_factory=dict)  #: of an array: nothing begins there any more

    @classmethod
    def of(cls, launches: Sequence[Launch]) -> Wanted:
        first = launches[0]
        places, draining = (
            {lane.number: Place(launch.node, lane.devices, lane.role) for launch, lanes in given for lane in lanes}
            for given in (
                [(launch, launch.lanes) for launch in launches],
                [(launch, launch.draining) for launch in launches],
            )
        )
        return cls(
            attempt=first.attempt,
            name=first.name,
            manifest=first.manifest,
            width=first.width,
            revision=first.revision,
            generation=first.generation,
            places=places,
            nodes=first.nodes,
            shares_mib=first.shares_mib or (0,) * len(first.roles),
            is_array=first.is_array,
            indices=first.indices,
            own=dict(first.own),
            is_stopping=first.is_stopping,
            grace_s=first.grace_s,
            has_begun=first.has_begun,
            tasks=first.world_size,
            is_elastic=first.is_elastic,
            rewrites_width=first.rewrites_width,
            time_limit_s=None if first.is_array else first.time_limit_s,  # an array's tasks carry their own
            ranks=first.ranks,
            draining=draining,
        )

    @property
    def lanes(self) -> Mapping[int, Place]:
        """Also those where nothing begins any more."""
        return {**self.places, **self.draining} if self.draining else self.places

    def sizes(self) -> tuple[RoleSize, ...]:
        """Of each role."""
        if self.is_array:
            place = next(iter(self.lanes.values()), None)
            gpus = 0 if place is None or self.shares_mib[0] else len(place.devices)
            return (RoleSize(len(IndexSet.parse(self.indices)), gpus, self.shares_mib[0]),)
        return tuple(self._size(role) for role in range(len(self.shares_mib)))

    def _size(self, role: int) -> RoleSize:
        devices = [place.devices for place in self.places.values() if place.role == role]
        share_mib = self.shares_mib[role]
        return RoleSize(len(devices), 0 if share_mib or not devices else len(devices[0]), share_mib)


@dataclass(frozen=True)
class Seen:
    """Of one attempt, at one moment."""

    object: ObjectSeen | None  #: None: not there, or the pods are all there is
    pods: tuple[tuple[int | None, PodSeen], ...]  #: rank (None: it has none yet) and pod, oldest first
    present: frozenset[NodeId] = frozenset()  #: nodes that are there and ready
    departed: Mapping[int, PodSeen] = field(default_factory=dict)  #: rank → one that had ended when it was deleted

    @cached_property
    def staying(self) -> dict[int, PodSeen]:
        """By rank the newest that is not on its way out."""
        return {rank: pod for rank, pod in self.pods if rank is not None and not pod.is_deleting}

    @property
    def alive(self) -> list[PodSeen]:
        """Those that have not ended, or are not through with it.

        A suspended Job with a back-off for each index keeps a failed pod until it has made another, although the pod
        is deleted: of Jobs what has ended is through.
        """
        is_of_jobs = self.object is not None and self.object.kind in ("Job", "JobSet")
        return [pod for _, pod in self.pods if not pod.has_ended or (pod.is_deleting and not is_of_jobs)]


@dataclass(slots=True)
class Memory:
    """What we did for an attempt and the watches may not show yet. Nothing in it is missed after a restart."""

    bound: dict[str, NodeId] = field(default_factory=dict)  #: uid → where we have bound it
    shared: dict[str, DeviceId] = field(default_factory=dict)  #: uid → the GPU of its node that it shares
    met: dict[int, str] = field(default_factory=dict)  #: rank → uid of a pod that was there
    ranks: dict[str, int] = field(default_factory=dict)  #: uid → which task a pod without a number is
    fresh: ObjectSeen | None = None  #: as the API server answered last; None: nothing newer than the watch
    deleted: set[str] = field(default_factory=set)  #: uids that we have deleted
    created: set[int] = field(default_factory=set)  #: ranks of pods that we have made
    told: bool = False  #: its Secret is written
    is_half: bool = False  #: some of a gang are bound and others not
    starts_since: float | None = None  #: a pod is bound and does not start; None: all have, or none is
    waits_since: float | None = None  #: pods are missing, or not bound; None: all is well
    problem: str = ""  #: of the last call that failed
    fails_since: float | None = None  #: calls fail, one after the other; None: the last one did not
    held: str = ""  #: why its pods may not be bound yet; empty: they may
    refused: str = ""  #: why its object's controller makes no pods; empty: it does, or nobody knows
    asked_at: float = -math.inf  #: when that was asked last
    retry_at: float = 0.0
    failures: int = 0
    started: dict[int, float] = field(default_factory=dict)  #: rank → when it was first seen to run
    is_overdue: bool = False  #: its time limit has passed
    unplaced: str = ""  #: why the attempt is given up; empty: it is not
    kind: str = ""  #: of its object
