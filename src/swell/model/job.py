"""What does the user want done, and how far is it?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from swell.model.quantity import IndexSet
from swell.model.resources import Resources

JobId = int
GRACE_S_DEFAULT = 30.0  # between SIGTERM and SIGKILL, as Kubernetes and Slurm have it


class JobState(StrEnum):
    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class Dimension(StrEnum):
    """In which unit a job's width is counted."""

    GPUS = "gpus"  # GPUs of its one task
    TASKS = "tasks"  # number of tasks


@dataclass(frozen=True, slots=True, order=True)
class AttemptId:
    """One life of a job; written '12.1' everywhere people see it."""

    job: JobId
    number: int

    def __str__(self) -> str:
        return f"{self.job}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        job, _, number = text.partition(".")
        return cls(int(job), int(number))


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of task inside a job."""

    name: str
    command: tuple[str, ...]
    resources: Resources  #: of one task; in an elastic job the least it takes
    count: int  #: how many tasks; in an elastic job the least


@dataclass(frozen=True, slots=True)
class Array:
    """Independent tasks, one per index, at most so many at once."""

    indices: IndexSet
    at_once: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for, after defaults. Never changes after acceptance."""

    name: str
    roles: tuple[Role, ...]
    dimension: Dimension
    width_min: int
    width_max: int
    array: Array | None  #: None: a gang, all tasks start together
    priority: int
    time_limit_s: float | None  #: None: endless
    grace_s: float
    workdir: str
    env: tuple[tuple[str, str], ...]  #: added to the caller's environment
    umask: int

    @property
    def tasks_total(self) -> int:
        return len(self.array.indices) if self.array else sum(role.count for role in self.roles)

    def to_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "roles": [_role_document(role) for role in self.roles],
            "dimension": str(self.dimension),
            "width_min": self.width_min,
            "width_max": self.width_max,
            "array": None
            if self.array is None
            else {"indices": str(self.array.indices), "at_once": self.array.at_once},
            "priority": self.priority,
            "time_limit_s": self.time_limit_s,
            "grace_s": self.grace_s,
            "workdir": self.workdir,
            "env": dict(self.env),
            "umask": self.umask,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> JobSpec:
        return cls(
            **{
                **document,
                "roles": tuple(_parse_role(role) for role in document["roles"]),
                "dimension": Dimension(document["dimension"]),
                "array": _parse_stored_array(document["array"]),
                "env": tuple(sorted(document["env"].items())),
            }
        )


def _role_document(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "command": list(role.command),
        "cpus_milli": role.resources.cpus_milli,
        "memory_mib": role.resources.memory_mib,
        "gpus": role.resources.gpus,
        "count": role.count,
    }


def _parse_role(document: dict[str, Any]) -> Role:
    resources = Resources(document["cpus_milli"], document["memory_mib"], document["gpus"])
    return Role(document["name"], tuple(document["command"]), resources, document["count"])


def _parse_stored_array(document: dict[str, Any] | None) -> Array | None:
    return None if document is None else Array(IndexSet.parse(document["indices"]), document["at_once"])
