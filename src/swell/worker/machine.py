"""What does a run need to know of where it is, and of each of its tasks that lives?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from swell.machine.log_limit import LogWatch
from swell.machine.worker_folder import WorkerFolder
from swell.model.cluster import DeviceId, NodeId
from swell.model.launch import Lane, Launch, TaskSeen
from swell.worker import cgroups
from swell.worker.cgroups import Groups
from swell.worker.containers import Runtime
from swell.worker.devicefilter import Number
from swell.worker.environment import ServerSeen, run_variables
from swell.worker.limits import PROCESSES_MAX, TaskLimits

if TYPE_CHECKING:
    from swell.worker.job_files import JobFolders
    from swell.worker.run import Run

KEEPER_ALONE_S = 5.0  # a keeper with nothing left to wait for has this long to end


@dataclass(slots=True)
class Alive:
    """A task whose keeper, or something it started, still lives."""

    index: int
    lane: int
    pid: int | None  #: of the keeper; None: it has not said yet
    pidfd: int | None  #: None: the keeper is gone or unknown; the folder is looked at instead
    started_at: float
    limit_at: float | None  #: monotonic; None: endless
    log: LogWatch | None = None  #: None: not looked at yet
    tended_at: float = 0.0  #: monotonic; who was not seen to for longest comes first
    cause: str = ""  #: why it is to end; noted before it hears of it
    kill_at: float | None = None  #: monotonic; None: nobody asked it to end
    asked: set[int] = field(default_factory=set)  #: processes that were sent SIGTERM
    ask_at: float = 0.0  #: monotonic; when to look for those that missed it
    alone_since: float | None = None  #: monotonic; the keeper is all that is left
    has_ended: bool = False  #: its end is reported; what it left behind is being ended

    def has_been_alone(self, others: int, now: float) -> bool:
        """Is the keeper all that is left, for longer than it may be?"""
        if others or self.pidfd is None:
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = now
        return self.alone_since is not None and now - self.alone_since > KEEPER_ALONE_S

    def look_at_log(self, folder: Path) -> None:
        """`folder`: the run's."""
        if self.log is None:
            self.log = LogWatch(folder / str(self.index))
        self.log.look()

    def is_due(self, now: float) -> bool:
        at = self.next_step()
        return at is not None and now >= at

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def next_step(self) -> float | None:
        """When it is due without an event; None: events suffice."""
        return self.limit_at if self.kill_at is None else min(self.kill_at, self.ask_at)


@dataclass(frozen=True, slots=True)
class UserFolders:
    """Where tasks run as their users: what is made for those."""

    tokens: Path  #: a file per attempt
    checkpoints: Path  #: a folder per job
    library: Path  #: the in-job library, where they can read it
    runtime: Path  #: a folder per user id, for what a container runtime must not keep over a reboot

    def runtime_folder(self, uid: int) -> Path:
        return self.runtime / str(uid)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run needs to know of where it is."""

    store: str
    boot_id: str
    watch: Callable[[int, Run, Alive], None]  #: tell us when this pidfd is ready
    report: Callable[[TaskSeen], None]
    sockets: Path | None  #: the folder with the one that jobs in containers report through; None: there is none
    runtime: Runtime | None  #: None: containers cannot be run here
    box: UserFolders | None = None  #: where tasks run as their users; None: they run as we do
    groups: Groups | None = None  #: for control groups; None: there are none
    processes_max: int = PROCESSES_MAX  #: of one task, threads included
    gpus: Mapping[DeviceId, Number] = field(default_factory=dict)  #: the device files of this machine's real GPUs
    files: JobFolders | None = None  #: of jobs that bring their own; None: none can come
    server: ServerSeen | None = None  #: how tasks here reach a server elsewhere; None: as the server says
    image: Mapping[str, str] = field(default_factory=dict)  #: variables of the container that the worker is in
    library: str = ""  #: the folder of the in-job library, as tasks that are processes see it; empty: there is none

    def variables_of(self, launch: Launch, known: dict[str, str], *, port: int) -> dict[str, str]:
        """What all tasks of a launch share here. `known`: the caller's variables."""
        return run_variables(launch, known, store=self.store, port=port, server=self.server, library=self.library)

    def limits_of(self, lane: Lane | None, *, extra_mib: int = 0) -> TaskLimits:
        """What a task in this lane may take; None: one that has none, without GPUs. `extra_mib`: of what runs it."""
        own = () if lane is None else lane.devices
        denied = tuple(sorted(number for gpu, number in self.gpus.items() if gpu not in own))
        if lane is None:
            return TaskLimits(self.processes_max, denied=denied)
        memory = lane.memory_mib + extra_mib if lane.memory_mib else 0
        return TaskLimits(self.processes_max, memory, lane.cpus_milli, lane.cpu_limit_milli, denied)


def find_groups(folder: WorkerFolder, store: str, node: NodeId | None) -> Groups | None:
    """Control groups for tasks, where an earlier worker of this folder had them: what it started must be found again.

    `node`: of a worker on another machine; None: it is the server's own.
    """
    noted = folder.cgroups
    before = tuple(Path(line) for line in noted.read_text().splitlines()) if noted.exists() else ()
    found = cgroups.find(_groups_name(before, store, node), before)
    if found is not None:
        noted.write_text("\n".join(str(base.folder) for base in found.bases))
    return found


def _groups_name(before: tuple[Path, ...], store: str, node: NodeId | None) -> str:
    """Two workers of one server may be on one machine: the first that leaves must not remove the other's groups."""
    if before:
        return before[0].name.removeprefix("swell-")
    return store if node is None else f"{store}-{hashlib.sha256(node.encode()).hexdigest()[:8]}"
