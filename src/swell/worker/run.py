"""How is one launch worked through?

A `Run` is events in, effects out: the agent tells it what ended and what time it is, it starts and ends processes
through `tasks.py` and `processes.py` and reports what it saw. Lanes bound what runs at once; indices are taken in
order, so nobody needs to be asked for the next one.

Taking a run up again after a crash is the same code as starting it: every folder that exists is inspected first
(see the table in `tasks.py`), the rest is begun.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from swell.model.launch import (
    CAUSE_KEEPER,
    CAUSE_REBOOT,
    CAUSE_START,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
    Launch,
    RunSeen,
    TaskSeen,
)
from swell.model.plan import ENDLESS
from swell.model.quantity import IndexSet
from swell.state import StateFolder
from swell.users import User, user_of_job
from swell.worker import asuser, cgroups, processes, tasks, tensorboard
from swell.worker.containers import Runtime
from swell.worker.environment import run_variables, task_variables
from swell.worker.logs import LogWatch
from swell.worker.runtimes import RunContainers, failure_text
from swell.worker.tasks import Found, Status
from swell.worker.watch import Claim

log = logging.getLogger(__name__)

LEFTOVER_GRACE_S = 5.0  # for what a task left behind when it ended by itself
ASK_AGAIN_S = 0.5  # a process that was forked while we asked hears it with the next round
KILL_AGAIN_S = 0.1  # a dying group may still fork; look again this soon
DISK_PROBLEMS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # they pass; a task is not failed for them
CONTAINER_KILL_AGAIN_S = 3.0  # a runtime takes its time to end a container
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
    kill_at: float | None = None  #: monotonic; None: nobody asked it to end
    asked: set[int] = field(default_factory=set)  #: processes that were sent SIGTERM
    ask_at: float = 0.0  #: monotonic; when to look for those that missed it
    alone_since: float | None = None  #: monotonic; the keeper is all that is left
    has_ended: bool = False  #: its end is reported; what it left behind is being ended


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run needs to know of where it is."""

    store: str
    boot_id: str
    watch: Callable[[int, Run, Alive], None]  #: tell us when this pidfd is ready
    report: Callable[[TaskSeen], None]
    sockets: Path  #: the folder with the one that jobs in containers report through
    runtime: Runtime | None  #: None: containers cannot be run here
    box: StateFolder | None = None  #: where tasks run as their users; None: they run as we do
    groups: Path | None = None  #: folder for their control groups; None: there are none


