"""What may the planner know, and what has it decided?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, NamedTuple

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.codec import INLINE
from swell.model.job import Dimension, JobId, JobState, ResizeMode
from swell.model.placement import PlacementRules
from swell.model.quota import DiskUse
from swell.model.reason import Code
from swell.model.resources import NOTHING, Resources, gpus_of
from swell.model.training import SharedCurve, Training
from swell.model.width import Groups, groups_at

ENDLESS = float("inf")


class Place(NamedTuple):
    """Where a task goes, and what it takes there."""

    node: NodeId
    resources: Resources
    devices: tuple[DeviceId, ...] = ()  #: the GPU of which it takes a share; the whole ones that are known already


Places = tuple[Place, ...]  # in rank order


@dataclass(frozen=True, slots=True)
class Slot:
    """A place one task runs in at a time: a gang's rank, or one of an array's lanes."""

    number: int
    node: NodeId
    resources: Annotated[Resources, INLINE]
    devices: tuple[DeviceId, ...] = ()
    is_draining: bool = False  #: taken back; held until its last task has been seen to end
    is_empty: bool = False  #: of a gang: its task has succeeded before the others; the room is free


def held_slots(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Without those that are empty; the same object where none is."""
    return tuple(slot for slot in slots if not slot.is_empty) if any(slot.is_empty for slot in slots) else slots


def taken(slots: Iterable[Slot]) -> Places:
    return tuple([Place(slot.node, slot.resources, slot.devices) for slot in slots])


def _sums(places: Places) -> tuple[tuple[NodeId, Resources, int], ...]:
    """By node: what they take together, and how many they are."""
    found: dict[NodeId, tuple[Resources, int]] = {}
    for place in places:
        resources, count = found.get(place.node, (NOTHING, 0))
        found[place.node] = resources + place.resources, count + 1
    return tuple((node, resources, count) for node, (resources, count) in found.items())


