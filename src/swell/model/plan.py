"""What may the planner know, and what has it decided?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.job import Dimension, JobId, JobState
from swell.model.reason import Code
from swell.model.resources import Resources

ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place one task runs in at a time: a gang's rank, or one of an array's lanes."""

    number: int
    node: NodeId
    resources: Resources
    devices: tuple[DeviceId, ...] = ()
    is_draining: bool = False  #: taken back; held until its last task has been seen to end


@dataclass(frozen=True, slots=True)
class Shape:
    """All the planner needs to place a job. Waiting jobs of one shape are one class to it."""

    roles: tuple[tuple[Resources, int], ...]  #: one task's resources and how many tasks, at the least width
    dimension: Dimension
    width_min: int
    width_max: int  #: of an array: how many tasks may run at once
    is_array: bool
    time_limit_s: float | None  #: None: endless; of an array: per task

    def tasks_at(self, width: int) -> tuple[tuple[Resources, int], ...]:
        """Groups of equal tasks at a width, in rank order."""
        (resources, count), *others = self.roles
        if self.dimension is Dimension.GPUS and not self.is_array:
            return ((Resources(resources.cpus_milli, resources.memory_mib, width), count), *others)
        return ((resources, width), *others)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as the planner sees it."""

    id: JobId
    shape: Shape
    priority: int
    state: JobState
    slots: tuple[Slot, ...] = ()  #: what it holds, draining slots included
    started_at: float | None = None  #: None: not started
    unfinished: int = 1  #: of an array: tasks that have not ended

    @property
    def ends_at(self) -> float:
        """When its room is free at the latest. A job without a limit, or an array, counts as endless."""
        if self.shape.time_limit_s is None or self.started_at is None or self.shape.is_array:
            return ENDLESS
        return self.started_at + self.shape.time_limit_s


@dataclass(frozen=True)
class Snapshot:
    """Everything the planner may know. Order never matters: it sorts for itself."""

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobView, ...]  #: all that have not ended

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

    def held(self) -> Iterator[tuple[JobView, Slot]]:
        return ((job, slot) for job in self.holding for slot in job.slots)


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


Action = Start | SetSlots


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a queued job does not start now; `explain.py` makes words of it when somebody asks."""

    code: Code
    behind: JobId | None = None  #: the first waiting job, which must not be delayed; None: nobody is in the way


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was decided. The same snapshot always gives an equal plan."""

    actions: tuple[Action, ...] = ()
    verdicts: dict[JobId, Verdict] = field(default_factory=dict)
