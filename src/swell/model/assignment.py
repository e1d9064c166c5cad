"""What is an engine asked to run? One attempt of a job, whole, wherever its tasks go."""

from __future__ import annotations

from dataclasses import dataclass

from swell.model.cluster import NodeId
from swell.model.job import AttemptId, Container, IdlePolicy
from swell.model.job_files import JobFiles
from swell.model.launch import LaunchRole
from swell.model.plan import Slot
from swell.model.task_environment import Ranks


@dataclass(frozen=True, slots=True)
class Assignment:
    """The same for the same attempt whenever it is made: an engine may be told twice."""

    attempt: AttemptId
    generation: int  #: of the plan that decided it; never goes back
    revision: int  #: of the slots
    name: str
    width: int
    roles: tuple[LaunchRole, ...]
    slots: tuple[Slot, ...]  #: where its tasks run; of an array also those in which nothing begins any more
    role_of_rank: tuple[int, ...]  #: empty: every task has the first role
    indices: str  #: of an array: those that are not done; of a gang: empty
    is_array: bool
    tasks: int  #: ranks; of an array all its indices, also those that are done
    nodes: tuple[NodeId, ...]  #: that it has ever been on, in the order of ranks, each once
    workdir: str
    umask: int
    environment: str  #: hash of the caller's environment
    env: tuple[tuple[str, str], ...]  #: added to it
    own: tuple[tuple[str, str], ...]  #: what only this attempt is told: where to report, what to go on from
    time_limit_s: float | None  #: None: endless
    grace_s: float
    manifest: str = ""  #: hash of the document that its object is made from; empty: it has none
    has_begun: bool = False  #: a task of it was seen to run, also by a server before this one
    is_elastic: bool = False  #: it may be resized, so it must be able to report
    rewrites_width: bool = False  #: `--num_processes=` in its commands follows the GPUs of each task
    shares_mib: tuple[int, ...] = ()  #: of each role: memory of a GPU that it shares; 0: whole GPUs, or none
    tensorboard: str | None = None  #: folder; None: no TensorBoard beside it
    user: str | None = None  #: as whom its tasks run; None: as the worker itself
    uid: int | None = None  #: of that user when it was submitted; None: as above
    idle: IdlePolicy | None = None  #: None: its GPUs may idle
    container: Container | None = None  #: None: plain processes
    ranks: Ranks = Ranks.TASKS
    files: JobFiles | None = None  #: None: its tasks run in a folder that is there already
    handed: tuple[str, ...] = ()  #: names of the caller's variables that its containers are given

    def role_of(self, slot: Slot) -> int:
        return self.role_of_rank[slot.number] if self.role_of_rank else 0
