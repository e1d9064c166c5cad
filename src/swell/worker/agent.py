"""What does the worker do, over and over?

One thread waits for whatever comes first: a keeper that ended (its pidfd), a newer desired set, a deadline. Then
every run takes a step, and what changed is handed to the reporter. What this worker is responsible for is on disk
(`launch.json` beside the tasks), so after a crash it goes on at once, server or no server.

Runs are users' and this loop is everybody's: what goes wrong with one of them is said once in the log, that run is
tried again a little later, and the others go on (`_with`).
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import Launch, RunSeen, TaskSeen
from swell.state import StateFolder
from swell.worker import cgroups
from swell.worker.containers import Runtime
from swell.worker.limits import processes_max
from swell.worker.machine import Alive, Machine
from swell.worker.nvml import Nvml
from swell.worker.run import Run
from swell.worker.sampler import Sampler
from swell.worker.sync import Desired, ServerLink
from swell.worker.watch import Watch

LOOK_S = 1.0  # how often logs are looked at, and tasks that no event tells of
RETRY_S = 5.0  # a run with which something unforeseen went wrong is tried again after so long
COMPLAINTS_MAX = 1000  # different ones that are remembered, so that each is said once
LONELY_S = 600.0  # without a server for this long, and with nothing to run, the worker ends
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """What this worker has noted of a run that it is responsible for."""

    launch: Launch
    port: int
    boot_id: str

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Held:
        return cls(Launch.from_document(document["launch"]), int(document["port"]), str(document["boot_id"]))


class Agent:
    """This machine's runs."""

    def __init__(self, state: StateFolder, node: Node, nvml: Nvml, runtime: Runtime | None) -> None:
        self._state = state
        self._node = node
        self._runtime = runtime  #: None: containers cannot be run here
        self._boot_id = BOOT_ID.read_text().strip()
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
        self._link = ServerLink(state, node, wake=self.wake)
        self._sampler = Sampler(nvml, wake=self.wake)
        self._gpu_files = nvml.numbers() if any(not device.simulated for device in node.devices) else {}
        self._found = node.devices  #: when the worker began; those that do not answer are not offered
        self._gpus = Watch(devices=node.devices)
        self.is_closing = False

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        store = self._state.tasks / ".store"
        if store.exists():
            self._link.store = store.read_text()
            self._take_up_all()
        self._link.start()
        if any(not device.simulated for device in self._node.devices):
            self._sampler.start()
        while not self.is_closing and not self._is_lonely():
            self._turn()
        if self._machine is not None and self._machine.groups is not None:
            self._machine.groups.close()  # stays where a task is left

    def _turn(self) -> None:
        events = self._epoll.poll(self._patience())
        now = time.monotonic()
        for descriptor, _ in events:
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
            elif descriptor in self._watched:
                run, task = self._watched.pop(descriptor)
                self._epoll.unregister(descriptor)
                self._with(run, partial(run.keeper_ended, task, now), now)
        self._converge(now)
        for attempt, run in self._runs.items():
            if not run.is_finished and now >= self._failing.get(attempt, 0.0):
                self._with(run, partial(run.step, now), now)
        self._look_at_logs(now)
        self._look_at_gpus()
        self._tell()
        self._drop_unwanted()

    def _with(self, run: Run, do: Callable[[], None], now: float) -> None:
        """Nothing that one run meets ends the loop of all."""
        attempt = run.launch.attempt
        try:
            do()
        except Exception as error:  # noqa: BLE001  whatever it is
            self._complain(f"attempt {attempt} is looked at again in {RETRY_S:.0f} s: {error!r}", error)
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
        return max(0.0, min([*deadlines, now + LONELY_S / 10]) - now)

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
                self._complain(f"what the GPUs do could not be told apart: {error!r}", error)
        self._link.gpu_utilization = self._gpus.utilization(time.monotonic())
        if not samples:
            return
        self._gpus.keep(self._runs)
        node = replace(self._node, devices=self._gpus.devices(self._found), lost=self._gpus.lost(self._found))
        if node != self._node:
            self._node = node
            self._link.offer(node)

    def _is_lonely(self) -> bool:
        silent = time.monotonic() - self._link.heard_at > LONELY_S
        gone = not self._state.root.exists()
        return (silent or gone) and not any(run.alive for run in self._runs.values())

    # -- what should run ---------------------------------------------------------------------------------------

    def _converge(self, now: float) -> None:
        desired, is_new_server = self._link.take()
        if is_new_server:
            self._told = {attempt: self._seen(run) for attempt, run in self._runs.items()}
            self._news.clear()
            everything = [task for run in self._runs.values() for task in run.everything()]
            self._link.tell_all(everything, list(self._told.values()))
        if desired is not None:
            self._apply(desired, now)

    def _apply(self, desired: Desired, now: float) -> None:
        wanted = {launch.attempt: launch for launch in desired.launches}
        for attempt, run in list(self._runs.items()):
            if attempt not in wanted:
                self._with(run, partial(self._let_go, run, now), now)
        for launch in wanted.values():
            try:
                self._take_on(launch, now)
            except OSError as error:  # most likely a full disk
                log.warning("attempt %s cannot be taken on yet: %s", launch.attempt, error)
                self._is_behind = True
            except Exception as error:  # noqa: BLE001  the others are taken on
                self._complain(f"attempt {launch.attempt} cannot be taken on: {error!r}", error)
                self._is_behind = True

    def _take_on(self, launch: Launch, now: float) -> None:
        known = self._runs.get(launch.attempt)
        if known is None:
            self._begin(launch, now)
        elif known.launch != launch:
            known.change(launch, now)
            self._write(known.launch, port=known.port)

    def _let_go(self, run: Run, now: float) -> None:
        """The server no longer wants it: end what lives. Its logs stay until they are erased."""
        self._unwanted.add(run.launch.attempt)
        if not run.is_finished and not run.launch.is_stopping:
            stop = run.launch.stopped(grace_s=run.launch.grace_s, generation=run.launch.generation)
            run.change(stop, now)

    def _drop_unwanted(self) -> None:
        for attempt in [attempt for attempt in self._unwanted if self._runs[attempt].is_finished]:
            del self._runs[attempt]
            self._failing.pop(attempt, None)
            self._told.pop(attempt, None)
            self._unwanted.discard(attempt)
            (self._folder(attempt) / "launch.json").unlink(missing_ok=True)

    def _begin(self, launch: Launch, now: float) -> None:
        store = self._state.tasks / ".store"
        if not store.exists():
            store.write_text(self._link.store)
        folder = self._folder(launch.attempt)
        folder.mkdir(mode=0o700, exist_ok=True)
        held = self._held(folder / "launch.json")
        port = held.port if held else _free_port()
        if not held:
            self._write(launch, port=port)
        self._add(launch, port=port, boot_id=held.boot_id if held else self._boot_id, now=now)

    def _add(self, launch: Launch, *, port: int, boot_id: str, now: float) -> None:
        caller = self._state.read_json(self._state.tasks / ".environments" / launch.environment)
        if self._machine is None:
            self._machine = self._look_around()
        machine = self._machine
        run = Run(machine, launch, self._folder(launch.attempt), caller, port=port)
        try:
            run.take_up(boot_id=boot_id, now=now)
        except Exception:
            self._unwatch(run)
            raise
        self._runs[launch.attempt] = run  # not before: what is not known to have begun could begin a second time
        if launch.is_stopping:
            run.change(launch, now)

    def _look_around(self) -> Machine:
        """What every run of this store needs to know of where it is."""
        groups = self._find_groups()
        if groups is not None:
            self._gpus.groups = groups.names
            self._sampler.reads_environments = False
        return Machine(
            self._link.store,
            self._boot_id,
            self._watch,
            self._news.append,
            self._state.sockets,
            self._runtime,
            self._state if self._state.socket is not None else None,
            groups,
            processes_max(self._state.read_json(self._state.config).get("task_processes_max")),
            self._gpu_files,
        )

    def _find_groups(self) -> cgroups.Groups | None:
        """Where an earlier life of ours had them: what it started must be found again."""
        noted = self._state.tasks / ".cgroups"
        before = tuple(Path(line) for line in noted.read_text().splitlines()) if noted.exists() else ()
        found = cgroups.find(self._link.store, before)
        if found is not None:
            noted.write_text("\n".join(str(base.folder) for base in found.bases))
        return found

    def _write(self, launch: Launch, *, port: int) -> None:
        """On disk before anything of it begins: after a power cut this says which boot it belonged to."""
        folder = self._folder(launch.attempt)
        held = self._held(folder / "launch.json")
        boot_id = held.boot_id if held else self._boot_id
        document = {"launch": launch.to_document(), "port": port, "boot_id": boot_id}
        beside = folder / ".launch.json"
        with beside.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / "launch.json")

    def _take_up_all(self) -> None:
        """Everything an earlier life of this worker was responsible for."""
        for path in sorted(self._state.tasks.glob("[0-9]*/launch.json")):
            held = self._held(path)
            if held is None:
                continue
            log.info("taking up attempt %s", held.launch.attempt)
            try:
                self._add(held.launch, port=held.port, boot_id=held.boot_id, now=time.monotonic())
            except Exception as error:  # noqa: BLE001  the server names it again, and the others are taken up
                self._complain(f"attempt {held.launch.attempt} cannot be taken up yet: {error!r}", error)

    def _held(self, path: Path) -> Held | None:
        """None: there is none, or it cannot be read."""
        try:
            document = self._state.read_json(path)
            return Held.parse(document) if document else None
        except (KeyError, TypeError, ValueError, AttributeError, IsADirectoryError) as error:
            self._complain(f"{path} cannot be read, and counts as absent: {error!r}", error)
            return None

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
        return self._state.tasks / str(attempt)

    # -- what was seen -----------------------------------------------------------------------------------------

    def _seen(self, run: Run) -> RunSeen:
        seen, gpu = run.seen(), self._gpus.seen(run.launch.attempt)
        return seen if gpu is None else replace(seen, gpu=gpu)

    def _tell(self) -> None:
        changed = []
        is_urgent = False
        for attempt, run in self._runs.items():
            seen, before = self._seen(run), self._told.get(attempt)
            if before != seen:
                self._told[attempt] = seen
                changed.append(seen)
                is_urgent |= _is_awaited(run, before, seen)
        if self._news or changed:
            news, self._news[:] = self._news[:], []
            self._link.tell(news, changed, is_urgent=is_urgent)


def _is_awaited(run: Run, before: RunSeen | None, seen: RunSeen) -> bool:
    """Does anybody wait for this? Not for an array's tasks while it works through them, nor for what GPUs do."""
    if before is None:
        return True
    if not run.launch.is_array:
        return replace(seen, gpu=None) != replace(before, gpu=None)
    return seen.left == 0 or seen.revision != before.revision or len(before.in_use) > len(run.launch.lanes)


def _free_port() -> int:
    """A port nobody listens on now, for the gang's rendezvous."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
