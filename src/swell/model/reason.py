"""Why is a job not running? One dominant reason, from this fixed list, in this order.

If several are true, the one that comes first here is reported: it must change before the others matter. A succeeded
job has a reason only if epochs are missing, and a running job only if something is wrong. docs/reasons.md has the table
for users.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Code(StrEnum):
    """The codes in order of precedence. The comment is the meaning; `planner/why/` writes the sentence."""

    # the job has ended (or is ending): the past is certain, so it comes first
    CANCELLED = "Cancelled"  # a user cancelled it
    OBJECT_DELETED = "ObjectDeleted"  # its object in the cluster was deleted with kubectl
    TIME_LIMIT = "TimeLimit"  # it ran longer than its own limit
    GPU_MEMORY_OVERRUN = "GpuMemoryOverrun"  # it used more GPU memory than it reserved, and its policy is to stop
    DISK_LIMIT = "DiskLimit"  # its user had far too much on the disk, and it had the most of what was running
    GPU_IDLE = "GpuIdle"  # its GPUs were idle for the whole window that it gave
    MACHINE_RESTARTED = "MachineRestarted"  # the node was restarted while the job was running
    START_FAILED = "StartFailed"  # the command or its folder could not be used
    IMAGE_UNAVAILABLE = "ImageUnavailable"  # its image could not be pulled or started
    OUT_OF_MEMORY = "OutOfMemory"  # a task used more memory than its limit
    KEEPER_LOST = "KeeperLost"  # it ended, but its exit code was not recorded
    TASK_FAILED = "TaskFailed"  # a task ended with a code other than 0
    ENDED_EARLY = "EndedEarly"  # it ended with 0 before its last epoch
    NOT_RECORDED = "NotRecorded"  # its state could not be written to the database
    DEPENDENCY_FAILED = "DependencyFailed"  # a job that it depends on did not succeed
    # it holds resources
    STOPPING = "Stopping"  # it was asked to stop and has not ended yet
    WORKER_UNREACHABLE = "WorkerUnreachable"  # its node has not been heard from
    TASK_TROUBLE = "TaskTrouble"  # it is running, but one of its tasks keeps ending or does not restart
    STARTING = "Starting"  # it has resources; its processes are being started
    # it waits
    HELD = "Held"  # a user put it on hold
    WAITING_FOR_JOB = "WaitingForJob"  # another job must end first
    WAITING_TO_RETRY = "WaitingToRetry"  # it failed, or stopped unasked right after its start; it starts again soon
    CANNOT_RUN_HERE = "CannotRunHere"  # it requests more than any node has; waiting will not help
    NO_SUITABLE_NODE = "NoSuitableNode"  # its placement rules exclude the nodes that could hold it
    NO_WORKER = "NoWorker"  # no worker has registered yet
    WAITING_FOR_POOL = "WaitingForPool"  # no node can run it now; a pool can start a worker that could
    USER_LIMIT = "UserLimit"  # its user has reached a limit
    OVER_ESTIMATE = "OverEstimate"  # it ran longer than its estimate, so other jobs of its priority go first
    FAIR_SHARE = "FairShare"  # a user who has recently used less goes first
    WAITING_FOR_ROOM = "WaitingForRoom"  # it would fit on an empty machine; other jobs use the resources
    WAITING_IN_LINE = "WaitingInLine"  # it would fit now, but would delay a job ahead of it
    WAITING_FOR_WIDTH = "WaitingForWidth"  # it could start narrower now; others are about to give it its whole width
    WAITING_FOR_SHORTER = "WaitingForShorter"  # it could start now; shorter jobs make better use of what it would take
    NOT_YET_PLANNED = "NotYetPlanned"  # it was just accepted


Evidence = dict[str, int | float | str | list[int] | list[str] | None]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is not running, for people and for programs."""

    code: Code
    message: str
    evidence: Evidence = field(default_factory=dict)
    next: str = ""

    def to_document(self) -> dict[str, object]:
        return {"code": str(self.code), "message": self.message, "evidence": self.evidence, "next": self.next}
