"""What was the engine asked for, and what of it is there?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from swell.engines.kubernetes.objects.objects import ObjectSeen, RoleSize
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.model.assignment import Assignment
from swell.model.cluster import DeviceId, NodeId
from swell.model.job import AttemptId
from swell.model.member_loss import MemberLoss
from swell.model.quantity import IndexSet
from swell.model.task_environment import Ranks


@dataclass(frozen=True, slots=True)
class TaskPlace:
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
    places: Mapping[int, TaskPlace]
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
    emptied: frozenset[int] = frozenset()  #: of a gang: ranks that have succeeded before the others
    evicts: bool = False  #: it is stopping, as far as PodDisruptionBudgets allow it
    draining: Mapping[int, TaskPlace] = field(default_factory=dict)  #: of an array: nothing begins there any more

    @classmethod
    def of(cls, whole: Assignment) -> Wanted:
        places, draining = (
            {
                slot.number: TaskPlace(slot.node, slot.devices, whole.role_of(slot))
                for slot in whole.slots
                if slot.is_draining is is_draining
            }
            for is_draining in (False, True)
        )
        return cls(
            attempt=whole.attempt,
            name=whole.name,
            manifest=whole.manifest,
            width=whole.width,
            revision=whole.revision,
            generation=whole.generation,
            places=places,
            nodes=whole.nodes,
            shares_mib=whole.shares_mib or (0,) * len(whole.roles),
            is_array=whole.is_array,
            indices=whole.indices,
            own=dict(whole.own),
            is_stopping=False,
            grace_s=whole.grace_s,
            has_begun=whole.has_begun,
            tasks=whole.tasks,
            is_elastic=whole.is_elastic,
            rewrites_width=whole.rewrites_width,
            time_limit_s=None if whole.is_array else whole.time_limit_s,  # an array's tasks carry their own
            ranks=whole.ranks,
            emptied=frozenset(slot.number for slot in whole.slots if slot.is_empty),
            draining=draining,
        )

    @property
    def lanes(self) -> Mapping[int, TaskPlace]:
        """Also those where nothing begins any more."""
        return {**self.places, **self.draining} if self.draining else self.places

    @property
    def held(self) -> list[TaskPlace]:
        """Where it has room."""
        return [place for number, place in self.lanes.items() if number not in self.emptied]

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
class AttemptSeen:
    """Of one attempt, at one moment."""

    object: ObjectSeen | None  #: None: not there, or the pods are all there is
    pods: tuple[tuple[int | None, PodSeen], ...]  #: rank (None: it has none yet) and pod, oldest first
    present: frozenset[NodeId] = frozenset()  #: nodes that are there and ready
    departed: Mapping[int, PodSeen] = field(default_factory=dict)  #: rank → one that had ended when it was deleted
    ending: str = ""  #: its namespace, if that is being deleted; empty: it is not
    on_loss: MemberLoss = MemberLoss.RESTART  #: of a pod group: what becomes of the others if one is deleted now
    closed: frozenset[NodeId] = frozenset()  #: where no pod that replaces another may begin: cordoned nodes

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
        is_of_jobs = self.object is not None and self.object.is_of_jobs
        return [pod for _, pod in self.pods if not pod.has_ended or (pod.is_deleting and not is_of_jobs)]


@dataclass(slots=True)
class AttemptMemory:
    """What we did for an attempt and the watches may not show yet. Nothing in it is missed after a restart."""

    bound: dict[str, NodeId] = field(default_factory=dict)  #: uid → where we have bound it
    shared: dict[str, DeviceId] = field(default_factory=dict)  #: uid → the GPU of its node that it shares
    met: dict[int, str] = field(default_factory=dict)  #: rank → uid of a pod that was there
    ranks: dict[str, int] = field(default_factory=dict)  #: uid → which task a pod without a number is
    fresh: ObjectSeen | None = None  #: as the API server answered last; None: nothing newer than the watch
    deleted: set[str] = field(default_factory=set)  #: uids that we have deleted
    created: set[int] = field(default_factory=set)  #: ranks of pods that we have made
    may_create: bool = False  #: who submitted it may create its object, as the API server has said
    told: bool = False  #: its Secret is written
    may_evict: bool = False  #: all PodDisruptionBudgets have allowed that its pods are evicted
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