class Run:
    """One launch on this machine."""

    def __init__(self, machine: Machine, launch: Launch, folder: Path, caller: dict[str, str], *, port: int) -> None:
        self._machine = machine
        self.launch = launch
        self._folder = folder
        known = caller if launch.container is None else {}  # what is true of the machine is not of an image
        self._shared = run_variables(launch, known, store=machine.store, port=port)
        self._containers: RunContainers | None = None  #: None: plain processes, or no runtime here
        if launch.container is not None and machine.runtime is not None:
            self._containers = RunContainers(machine.runtime, launch, folder, caller, machine.store)
        self._marks = processes.marks(machine.store, str(launch.attempt))
        self.alive: dict[int, Alive] = {}
        self.ended: dict[int, TaskSeen] = {}
        self._indices = IndexSet.parse(launch.indices)
        self._left = len(self._indices)
        self._pending: Iterator[int] = iter(self._indices)
        self._again: list[int] = []  #: claimed by an earlier life of ours, never begun
        self._sweep_kill_at: float | None = None  #: monotonic; None: no leftovers seen
        self._is_blocked = False  #: the disk is full: what is next waits until there is room
        self.is_finished = False
        self._port = port
        self._tensorboard: str | None = None  #: its address; empty: none; None: not looked after yet
        self._tensorboard_keeper: int | None = None  #: None: it is not a child of ours
        self._user = None if launch.user is None or launch.uid is None else user_of_job(launch.user, launch.uid)

    # -- taking up what is there -----------------------------------------------------------------------------

    def take_up(self, *, boot_id: str, now: float) -> None:
        """Look at every folder an earlier life of ours has left."""
        names = sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())  # noqa: PTH208
        for index in names:
            self._left -= 1
            self._take_up_task(index, self._inspect(index), boot_id=boot_id, now=now)
        is_old = boot_id != self._machine.boot_id
        if is_old and not self.launch.is_array:
            # The disk may have lost the last names before the power went; a gang is not begun in doubt.
            for index in self._indices:
                if index not in self.ended:
                    self._lost_to_reboot(index, Found(Status.NEVER_BEGUN))
            self._left = 0
        known = {*names, *self.ended}
        self._pending = (index for index in self._indices if index not in known)

    def _take_up_task(self, index: int, found: Found, *, boot_id: str, now: float) -> None:
        if found.status is Status.ENDED and found.code is not None:
            self._note_end(index, found)
        elif boot_id != self._machine.boot_id:
            self._lost_to_reboot(index, found)
        elif found.status is Status.ENDED and self._containers is None:
            self._note_end(index, found)
        elif found.status is not Status.NEVER_BEGUN:
            self._adopt(index, found, now)
        else:
            self._put_back(index)

    def _inspect(self, index: int) -> Found:
        """As its folder says. One whose keeper was killed lives on as long as its control group holds somebody."""
        found = tasks.inspect(self._folder / str(index))
        is_unsure = found.status is Status.ENDED and found.code is None and self.launch.uid is not None
        if is_unsure and found.pid is not None and not self._has_left_nothing(found.pid, index):
            return replace(found, status=Status.ALIVE, note="")
        return found

    def _confined(self, index: int | None = None) -> processes.Confined | None:
        """Where to look for a task's processes, or all of the attempt's; None: they run as we do."""
        if self.launch.uid is None:
            return None
        base, group = self._machine.groups, None if index is None else self._group(index)
        if base is None:
            return processes.Confined(self.launch.uid, ())
        groups = tuple(base.glob(f"{self.launch.attempt}.*")) if group is None else (group,)
        return processes.Confined(self.launch.uid, groups)

    def _lost_to_reboot(self, index: int, found: Found) -> None:
        at = time.time()
        self._report_end(index, found.lane, found.begun_at or at, at, None, CAUSE_REBOOT)

    def _adopt(self, index: int, found: Found, now: float) -> None:
        ran_s = max(0.0, time.time() - found.begun_at) if found.begun_at else 0.0
        task = self._alive(index, found.lane, found.pid, time.time() - ran_s, now - ran_s)
        self._watch(task)
        if task.pidfd is None:
            self._keep_again(task, found)
        if found.cause:
            task.kill_at = now + self.launch.grace_s
        self._report_begun(task)

    # -- beginning -------------------------------------------------------------------------------------------

    def step(self, now: float) -> None:
        """Begin what there is a lane for; see to limits, ends and leftovers."""
        if not self.launch.is_stopping:
            self._begin_tasks(now)
        for task in list(self.alive.values()):
            self._tend(task, now)
        if not self.alive and self.left == 0 and not self.is_finished:
            self._sweep(now)

    def _prepare_or_wait(self) -> None:
        """A full disk passes; anything else a task can do without, and says so itself when it cannot."""
        try:
            self._prepare()
        except OSError as error:
            log.warning("attempt %s: what its tasks find is not complete: %s", self.launch.attempt, error)
            if error.errno in DISK_PROBLEMS:
                self._tensorboard, self._is_blocked = None, True

    def _prepare(self) -> None:
        """What tasks find when they begin: their folder for checkpoints, a token in a file, TensorBoard."""
        self._tensorboard = ""
        if self.launch.user is not None and self._user is None:
            return  # who is not known here gets nothing; the tasks' own start says so
        own = dict(self.launch.own)
        if "SWELL_TOKEN" in own and self._user is not None:
            self._prepare_for(self._user, own)
        elif "SWELL_TOKEN" in own:
            token = self._folder / "token"
            with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(own["SWELL_TOKEN"])
            self._shared["KUBEFLOW_TRAINER_SERVER_TOKEN"] = str(token)
            with contextlib.suppress(OSError):  # the job finds out for itself, and says so in its own words
                Path(own["SWELL_CHECKPOINTS"]).mkdir(parents=True, exist_ok=True)
        launch, logdir = self.launch, self.launch.tensorboard
        if logdir is not None:
            port = self._port + launch.world_size  # above those that TF_CONFIG names
            env = self._shared if self._containers is None else self._containers.environment(self._shared)
            start = partial(tensorboard.start, self._folder, logdir, launch.workdir, port, env, self._marks)
            self._tensorboard = start(spawn=self._spawn_tensorboard, confined=self._confined())

    def _spawn_tensorboard(self, argv: Sequence[str], env: dict[str, str]) -> None:
        """As any other task of that user, in a folder of its own; it ends with the attempt."""
        if self.launch.user is None:
            tensorboard.spawn(self._folder, argv, self.launch.workdir, env)
            return
        folder = f"{self._folder}/tensorboard"
        tasks.claim(folder)
        self._tensorboard_keeper = self._spawn_as_user(folder, "tensorboard", 0, tuple(argv), env)

    def _prepare_for(self, user: User, own: dict[str, str]) -> None:
        """In folders where only root makes anything, so that nobody can have put a link in the way."""
        assert self._machine.box is not None
        token = self._machine.box.tokens / str(self.launch.attempt)
        token.unlink(missing_ok=True)
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
            file.write(own["SWELL_TOKEN"])
            os.fchown(file.fileno(), user.uid, user.gid)
        self._shared["KUBEFLOW_TRAINER_SERVER_TOKEN"] = str(token)
        checkpoints = Path(own["SWELL_CHECKPOINTS"])
        if checkpoints == self._machine.box.checkpoints / str(self.launch.attempt.job):  # any other is theirs to make
            checkpoints.mkdir(mode=0o700, exist_ok=True)
            os.chown(checkpoints, user.uid, user.gid, follow_symlinks=False)

    def _begin_tasks(self, now: float) -> None:
        self._is_blocked = False
        if self._tensorboard is None and self._left > 0:
            self._prepare_or_wait()
        free = self._free_lanes()
        while free and self._left > 0 and not self._is_blocked:
            index = self._again.pop() if self._again else next(self._pending)
            lane = free.pop(0) if self.launch.is_array else self._lane_of_rank(index, free)
            self._left -= 1
            self._begin(index, lane, now)

    def _lane_of_rank(self, rank: int, free: list[int]) -> int:
        free.remove(rank)
        return rank

    def _free_lanes(self) -> list[int]:
        used = {task.lane for task in self.alive.values()}
        return [lane.number for lane in self.launch.lanes if lane.number not in used]

    def _begin(self, index: int, lane: int, now: float) -> None:
        folder = f"{self._folder}/{index}"
        numbers = [one.number for one in self.launch.lanes]
        given = self.launch.lanes[numbers.index(lane)]
        role = self.launch.roles[given.role]
        env = task_variables(
            self._shared,
            role,
            index=index,
            is_array=self.launch.is_array,
            local_rank=numbers.index(lane),
            devices=given.devices,
        )
        try:
            launch, command = self.launch, role.command
            if launch.container is not None:
                command, env = self._contained(index, command, env, given.devices)
            workdir = launch.workdir if launch.container is None else "/"
            tasks.claim(folder)  # a claim that stands is our own: inspected, and never begun
            if launch.user is None:
                pid = tasks.spawn(folder, lane, command, workdir, launch.umask, env)
            else:
                pid = self._spawn_as_user(folder, index, lane, command, env)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in DISK_PROBLEMS:
                self._put_back(index)
                self._is_blocked = True
                return
            at = time.time()
            self._report_end(index, lane, at, at, 125, CAUSE_START, str(error))
            return
        task = self._alive(index, lane, pid, time.time(), now)
        self._watch_child(task, pid)
        self._report_begun(task)

    def _spawn_as_user(
        self, folder: str, name: int | str, lane: int, command: tuple[str, ...], env: dict[str, str]
    ) -> int:
        launch = self.launch
        if self._user is None:
            raise ValueError(f"the user {launch.user} (uid {launch.uid}), who submitted it, is no longer known here")
        group = self._group(name)
        if group is not None:
            cgroups.make(group)
        return asuser.spawn(folder, lane, command, launch.workdir, launch.umask, env, self._user, group)

    def _group(self, name: int | str) -> Path | None:
        base = self._machine.groups
        return None if base is None else base / f"{self.launch.attempt}.{name}"

    def _contained(
        self, index: int, command: tuple[str, ...], env: dict[str, str], devices: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        if self.launch.user is not None:
            raise ValueError("containers are not run for the users of a box server yet; run it as plain processes")
        if self._containers is None:
            raise ValueError(
                "the job has an image, but this machine has neither podman nor docker; install one, then: "
                "swell down, swell up"
            )
        return self._containers.prepare(index, command, env, devices, self._machine.sockets)

    def _watch_child(self, task: Alive, pid: int) -> None:
        task.pid, task.pidfd = pid, os.pidfd_open(pid)
        self._machine.watch(task.pidfd, self, task)

    def _keep_again(self, task: Alive, found: Found) -> bool:
        """A container outlives its keeper: another one waits for it. False: there is none to wait for."""
        if self._containers is None or found.code is not None:
            return False
        try:
            pid = self._containers.keep_again(task.index, task.lane, self._shared)
        except OSError:  # a full disk, most likely: the next look tries again
            return True
        if pid is not None:
            self._watch_child(task, pid)
        return pid is not None

    def _put_back(self, index: int) -> None:
        self._again.append(index)
        self._left += 1

    def _alive(self, index: int, lane: int, pid: int | None, started_at: float, started: float) -> Alive:
        limit = self.launch.time_limit_s
        limit_at = None if limit is None else started + limit
        task = Alive(index, lane, pid, None, started_at, limit_at)
        self.alive[index] = task
        return task

    def _watch(self, task: Alive) -> None:
        """A pidfd for an adopted keeper, if that process is really ours."""
        if task.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(task.pid)
            if processes.is_keeper(task.pid, self._marks):
                task.pidfd = pidfd
                self._machine.watch(pidfd, self, task)
            else:
                os.close(pidfd)

    # -- ending ----------------------------------------------------------------------------------------------

    def keeper_ended(self, task: Alive, now: float) -> None:
        """The keeper is gone: what did it say?"""
        assert task.pid is not None
        code = _reap(task.pid)
        self._close(task)
        if code is None or code == 125 or task.kill_at is not None:
            found = self._inspect(task.index)
            if self._keep_again(task, found):
                return
            if found.status is Status.ALIVE:  # the keeper was killed, what it started lives on
                return
            if found.status is Status.NEVER_BEGUN:
                found = Found(Status.ENDED, task.pid, task.lane, task.started_at, time.time(), code or 125, "begun")
            self._note_end(task.index, found, task)
        else:
            self._report_end(task.index, task.lane, task.started_at, time.time(), code)
        self._see_to_leftovers(task, now)

    def _see_to_leftovers(self, task: Alive, now: float) -> None:
        assert task.pid is not None
        if self._has_left_nothing(task.pid, task.index):
            self._bury(task)
            return
        task.has_ended = True
        if task.kill_at is None:
            task.kill_at = now + min(self.launch.grace_s, LEFTOVER_GRACE_S)
            self._ask(task, now)

    def _tend(self, task: Alive, now: float) -> None:
        if task.has_ended and task.pid is not None and self._has_left_nothing(task.pid, task.index):
            self._bury(task)
            return
        if task.pidfd is None and not task.has_ended:
            self._look_at_folder(task)
            if task.index not in self.alive:
                return
        if task.limit_at is not None and task.kill_at is None and now >= task.limit_at:
            self._ask_to_end(task, CAUSE_TIME_LIMIT, now + self.launch.grace_s, now)
        if task.kill_at is not None and now >= task.kill_at:
            self._kill(task, now)
        elif task.kill_at is not None and now >= task.ask_at:
            self._ask(task, now)

    def _has_left_nothing(self, keeper: int, index: int) -> bool:
        return processes.group_is_empty(keeper, self._confined(index))

    def _bury(self, task: Alive) -> None:
        del self.alive[task.index]
        group = self._group(task.index)
        if group is not None:
            cgroups.remove(group)

    def _look_at_folder(self, task: Alive) -> None:
        found = self._inspect(task.index)
        if found.status is Status.ENDED and not self._keep_again(task, found):
            self._note_end(task.index, found, task)
            del self.alive[task.index]
        elif found.status is Status.NEVER_BEGUN:  # it died before it began: nothing of the command ever ran
            del self.alive[task.index]
            self._put_back(task.index)
        elif task.pid is None and found.pid is not None:
            task.pid, task.lane = found.pid, found.lane
            self._watch(task)

    def _ask_to_end(self, task: Alive, cause: str, kill_at: float, now: float) -> None:
        tasks.note_cause(self._folder / str(task.index), cause)
        task.kill_at = kill_at
        self._ask(task, now)

    def _ask(self, task: Alive, now: float) -> None:
        task.ask_at = now + ASK_AGAIN_S
        if self._containers is not None:
            self._containers.ask(task.index, task.pid, task.asked)
            return
        wanted = processes.marks(self._machine.store, str(self.launch.attempt), task.index)
        processes.terminate(task.pid, wanted, task.asked, self._confined(task.index))

    def _kill(self, task: Alive, now: float) -> None:
        wanted = processes.marks(self._machine.store, str(self.launch.attempt), task.index)
        task.ask_at = ENDLESS  # the time for asking is over
        if self._containers is not None and self._containers.kill(task.index):
            task.kill_at = now + CONTAINER_KILL_AGAIN_S
            return
        still_there = processes.kill(task.pid, wanted, self._confined(task.index))
        task.kill_at = now + (KILL_AGAIN_S if self._containers is None else CONTAINER_KILL_AGAIN_S)
        if still_there or task.pidfd is None:
            task.alone_since = None
        elif task.alone_since is None:
            task.alone_since = now
        elif now - task.alone_since > KEEPER_ALONE_S and task.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGKILL)

    def _sweep(self, now: float) -> None:
        """Nothing of the attempt may stay behind, wherever it went."""
        if self._containers is not None and self._sweep_kill_at is None:
            self._containers.remove_all(list(self.ended))
        confined = self._confined()
        if not processes.members(None, self._marks, confined):
            self.is_finished = True
            self._clean_up(confined)
        elif self._sweep_kill_at is None:
            processes.terminate(None, self._marks, set(), confined)
            self._sweep_kill_at = now + min(self.launch.grace_s, LEFTOVER_GRACE_S)
        elif now >= self._sweep_kill_at:
            processes.kill(None, self._marks, confined)
            self._sweep_kill_at = now + KILL_AGAIN_S

    def _clean_up(self, confined: processes.Confined | None) -> None:
        for group in confined.groups if confined is not None else ():
            cgroups.remove(group)
        if self._tensorboard_keeper is not None:
            _reap(self._tensorboard_keeper)
        if self._machine.box is not None:
            (self._machine.box.tokens / str(self.launch.attempt)).unlink(missing_ok=True)

    def _close(self, task: Alive) -> None:
        if task.pidfd is not None:
            os.close(task.pidfd)
            task.pidfd = None

    # -- what the server wants now -----------------------------------------------------------------------------

    def change(self, launch: Launch, now: float) -> None:
        """Other lanes, or an end. A lane that is gone ends with its task."""
        was_stopping, self.launch = self.launch.is_stopping, launch
        if not launch.is_stopping:
            return
        self._left, self._again = 0, []
        for task in self.alive.values():
            kill_at = now + launch.grace_s
            if not was_stopping and task.kill_at is None:
                self._ask_to_end(task, CAUSE_STOPPED, kill_at, now)
            elif task.kill_at is not None:
                task.kill_at = min(task.kill_at, kill_at)

    # -- what is seen ------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        return self._left

    def look_at_logs(self) -> None:
        for task in self.alive.values():
            if task.log is None:
                task.log = LogWatch(self._folder / str(task.index))
            task.log.look()

    def next_deadline(self) -> float | None:
        """When `step` has something to do without an event; None: events suffice."""
        times = [at for task in self.alive.values() if (at := _next_step(task)) is not None]
        if self._sweep_kill_at is not None and not self.is_finished:
            times.append(self._sweep_kill_at)
        return min(times, default=None)

    @property
    def needs_looking(self) -> bool:
        """Is there a task that no event will tell of?"""
        unsure = any(task.pidfd is None for task in self.alive.values())
        return unsure or self._is_blocked or (not self.is_finished and not self.alive and self._left == 0)

    def seen(self) -> RunSeen:
        lanes = tuple(sorted(task.lane for task in self.alive.values()))
        launch = self.launch
        return RunSeen(
            launch.attempt,
            launch.node,
            launch.revision,
            lanes,
            self._left,
            self.is_finished,
            self._tensorboard or "",
        )

    def claim(self) -> Claim:
        """Which processes and GPUs are its own."""
        tasks, lanes = self.alive.values(), {lane.number: lane.devices for lane in self.launch.lanes}
        keepers = {task.pid: task.index for task in tasks if task.pid is not None}
        devices = sorted({device for task in tasks for device in lanes.get(task.lane, ())})
        return Claim(self.launch.attempt, keepers, tuple(devices), self.launch.idle)

    def everything(self) -> list[TaskSeen]:
        alive = [self._begun(task) for task in self.alive.values() if not task.has_ended]
        return [*self.ended.values(), *alive]

    def _begun(self, task: Alive) -> TaskSeen:
        return TaskSeen(self.launch.attempt, task.index, self.launch.node, task.lane, task.started_at)

    def _report_begun(self, task: Alive) -> None:
        self._machine.report(self._begun(task))

    def _note_end(self, index: int, found: Found, task: Alive | None = None) -> None:
        cause, problem = found.cause, ""
        if found.note == "container" and not cause:
            cause, problem = CAUSE_START, failure_text(self._folder / str(index) / "log")
        elif found.note == "workdir":
            cause, problem = (
                CAUSE_START,
                f"the folder {self.launch.workdir} cannot be entered; it must exist here",
            )
        elif found.note == "begun":
            cause, problem = (
                CAUSE_START,
                "its folder under the state folder could not be written (disk full?)",
            )
        elif found.code is None and not cause:
            cause = CAUSE_KEEPER
        # The file's time is the kernel's coarse clock, a few milliseconds behind the one we read.
        started_at = task.started_at if task else found.begun_at or time.time()
        lane = task.lane if task else found.lane
        self._report_end(index, lane, started_at, found.ended_at or time.time(), found.code, cause, problem)

    def _report_end(
        self,
        index: int,
        lane: int,
        started_at: float,
        ended_at: float,
        code: int | None,
        cause: str = "",
        problem: str = "",
    ) -> None:
        ended_at = max(started_at, ended_at)
        seen = TaskSeen(self.launch.attempt, index, self.launch.node, lane, started_at, ended_at, code, cause, problem)
        self.ended[index] = seen
        self._machine.report(seen)


def _next_step(task: Alive) -> float | None:
    if task.kill_at is None:
        return task.limit_at
    return min(task.kill_at, task.ask_at)


def _reap(pid: int) -> int | None:
    """The keeper's own exit code if it was our child and ended by itself; None: look into the folder."""
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
