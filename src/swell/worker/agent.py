"""What does the worker do, over and over?

One thread waits for whatever comes first: a keeper that ended (its pidfd), a newer desired set, a deadline. Then
every run takes a step, and what changed is handed to the reporter. What this worker is responsible for is on disk
(`launch.json` beside the tasks), so after a crash it goes on at once, server or no server.

Runs are users' and this loop is everybody's: what goes wrong with one of them is said once in the log, that run is
tried again a little later, and the others go on (`_with`).
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from swell.files.shared_cache import SharedCache, default_bytes_max
from swell.machine.boot_clock import boot_id, clock
from swell.machine.library import library_for_tasks
from swell.machine.removal import Eraser
from swell.machine.server_address import ServerAddress
from swell.machine.worker_folder import WorkerFolder
from swell.machine.worker_options import WorkerOptions
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import CAUSE_EVICTED, CAUSE_NODE_LOST, MARGIN_S, Launch, RunSeen, TaskSeen
from swell.model.quantity import IndexSet
from swell.worker.backend import find_backend
from swell.worker.containers import Runtime
from swell.worker.environment import ServerSeen, image_variables, read_ca
from swell.worker.folder_meter import FolderMeter, disk_trouble
from swell.worker.held_launches import HeldLaunch, HeldLaunches
from swell.worker.job_files import JobFolders
from swell.worker.leaving import Course, Situation, choose_course
from swell.worker.limits import processes_max
from swell.worker.log_sender import LogSender
from swell.worker.machine import Alive, Machine, UserFolders, find_groups
from swell.worker.nvml import Nvml
from swell.worker.run import Run
from swell.worker.sampler import Sampler
from swell.worker.sync import Desired, ServerLink
from swell.worker.watch import Watch

LOOK_S = 1.0  # how often logs are looked at, and tasks that no event tells of
RETRY_S = 5.0  # a run with which something unforeseen went wrong is tried again after so long
ENDING_S = 300.0  # for the tasks of a killed worker to end, once their lease is over
COMPLAINTS_MAX = 1000  # different ones that are remembered, so that each is said once
LONELY_S = 600.0  # without a server for this long, and with nothing to run, the worker ends
STEPS_S = 0.2  # in one turn, for the steps of all runs together
EVENTS_MAX = 64  # keepers that have ended, in one turn; the next one has the others
HEARD_S = 10.0  # beyond a check-in; a server that is silent for longer may not know that we are here

log = logging.getLogger(__name__)


class Agent:
    """This machine's runs."""

    def __init__(
        self,
        options: WorkerOptions,
        folder: WorkerFolder,
        server: ServerAddress,
        node: Node,
        nvml: Nvml,
        runtime: Runtime | None,
    ) -> None:
        self._options = options
        self._own = folder
        self._boot_id = boot_id()
        self._held = HeldLaunches(folder, self._boot_id, self._complain)
        self._node = node = replace(node, machine=self._boot_id)
        self._runtime = runtime  #: None: containers cannot be run here
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._watched: dict[int, tuple[Run, Alive]] = {}
        self._runs: dict[AttemptId, Run] = {}
        self._news: list[TaskSeen] = []
        self._told: dict[AttemptId, RunSeen] = {}
        self._unwanted: set[AttemptId] = set()
        self._is_behind = False  #: a launch could not be taken on; the desired set is asked for again
        self._next_look = 0.0
        self._failing: dict[AttemptId, float] = {}  #: until when such a run is left alone; monotonic
        self._said: set[str] = set()  #: complaints that are in the log already
        self._machine: Machine | None = None  #: None: nothing has run yet
        self._link = ServerLink(options, folder, server, node, boot_id=self._boot_id, wake=self.wake)
        self._sampler = Sampler(nvml, wake=self.wake)
        self._gpu_files = nvml.numbers() if any(not device.simulated for device in node.devices) else {}
        self._found = node.devices  #: when the worker began; those that do not answer are not offered
        self._gpus = Watch(devices=node.devices)
        self.is_closing = False
        self.terminations = 0  #: how often a worker elsewhere was told to end
        self._has_failed = False
        self._attempts = 0  #: that were taken on by this process
        self._busy_at = clock()  #: when a task was last here
        self._has_left = False
        self._sender = LogSender(folder.tasks, self._link.connection, wake=self.wake) if options.is_remote else None
        self._files = JobFolders(
            folder.tasks, self._open_cache, self._link.connection, options.fetch_retries_max, wake=self.wake
        )
        self._unsent: list[TaskSeen] = []  #: ends that are not told before the server has the log
        self._eraser: Eraser | None = None  #: None: nothing was to be erased yet
        self._meter = FolderMeter(folder.root, options.folder_mib_max, wake=self.wake)

    def _open_cache(self) -> SharedCache:
        most = self._options.cache_mib_max
        root = self._options.cache or self._own.cache
        return SharedCache(root, bytes_max=default_bytes_max(root) if most is None else most << 20)

    @property
    def node_name(self) -> str:
        return self._node.id

    @property
    def has_left(self) -> bool:
        """It runs nothing any more, and the server has forgotten it."""
        return self._has_left

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        if self._own.store.exists():
            self._link.store = self._own.store.read_text()
            self._take_up_all()
        self._link.start()
        if self._sender is not None:
            self._sender.start()
        self._meter.start()
        if any(not device.simulated for device in self._node.devices):
            self._sampler.start()
        while not self.is_closing and not self._is_lonely() and not self._has_left:
            self._turn_or_fail()
        if self._machine is not None and self._machine.groups is not None:
            self._machine.groups.close()  # stays where a task is left

    def _turn_or_fail(self) -> None:
        """A worker elsewhere is nobody's child: what goes wrong in it does not leave its tasks alone."""
        try:
            self._turn()
        except Exception as error:
            if not self._options.is_remote:
                raise
            self._complain(f"the worker's main loop failed and continues: {error!r}", error)
            self._has_failed = True
            time.sleep(LOOK_S)

    def end_tasks(self) -> None:
        """Of a worker that is gone, whose lease is over (`guard.py`). Nobody is told: the next worker tells it all."""
        if not self._own.store.exists():
            return
        self._link.store = self._own.store.read_text()
        self._take_up_all()
        until = time.monotonic() + ENDING_S  # a task that cannot die must not keep the next worker out of the folder
        while time.monotonic() < until and not all(run.is_finished for run in self._runs.values()):
            self._keep_lease(time.monotonic())
            self._step(self._wait())

    def _turn(self) -> None:
        now = self._wait()
        self._converge(now)
        self._step(now)
        self._look_at_logs(now)
        self._look_at_gpus()
        if self._options.is_remote:
            self._keep_lease(now)
            self._follow_course(now)
        self._tell()
        self._drop_unwanted()

    def _wait(self) -> float:
        """For whatever comes first; keepers that have ended are noted."""
        events = self._epoll.poll(self._patience(), EVENTS_MAX)
        now = time.monotonic()
        for descriptor, _ in events:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
            elif descriptor in self._watched:
                run, task = self._watched.pop(descriptor)
                self._epoll.unregister(descriptor)
                self._with(run, partial(run.keeper_ended, task, now), now)
        return now

    def _step(self, now: float) -> None:
        budget_s = STEPS_S / max(1, sum(not run.is_finished for run in self._runs.values()))
        for attempt, run in self._runs.items():
            if not run.is_finished and now >= self._failing.get(attempt, 0.0):
                self._with(run, partial(run.step, now, budget_s), now)

    # -- a worker elsewhere ------------------------------------------------------------------------------------

    def _keep_lease(self, now: float) -> None:
        """The server may start its tasks elsewhere `MARGIN_S` after the lease: here they are killed well before."""
        over_s = clock() - self._link.heard_at - self._options.lease_s
        if over_s > 0:
            within_s = max(0.0, MARGIN_S / 2 - over_s)
            for run in self._runs.values():
                self._with(run, partial(run.give_back, CAUSE_NODE_LOST, now, within_s=within_s), now)

    def _follow_course(self, now: float) -> None:
        course = choose_course(self._options, self._situation())
        is_leaving = course is not Course.STAY or self._link.left_at_version is not None
        self._link.set_leaving(is_leaving=is_leaving or self._meter.is_full, for_good=is_leaving)
        if course is Course.STOP:
            for run in self._runs.values():
                self._with(run, partial(run.give_back, CAUSE_EVICTED, now), now)
        if not is_leaving or not self._is_idle():
            return
        if not self._link.store:  # no server has ever answered: none has to be told
            self._has_left = True
        elif self._link.left_at_version is not None and self._link.has_told_all:
            self._has_left = self._link.leave()

    def _situation(self) -> Situation:
        if not self._is_idle():
            self._busy_at = clock()
        return Situation(
            self.terminations,
            self._has_failed,
            self._attempts,
            clock() - self._busy_at,
            clock() - self._link.heard_at < self._options.check_in_s + HEARD_S,
        )

    def _is_idle(self) -> bool:
        is_over = all(self._seen(run).is_finished for run in self._runs.values())
        return is_over and not self._unsent and not self._news

    def _with(self, run: Run, do: Callable[[], None], now: float) -> None:
        """Nothing that one run meets ends the loop of all."""
        attempt = run.launch.attempt
        try:
            do()
        except Exception as error:  # noqa: BLE001  whatever it is
            self._complain(f"attempt {attempt} will be checked again in {RETRY_S:.0f} s: {error!r}", error)
            self._failing[attempt] = now + RETRY_S
        else:
            self._failing.pop(attempt, None)

    def _complain(self, text: str, error: Exception) -> None:
        """Once, with where it happened."""
        if text not in self._said and len(self._said) < COMPLAINTS_MAX:
            self._said.add(text)
            log.error("%s", text, exc_info=error)

    def _patience(self) -> float:
        """Until the next deadline, at most; a turn with nothing to do costs nothing."""
        now = time.monotonic()
        due = {attempt: at for attempt, run in self._runs.items() if (at := run.next_deadline()) is not None}
        deadlines = [max(at, self._failing.get(attempt, at)) for attempt, at in due.items()]
        deadlines += self._failing.values()
        if self._is_behind or any(run.alive or run.needs_looking for run in self._runs.values()):
            deadlines.append(self._next_look)
        longest_s = LOOK_S if self._options.is_remote else LONELY_S / 10  # leases and idle times end without an event
        return max(0.0, min([*deadlines, now + longest_s]) - now)

    def _look_at_logs(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        if self._is_behind:
            self._is_behind = False
            self._link.ask_again()
        for run in self._runs.values():
            self._with(run, run.look_at_logs, now)

    def _look_at_gpus(self) -> None:
        samples = self._sampler.take()
        self._gpus.store = self._link.store
        for sample in samples:
            try:
                self._gpus.take(sample, [run.claim() for run in self._runs.values() if not run.is_finished])
            except Exception as error:  # noqa: BLE001  what processes on the GPUs say must not end this
                self._complain(f"GPU use could not be attributed to jobs: {error!r}", error)
        self._link.gpu_utilization = self._gpus.utilization(time.monotonic())
        if not samples:
            return
        self._gpus.keep(self._runs)
        node = replace(self._node, devices=self._gpus.devices(self._found), lost=self._gpus.lost(self._found))
        if node != self._node:
            self._node = node
            self._link.offer(node)

    def _is_lonely(self) -> bool:
        silent = clock() - self._link.heard_at > LONELY_S and not self._options.is_remote
        gone = not self._own.root.exists()
        return (silent or gone) and not any(run.alive for run in self._runs.values())

    # -- what should run ---------------------------------------------------------------------------------------

    def _converge(self, now: float) -> None:
        desired, is_new_server = self._link.take()
        if is_new_server:
            self._unsent.clear()
            self._news.clear()
            tasks = self._sent([task for run in self._runs.values() for task in run.everything()])
            self._told = {attempt: self._seen(run) for attempt, run in self._runs.items()}  # knows what is not told
            self._link.tell_all(tasks, list(self._told.values()))
        if desired is not None:
            self._apply(desired, now)

    def _apply(self, desired: Desired, now: float) -> None:
        wanted = {launch.attempt: self._at_home(launch) for launch in desired.launches}
        for attempt, run in list(self._runs.items()):
            if attempt not in wanted:
                self._with(run, partial(self._let_go, run, now), now)
        for launch in wanted.values():
            try:
                self._take_on(launch, now)
            except OSError as error:  # most likely a full disk
                log.warning("attempt %s cannot be started yet: %s", launch.attempt, error)
                self._is_behind = True
                self._tell_not_begun(launch, error)
            except Exception as error:  # noqa: BLE001  the others are taken on
                self._complain(f"attempt {launch.attempt} cannot be started: {error!r}", error)
                self._is_behind = True

    def _tell_not_begun(self, launch: Launch, error: OSError) -> None:
        """Why nothing of it runs. One that is to stop, and of which nothing is noted here, is over."""
        if launch.is_dealt:  # what is said of an array that is dealt names the indices that are held here
            return
        is_over = launch.is_stopping and not self._held.is_noted(launch.attempt)
        left = 0 if is_over else len(IndexSet.parse(launch.indices))
        seen = RunSeen(launch.attempt, launch.node, launch.revision, (), left, is_over, trouble=disk_trouble(error))
        self._link.tell([], [seen])

    def _at_home(self, launch: Launch) -> Launch:
        """A job with files of its own runs in a copy of them."""
        if launch.files is None:
            return launch
        return replace(launch, workdir=str(self._files.home(launch.attempt) / launch.workdir))

    def _take_on(self, launch: Launch, now: float) -> None:
        known = self._runs.get(launch.attempt)
        if known is None:
            self._begin(launch, now)
        elif known.launch != launch:
            known.change(launch, now)
            self._held.write(known.launch, port=known.port)

    def _let_go(self, run: Run, now: float) -> None:
        """The server no longer wants it: end what lives. Its logs stay until they are erased."""
        self._unwanted.add(run.launch.attempt)
        if not run.is_finished and not run.launch.is_stopping:
            stop = run.launch.stopped(grace_s=run.launch.grace_s, generation=run.launch.generation)
            run.change(stop, now)

    def _drop_unwanted(self) -> None:
        """Not before the server has their logs: a machine that was out of reach has what nobody has read yet."""
        unsent = {task.attempt for task in self._unsent}
        for attempt in [one for one in self._unwanted if self._runs[one].is_finished and one not in unsent]:
            del self._runs[attempt]
            self._failing.pop(attempt, None)
            self._told.pop(attempt, None)
            self._unwanted.discard(attempt)
            self._held.forget(attempt)
            self._files.forget(attempt)
            self._erase_sent(attempt)

    def _erase_sent(self, attempt: AttemptId) -> None:
        """What the server has is not kept here."""
        if self._sender is None:
            return
        self._sender.forget(attempt)
        self._eraser = self._eraser or Eraser(self._own.tasks)
        self._eraser.erase(str(attempt))

    def _begin(self, launch: Launch, now: float) -> None:
        if not self._own.store.exists():
            self._own.store.write_text(self._link.store)
        self._folder(launch.attempt).mkdir(mode=0o700, exist_ok=True)
        held = self._held.noted(launch.attempt) or self._held.write(launch, port=_free_port())
        self._add(replace(held, launch=launch), now=now)

    def _add(self, held: HeldLaunch, *, now: float) -> None:
        launch = held.launch
        caller = self._own.read_json(self._own.environments / launch.environment)
        if self._machine is None:
            self._machine = self._look_around()
        machine = self._machine
        run = Run(machine, launch, self._folder(launch.attempt), caller, port=held.port)
        try:
            run.take_up(boot_id=held.boot_id, now=now)
        except Exception:
            self._unwatch(run)
            raise
        self._attempts += 1
        self._runs[launch.attempt] = run  # not before: what is not known to have begun could begin a second time
        if launch.is_stopping:
            run.change(launch, now)

    def _look_around(self) -> Machine:
        """What every run of this store needs to know of where it is."""
        groups = find_groups(self._own, self._link.store, self._node.id if self._options.is_remote else None)
        if groups is not None:
            self._gpus.groups = groups.names
            self._sampler.reads_environments = False
        return Machine(
            self._link.store,
            self._boot_id,
            self._watch,
            self._news.append,
            self._options.jobs_sockets,
            self._runtime,
            self._user_folders(),
            groups,
            processes_max(self._options.task_processes_max),
            self._gpu_files,
            self._files,
            self._server_seen(),
            image_variables(os.environ, find_backend(os.environ)) if self._options.is_remote else {},
            library_for_tasks(None if self._options.users_runtime is None else self._own.library),
        )

    def _server_seen(self) -> ServerSeen | None:
        options = self._options
        return ServerSeen(options.server, options.fingerprint, read_ca(options.ca)) if options.is_remote else None

    def _user_folders(self) -> UserFolders | None:
        own, runtime = self._own, self._options.users_runtime
        return None if runtime is None else UserFolders(own.tokens, own.checkpoints, own.library, runtime)

    def _take_up_all(self) -> None:
        """Everything an earlier life of this worker was responsible for."""
        for held in self._held.all():
            log.info("taking over attempt %s", held.launch.attempt)
            try:
                self._add(held, now=time.monotonic())
            except Exception as error:  # noqa: BLE001  the server names it again, and the others are taken up
                self._complain(f"attempt {held.launch.attempt} cannot be taken over yet: {error!r}", error)

    def _watch(self, descriptor: int, run: Run, task: Alive) -> None:
        self._watched[descriptor] = (run, task)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _unwatch(self, run: Run) -> None:
        """A run that is not taken on after all."""
        for descriptor in [descriptor for descriptor, (whose, _) in self._watched.items() if whose is run]:
            _, task = self._watched.pop(descriptor)
            self._epoll.unregister(descriptor)
            task.close()

    def _folder(self, attempt: AttemptId) -> Path:
        return self._own.tasks / str(attempt)

    # -- what was seen -----------------------------------------------------------------------------------------

    def _seen(self, run: Run) -> RunSeen:
        seen, gpu = run.seen(), self._gpus.seen(run.launch.attempt)
        if seen.is_finished and any(task.attempt == seen.attempt for task in self._unsent):
            seen = replace(seen, is_finished=False)  # its ends are not told yet
        if seen.is_finished and run.launch.files is not None:
            sending = self._files.sent(run.launch)
            trouble = sending.problem and f"its outputs on {run.launch.node} were not sent: {sending.problem}"
            has_sent = sending.is_done or bool(sending.problem)
            seen = replace(seen, is_finished=has_sent, trouble=trouble or sending.trouble or seen.trouble)
        return seen if gpu is None else replace(seen, gpu=gpu)

    def _sent(self, tasks: list[TaskSeen]) -> list[TaskSeen]:
        """Those that can be told: of a task whose log the server lacks, the end is told later."""
        if self._sender is None:
            return tasks
        for task in tasks:
            self._sender.follow(task.attempt, task.index, has_ended=task.ended_at is not None)
        known = {task for task in tasks if task.ended_at is None or self._sender.is_done(task.attempt, task.index)}
        self._unsent += [task for task in tasks if task not in known and task not in self._unsent]
        return [task for task in tasks if task in known]

    def _take_news(self) -> list[TaskSeen]:
        news, self._news[:] = self._news[:], []
        waiting, self._unsent = self._unsent, []
        return self._sent([*waiting, *news])

    def _tell(self) -> None:
        news, changed = self._take_news(), []
        is_urgent = False
        for attempt, run in self._runs.items():
            seen, before = self._seen(run), self._told.get(attempt)
            if before != seen:
                self._told[attempt] = seen
                changed.append(seen)
                is_urgent |= _is_awaited(run, before, seen)
        if news or changed:
            self._link.tell(news, changed, is_urgent=is_urgent)


def _is_awaited(run: Run, before: RunSeen | None, seen: RunSeen) -> bool:
    """Does anybody wait for this? Not for an array's tasks while it works through them, nor for what GPUs do."""
    if before is None:
        return True
    if not run.launch.is_array:
        return replace(seen, gpu=None) != replace(before, gpu=None)
    return seen.left == 0 or seen.revision != before.revision or len(before.in_use) > len(run.launch.lanes)


def _free_port() -> int:
    """A port nobody listens on now at any address of this machine, for the gang's rendezvous."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
