"""How is one launch worked through?

A `Run` is events in, effects out: the agent tells it what ended and what time it is, it starts and ends tasks
through a `Handling` (see `handling.py`) and reports what it saw. Lanes bound what runs at once; indices are taken in
order, so nobody needs to be asked for the next one.

Taking a run up again after a crash is the same code as starting it: every folder that exists is inspected first
(see the table in `tasks.py`), the rest is begun.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

from swell.model.launch import (
    CAUSE_EVICTED,
    CAUSE_KEEPER,
    CAUSE_MEMORY,
    CAUSE_NODE_LOST,
    CAUSE_REBOOT,
    CAUSE_START,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
    KEEP,
    Launch,
    RunSeen,
    TaskSeen,
)
from swell.model.plan import ENDLESS
from swell.model.quantity import IndexSet
from swell.worker import processes, tasks, tensorboard
from swell.worker.backlog import Backlog
from swell.worker.environment import hostfile, known_variables, task_variables, with_image
from swell.worker.folder_meter import DISK_PROBLEMS, disk_trouble
from swell.worker.handling import handling_of, refuse_user
from swell.worker.machine import Alive, Machine
from swell.worker.runtimes import refuse_without
from swell.worker.sweep import LEFTOVER_GRACE_S, Sweep
from swell.worker.tasks import Found, Status
from swell.worker.tensorboard import Board
from swell.worker.watch import Claim

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.5  # a process that was forked while we asked hears it with the next round
INDEX = re.compile(r"[0-9]{1,18}", re.ASCII)  # a task's folder
BUDGET_S = 0.1  # of one step, in which the runs of others wait
#: causes for which an attempt ends here and goes on elsewhere, in words
GIVEN_BACK = {
    CAUSE_EVICTED: "the worker {node} was told to leave",
    CAUSE_NODE_LOST: "the worker {node} could not reach the server for longer than its lease",
}


class Run:
    """One launch on this machine."""

    def __init__(self, machine: Machine, launch: Launch, folder: Path, caller: dict[str, str], *, port: int) -> None:
        self._machine = machine
        self.launch = launch
        self._folder = folder
        known = known_variables(launch, caller)
        self._known = with_image(known, machine.image) if launch.container is None else known
        self.port = port
        self._shared = self._variables(launch)
        self._handling = handling_of(machine, launch, folder, caller, port=port)
        self._marks = processes.marks(machine.store, str(launch.attempt))
        self.alive: dict[int, Alive] = {}
        self.ended: dict[int, TaskSeen] = {}
        if launch.indices == KEEP:  # and it holds none
            self.launch = launch = replace(launch, indices="")
        self._backlog = Backlog(IndexSet.parse(launch.indices))
        self._sweep = Sweep(self._handling)
        self._places = _places(launch)
        self._is_behind = False  #: there is more to do than it had time for
        self._obstacle = ""  #: the disk takes nothing, in words: what is next waits until it does; empty: it does
        self.is_finished = False
        self._board: Board | None = None  #: None: no TensorBoard
        self._is_prepared = False
        self._trouble = ""  #: with its files, in words; empty: none

    # -- taking up what is there -----------------------------------------------------------------------------

    def take_up(self, *, boot_id: str, now: float) -> None:
        """Look at every folder an earlier life of ours has left."""
        names = sorted(int(name) for name in os.listdir(self._folder) if INDEX.fullmatch(name))  # noqa: PTH208
        indices = self._backlog.indices
        self._backlog.pass_over(set(names))
        for index in names:
            found = self._handling.inspect(index)
            if index not in indices and found.status is Status.NEVER_BEGUN:
                continue  # the log of a task elsewhere
            self._take_up_task(index, found, boot_id=boot_id, now=now)
        is_old = boot_id != self._machine.boot_id
        if is_old and not self.launch.is_array:
            # The disk may have lost the last names before the power went; a gang is not begun in doubt.
            for index in indices:
                if index not in self.ended:
                    self._lost_to_reboot(index, Found(Status.NEVER_BEGUN))
            self._backlog.clear()

    def _take_up_task(self, index: int, found: Found, *, boot_id: str, now: float) -> None:
        if found.status is Status.ENDED and found.code is not None:
            self._note_end(index, found)
        elif boot_id != self._machine.boot_id:
            self._lost_to_reboot(index, found)
        elif found.status is Status.ENDED and self.launch.container is None:
            self._note_end(index, found)
        elif found.status is not Status.NEVER_BEGUN:
            self._adopt(index, found, now)
        else:
            self._backlog.put_back(index)

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

    def step(self, now: float, budget_s: float = BUDGET_S) -> None:
        """Begin what there is a lane for; see to limits, ends and leftovers.

        Others wait meanwhile: what is not done within the budget is due at once, after their turn.
        """
        until = time.monotonic() + budget_s
        self._is_behind = False
        if not self.launch.is_stopping and not self.launch.waits_for_rendezvous and self._has_files():
            self._begin_tasks(now, until)
        self._tend_all(now, until)
        if not self.alive and self.left == 0 and not self.is_finished and not self._waits_for_more:
            self.is_finished = self._sweep.step(self.ended, self.launch.grace_s, now)

    @property
    def _waits_for_more(self) -> bool:
        return self.launch.may_get_more and not self.launch.is_stopping

    def _has_files(self) -> bool:
        """Is its own folder there, if it has one? Where it never will be, its tasks have failed to start."""
        files = self._machine.files
        if self.launch.files is None or files is None or self.left == 0:
            return True
        found = files.fetched(self.launch)
        self._trouble = found.trouble
        if found.problem:
            self._fail_to_begin(f"its files cannot be put on this machine: {found.problem}")
        return found.is_done and not found.problem

    def _fail_to_begin(self, problem: str) -> None:
        at = time.time()
        for index in self._backlog.take_all():
            self._report_end(index, 0 if self.launch.is_array else index, at, at, 125, CAUSE_START, problem)

    def _prepare_or_wait(self) -> None:
        """A full disk passes; anything else a task can do without, and says so itself when it cannot."""
        try:
            self._prepare()
        except OSError as error:
            log.warning("attempt %s: the files for its tasks are incomplete: %s", self.launch.attempt, error)
            if error.errno in DISK_PROBLEMS:
                self._is_prepared, self._obstacle = False, disk_trouble(error)

    def _prepare(self) -> None:
        """What tasks find when they begin: their folder for checkpoints, a token in a file, TensorBoard."""
        self._is_prepared = True
        token = self._handling.prepare(dict(self.launch.own))
        if token is None:
            return
        if token:
            self._shared["KUBEFLOW_TRAINER_SERVER_TOKEN"] = token
        launch, logdir = self.launch, self.launch.tensorboard
        if not launch.is_array and launch.world_size > 1:
            self._shared["SWELL_HOSTFILE"] = self._handling.write_hostfile(hostfile(launch))
        if logdir is not None:
            port = self.port + launch.world_size  # above those that TF_CONFIG names
            env = self._handling.environment(self._shared)
            self._board = tensorboard.start(logdir, launch.workdir, port, env, self._handling, self._folder)

    def _begin_tasks(self, now: float, until: float) -> None:
        self._obstacle = ""
        if not self._is_prepared and self.left > 0:
            self._prepare_or_wait()
        free = self._free_lanes()
        while free and self.left > 0 and not self._obstacle and not self._is_behind:
            index = self._backlog.take()
            lane = next(iter(free)) if self.launch.is_array else index
            del free[lane]
            self._begin(index, lane, now)
            self._is_behind = bool(free) and self.left > 0 and time.monotonic() >= until

    def _free_lanes(self) -> dict[int, None]:
        """In order."""
        used = {task.lane for task in self.alive.values()}
        return {number: None for number in self._places if number not in used}

    def _begin(self, index: int, lane: int, now: float) -> None:
        place = self._places[lane]
        given = self.launch.lanes[place]
        role = self.launch.roles[given.role]
        env = task_variables(self._shared, self.launch, role, index=index, local_rank=place, devices=given.devices)
        try:
            refuse_user(self.launch, self._machine)
            if self.launch.container is not None:
                refuse_without(self._machine.runtime, is_box=self._machine.box is not None)
            pid = self._handling.start(index, lane, role.command, env, given.devices)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in DISK_PROBLEMS:
                self._backlog.put_back(index)
                self._obstacle = disk_trouble(error)
                return
            at = time.time()
            self._report_end(index, lane, at, at, 125, CAUSE_START, str(error))
            return
        task = self._alive(index, lane, pid, time.time(), now)
        self._watch_child(task, pid)
        self._report_begun(task)

    def _watch_child(self, task: Alive, pid: int) -> None:
        task.pid, task.pidfd = pid, os.pidfd_open(pid)
        self._machine.watch(task.pidfd, self, task)

    def _keep_again(self, task: Alive, found: Found) -> bool:
        """A container outlives its keeper: another one waits for it. False: there is none to wait for."""
        if self.launch.container is None or found.code is not None or found.note == "lost":
            return False
        try:
            pid = self._handling.keep_again(task.index, task.lane, self._shared)
        except OSError:  # a full disk, most likely: the next look tries again
            return True
        if pid is not None:
            self._watch_child(task, pid)
        return pid is not None

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
        code = processes.reap(task.pid)
        task.close()
        if code is None or code == 125 or task.kill_at is not None:
            found = self._handling.inspect(task.index)
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
        if self._handling.has_left_nothing(task.pid, task.index):
            self._bury(task)
            return
        task.has_ended = True
        if task.kill_at is None:
            task.kill_at = now + min(self.launch.grace_s, LEFTOVER_GRACE_S)
            self._ask(task, now)

    def _tend_all(self, now: float, until: float) -> None:
        """One of them at least, and those that were not seen to for longest first, so that none is left out."""
        waiting = sorted(self.alive.values(), key=lambda task: task.tended_at)
        for count, task in enumerate(waiting):
            if count and time.monotonic() >= until:
                self._is_behind = self._is_behind or any(task.is_due(now) for task in waiting[count:])
                return
            task.tended_at = now
            self._tend(task, now)

    def _tend(self, task: Alive, now: float) -> None:
        if task.has_ended and task.pid is not None and self._handling.has_left_nothing(task.pid, task.index):
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

    def _bury(self, task: Alive) -> None:
        del self.alive[task.index]
        self._handling.bury(task.index)

    def _look_at_folder(self, task: Alive) -> None:
        found = self._handling.inspect(task.index)
        if found.status is Status.ENDED and not self._keep_again(task, found):
            self._note_end(task.index, found, task)
            del self.alive[task.index]
        elif found.status is Status.NEVER_BEGUN:  # it died before it began: nothing of the command ever ran
            del self.alive[task.index]
            self._backlog.put_back(task.index)
        elif task.pid is None and found.pid is not None:
            task.pid, task.lane = found.pid, found.lane
            self._watch(task)

    def _ask_to_end(self, task: Alive, cause: str, kill_at: float, now: float) -> None:
        task.cause, task.kill_at = cause, kill_at
        self._ask(task, now)

    def _note_cause(self, task: Alive) -> None:
        if task.cause:
            tasks.note_cause(self._folder / str(task.index), task.cause)
            task.cause = ""

    def _ask(self, task: Alive, now: float) -> None:
        self._note_cause(task)
        task.ask_at = now + ASK_AGAIN_S
        self._handling.ask(task.index, task.pid, task.asked, has_ended=task.has_ended)

    def _kill(self, task: Alive, now: float) -> None:
        self._note_cause(task)
        task.ask_at = ENDLESS  # the time for asking is over
        still_there = self._handling.kill(task.index, task.pid)
        task.kill_at = now + self._handling.kill_again_s
        if still_there is not None and task.has_been_alone(still_there, now) and task.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGKILL)

    # -- what the server wants now -----------------------------------------------------------------------------

    def give_back(self, cause: str, now: float, *, within_s: float = ENDLESS) -> None:
        """End it here, for no fault of its own: its job comes back elsewhere. The shorter of the graces wins."""
        grace_s = min(self.launch.grace_s, within_s)
        is_right = self.launch.is_stopping and self.launch.grace_s <= grace_s
        if not self.is_finished and not is_right:
            self.change(self.launch.stopped(grace_s=grace_s, generation=self.launch.generation), now, cause=cause)

    def change(self, launch: Launch, now: float, *, cause: str = CAUSE_STOPPED) -> None:
        """Other lanes, or an end. A lane that is gone ends with its task."""
        self._take_launch(launch)
        self._places = _places(launch)
        self._handling.take_lanes(launch.lanes)
        if not launch.is_stopping:
            return
        self._backlog.clear()
        for task in self.alive.values():
            kill_at = now + launch.grace_s
            if task.kill_at is None:
                task.cause, task.kill_at, task.ask_at = cause, kill_at, now  # asked in the steps to come
            else:
                task.kill_at = min(task.kill_at, kill_at)

    def _take_launch(self, launch: Launch) -> None:
        """Where ranks meet is settled once: a server that has just started may not have heard of it yet."""
        settled = self.launch.rendezvous
        if launch.indices == KEEP:
            launch = replace(launch, indices=self.launch.indices)
        if launch.is_dealt and launch.indices != self.launch.indices:
            self._backlog.hold(IndexSet.parse(launch.indices), self.alive.keys() | self.ended.keys())
        self.launch = launch if settled is None else replace(launch, rendezvous=settled)
        if settled is None and launch.rendezvous is not None:
            self._shared = self._variables(launch)

    def _variables(self, launch: Launch) -> dict[str, str]:
        return self._machine.variables_of(launch, self._known, port=self.port)

    # -- what is seen ------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        return self._backlog.left

    def look_at_logs(self) -> None:
        for task in self.alive.values():
            task.look_at_log(self._folder)
        if self._board is not None:
            self._board.look_at_log()

    def next_deadline(self) -> float | None:
        """When `step` has something to do without an event; None: events suffice."""
        if self._is_behind:
            return 0.0
        times = [at for task in self.alive.values() if (at := task.next_step()) is not None]
        if self._sweep.kill_at is not None and not self.is_finished:
            times.append(self._sweep.kill_at)
        return min(times, default=None)

    @property
    def needs_looking(self) -> bool:
        """Is there a task that no event will tell of?"""
        unsure = any(task.pidfd is None for task in self.alive.values())
        return unsure or bool(self._obstacle) or (not self.is_finished and not self.alive and self.left == 0)

    def seen(self) -> RunSeen:
        lanes = tuple(sorted(task.lane for task in self.alive.values()))
        launch, board = self.launch, self._board
        return RunSeen(
            launch.attempt,
            launch.node,
            launch.revision,
            lanes,
            self.left,
            self.is_finished,
            "" if board is None else board.address,
            trouble=self._trouble or self._obstacle or (board.trouble if board is not None and self.alive else ""),
            held=self.launch.indices if self.launch.is_dealt else "",
            port=self.port,
        )

    def claim(self) -> Claim:
        """Which processes and GPUs are its own."""
        tasks, lanes = self.alive.values(), {lane.number: lane.devices for lane in self.launch.lanes}
        keepers = {task.pid: task.index for task in tasks if task.pid is not None}
        devices = sorted({device for task in tasks for device in lanes.get(task.lane, ())})
        uid = os.getuid() if self.launch.uid is None else self.launch.uid
        return Claim(self.launch.attempt, keepers, tuple(devices), uid, self.launch.idle)

    def everything(self) -> list[TaskSeen]:
        alive = [self._begun(task) for task in self.alive.values() if not task.has_ended]
        return [*self.ended.values(), *alive]

    def _begun(self, task: Alive) -> TaskSeen:
        return TaskSeen(self.launch.attempt, task.index, self.launch.node, task.lane, task.started_at)

    def _report_begun(self, task: Alive) -> None:
        self._machine.report(self._begun(task))

    def _note_end(self, index: int, found: Found, task: Alive | None = None) -> None:
        problem = "" if found.note == "container" and found.cause else self._handling.problem(index, found.note)
        cause = CAUSE_START if problem else found.cause
        if found.code is None and not cause:
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
        used_mib = None
        if code and cause in ("", CAUSE_MEMORY):
            used_mib = self._handling.killed_for_memory(index)
        if used_mib is not None:
            cause = CAUSE_MEMORY
            tasks.note_cause(self._folder / str(index), cause)  # its control group, which knows, goes soon
        if cause in GIVEN_BACK and self.launch.is_array:
            return  # it is not done, and nothing more is to be said of it
        problem = problem or GIVEN_BACK.get(cause, "").format(node=self.launch.node)
        end = (started_at, ended_at, code, cause, problem, used_mib or None)
        seen = TaskSeen(self.launch.attempt, index, self.launch.node, lane, *end)
        self.ended[index] = seen
        self._machine.report(seen)


def _places(launch: Launch) -> dict[int, int]:
    """Where each lane stands, by its number."""
    return {lane.number: place for place, lane in enumerate(launch.lanes)}