@dataclass(frozen=True, slots=True)
class Shape:
    """All the planner needs to place a job. Waiting jobs of one shape are one class to it."""

    roles: Groups  #: one task's resources and how many tasks, at the least width
    dimension: Dimension
    width_min: int
    width_max: int  #: of an array: how many tasks may run at once
    is_array: bool
    time_limit_s: float | None  #: None: endless; of an array: per task
    rules: tuple[PlacementRules | None, ...] = ()  #: by role; empty: none of them has any
    is_jobset: bool = False  #: it has no node in a domain that another JobSet has to itself
    is_split: bool = False  #: each of its `roles` is for one domain (`planner/domains.py`), whatever its width

    def tasks_at(self, width: int) -> Groups:
        """Groups of equal tasks at a width, in rank order."""
        if self.is_split:
            return self.roles
        return groups_at(self.roles, self.dimension, width, is_array=self.is_array)

    def rules_of(self, role: int) -> PlacementRules | None:
        return self.rules[role] if self.rules else None

    def with_shares(self, mib: int) -> Shape:
        return replace(self, roles=tuple((resources.with_share(mib), count) for resources, count in self.roles))

    @property
    def is_elastic(self) -> bool:
        return not self.is_array and self.width_min < self.width_max

    @property
    def domains(self) -> tuple[tuple[str, int], ...]:
        """Of tasks that have nodes to themselves: the label, and how many tasks in a row; in rank order."""
        if not self.rules:
            return ()
        return tuple(
            (rules.domain.key, rules.domain.tasks)
            for rules, (_, count) in zip(self.rules, self.roles, strict=True)
            if rules is not None and rules.domain is not None
            for _ in range(count // rules.domain.tasks)
        )


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the planner sees it."""

    id: JobId
    shape: Shape
    priority: int
    state: JobState
    slots: tuple[Slot, ...] = ()  #: what it holds, draining slots included, empty ones not
    started_at: float | None = None  #: of the present attempt; None: not started
    unfinished: int = 1  #: of an array: tasks that have not ended
    width: int = 0  #: what it holds now; 0: nothing
    used_s: float = 0.0  #: run time of earlier attempts, which its limit counts too
    mode: ResizeMode = ResizeMode.AT_CHECKPOINT
    is_at_once: bool = False  #: until its first checkpoint it may be stopped as soon as it runs (`resize: either`)
    training: Training | None = None  #: None: it has reported nothing
    estimate_s: float | None = None  #: its user's guess of the whole run time; None: no guess
    yielding: int | None = None  #: the width it is to come back with (0: when its turn comes); None: not asked
    wanted: int | None = None  #: the width somebody asked for by hand; None: the planner's choice
    returns: int | None = None  #: the width it left for, and waits to come back with; None: it was not resized
    lined_up_at: float = 0.0  #: when it last began to wait
    reserved_at: float | None = None  #: when others were asked to make room for it; None: nobody was
    waits_for: tuple[JobId, ...] = ()  #: jobs that must end before it
    not_before: float | None = None  #: a moment before which it is not tried again; None: at once
    user: str = ""
    is_held: bool = False  #: of an array that runs: no further task of it begins until somebody releases it
    ended_on: frozenset[NodeId] = frozenset()  #: of an array that runs: nodes on which its attempt is over
    preempts: bool = False  #: its PriorityClass lets it take the room of jobs of lower priority that cannot save
    problem: str = ""  #: why it could not be placed the last time, in the words of who refused; empty: it could
    curve: SharedCurve | None = None  #: of jobs like it, itself included; None: none has measured anything
    # Of its slots, because every plan asks for them:
    places: Places = field(init=False, compare=False, repr=False)
    sums: tuple[tuple[NodeId, Resources, int], ...] = field(init=False, compare=False, repr=False)  #: with how many

    def __post_init__(self) -> None:
        places = taken(self.slots)
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "sums", _sums(places) if places else ())

    def knowing(self, training: Training) -> JobView:
        """The same job; what follows from its slots is not worked out again."""
        found = object.__new__(JobView)
        for name in FIELDS_OF_VIEW:
            object.__setattr__(found, name, getattr(self, name))
        object.__setattr__(found, "training", training)
        return found

    @property
    def has_begun(self) -> bool:
        """It holds room, or has run before and goes on; not one that somebody has requeued after its end."""
        return bool(self.slots) or self.used_s > 0

    @property
    def is_partly_over(self) -> bool:
        """A gang of which some tasks have ended before the others, and left their room: its width stays as it is."""
        is_gang = bool(self.slots) and not self.shape.is_array
        return is_gang and len(self.slots) < sum(count for _, count in self.shape.tasks_at(self.width))

    @property
    def left_s(self) -> float | None:
        """What is left of its time limit, were it started now; None: endless."""
        return None if self.shape.time_limit_s is None else max(0.0, self.shape.time_limit_s - self.used_s)

    @property
    def ends_at(self) -> float:
        """When its room is free at the latest. A job without a limit, or an array, counts as endless."""
        if self.left_s is None or self.started_at is None or self.shape.is_array:
            return ENDLESS
        return self.started_at + self.left_s


FIELDS_OF_VIEW = tuple(one.name for one in fields(JobView))


@dataclass(frozen=True, slots=True)
class Standing:
    """What the planner may know of a user."""

    used_gpu_s: float = 0.0  #: lately; fades
    gpus_max: int | None = None  #: at once; None: no limit
    running_max: int | None = None  #: jobs at once; None: no limit
    disk: DiskUse | None = None  #: logs and checkpoints; None: no limit

    @property
    def is_limited(self) -> bool:
        return self.gpus_max is not None or self.running_max is not None or self.has_no_disk_left

    @property
    def has_no_disk_left(self) -> bool:
        """No job of theirs begins; what has begun goes on, also after it gave its room to somebody for a while."""
        return self.disk is not None and self.disk.is_over


@dataclass(frozen=True)
class Snapshot:
    """Everything the planner may know. Order never matters: it sorts for itself."""

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobView, ...]  #: all that have not ended
    arrivals: tuple[float, ...] = ()  #: when the last few jobs were submitted, oldest first
    users: Mapping[str, Standing] = field(default_factory=dict)  #: whoever is missing has used nothing and has no limit

    @cached_property
    def nodes_by_id(self) -> dict[NodeId, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def jobs_by_id(self) -> dict[JobId, JobView]:
        return {job.id: job for job in self.jobs}

    @cached_property
    def holding(self) -> tuple[JobView, ...]:
        """Those that hold room: few, beside the many that may wait."""
        return tuple([job for job in self.jobs if job.slots])

    @cached_property
    def card_mib(self) -> int:
        """Memory of the largest GPU: what a share is compared with where no GPU is chosen yet."""
        return max((device.memory_mib for node in self.nodes for device in node.devices), default=0)

    def held(self) -> Iterator[tuple[JobView, Slot]]:
        return ((job, slot) for job in self.holding for slot in job.slots)

    def gpus_held(self, user: str) -> float:
        """By all jobs of a user, also while they are given back; a share is the part of a GPU that it is."""
        return sum(gpus_of(slot.resources, self.card_mib) for job, slot in self.held() if job.user == user)


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the next attempt of a job, all its slots at once."""

    job: JobId
    width: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class SetSlots:
    """Change how many tasks of an array run at once. A slot taken back ends with its task, never before."""

    job: JobId
    slots: tuple[Slot, ...]  #: all it shall have, including draining ones


@dataclass(frozen=True, slots=True)
class Weighed:
    """What it would mean to stop a job at this moment, in the middle of an epoch."""

    again_s: float  #: of work that would be done again
    epoch_left_s: float  #: until its epoch ends


@dataclass(frozen=True, slots=True)
class Resize:
    """End the present attempt and start the next at another width."""

    job: JobId
    width: int
    when: ResizeMode
    deadline_s: float | None  #: from now, then its processes are stopped; None: it takes the time it takes
    room_for: JobId | None = None  #: who waits for what it gives up; None: it grows
    weighed: Weighed | None = None  #: None: there was nothing to choose between


@dataclass(frozen=True, slots=True)
class Preempt:
    """End the present attempt; it lines up again and goes on from its checkpoint."""

    job: JobId
    when: ResizeMode
    deadline_s: float | None  #: as in `Resize`
    room_for: JobId
    evicts: bool = False  #: its pods are evicted, and what it has not saved is lost: a PriorityClass says so


Action = Start | SetSlots | Resize | Preempt


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a queued job does not start now; `explain.py` makes words of it when somebody asks."""

    code: Code
    behind: JobId | None = None  #: the first waiting job, which must not be delayed; None: nobody is in the way


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was decided. The same snapshot always gives an equal plan."""

    actions: tuple[Action, ...] = ()
    verdicts: dict[JobId, Verdict] = field(default_factory=dict)  #: of those that wait, in the order of the line
