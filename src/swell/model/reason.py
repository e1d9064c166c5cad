"""Why is a job not running? One dominant reason, from this fixed list, in this order.

When several are true the one that stands first here is told: it is the one that must change before the
others matter. A succeeded job has no reason, and a running one only when something is wrong. docs/reasons.md repeats
the table for users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Code(StrEnum):
    """In order of precedence. The comment is the meaning; `explain.py` writes the words."""

    # the job has ended (or is ending): the past is certain, so it comes first
    CANCELLED = "Cancelled"  # somebody asked for it
    OBJECT_DELETED = "ObjectDeleted"  # somebody deleted what it was in the cluster
    TIME_LIMIT = "TimeLimit"  # it ran longer than its own limit
    GPU_MEMORY_OVERRUN = "GpuMemoryOverrun"  # it used more GPU memory than it reserved, and asked to be stopped then
    GPU_IDLE = "GpuIdle"  # its GPUs were idle for the whole window that it gave
    MACHINE_RESTARTED = "MachineRestarted"  # the machine was rebooted under it
    START_FAILED = "StartFailed"  # the command or its folder could not be used
    IMAGE_UNAVAILABLE = "ImageUnavailable"  # its image could not be pulled or started
    OUT_OF_MEMORY = "OutOfMemory"  # a task used more memory than it may
    KEEPER_LOST = "KeeperLost"  # it ended, but its exit code was not recorded
    TASK_FAILED = "TaskFailed"  # a task ended with a code other than 0
    DEPENDENCY_FAILED = "DependencyFailed"  # a job it was to follow did not succeed
    # it holds room
    STOPPING = "Stopping"  # asked to stop, still winding down
    WORKER_UNREACHABLE = "WorkerUnreachable"  # its machine has not been heard of
    TASK_TROUBLE = "TaskTrouble"  # it runs, but a task of it keeps ending, or does not start again
    STARTING = "Starting"  # room is given, its processes are being started
    # it waits
    HELD = "Held"  # somebody asked that it wait
    WAITING_FOR_JOB = "WaitingForJob"  # another job must end first
    WAITING_TO_RETRY = "WaitingToRetry"  # it failed a moment ago and is tried again soon
    CANNOT_RUN_HERE = "CannotRunHere"  # it wants more than exists; waiting will not help
    NO_SUITABLE_NODE = "NoSuitableNode"  # its rules keep it off the nodes that could hold it
    NO_WORKER = "NoWorker"  # no machine has offered itself yet
    USER_LIMIT = "UserLimit"  # its owner holds as much as they may
    OVER_ESTIMATE = "OverEstimate"  # it ran longer than its estimate, so others of its priority go first
    FAIR_SHARE = "FairShare"  # others who have used less lately go first
    WAITING_FOR_ROOM = "WaitingForRoom"  # it would fit on an empty machine; others hold the room
    WAITING_IN_LINE = "WaitingInLine"  # it would fit now, but would delay one that stands before it
    NOT_YET_PLANNED = "NotYetPlanned"  # accepted a moment ago


Evidence = dict[str, int | float | str | list[int] | list[str] | None]


@dataclass(frozen=True, slots=True)
class Reason:
    """What is told to people and programs alike."""

    code: Code
    message: str
    evidence: Evidence = field(default_factory=dict)
    next: str = ""

    def to_document(self) -> dict[str, object]:
        return {"code": str(self.code), "message": self.message, "evidence": self.evidence, "next": self.next}
