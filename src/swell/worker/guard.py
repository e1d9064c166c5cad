"""Who ends the tasks of a worker on another machine that was killed and is not started again?

The server starts them elsewhere a minute after the lease, so they must not live on here. A guard is a process that the
worker forks when it starts, in a session of its own. It waits for the end of the worker, without a turn of its own
until then. If a task lives at that moment, it looks every second: another worker in the folder takes the tasks over,
and the guard ends. If the lease is over and there is none, it takes the folder's lock and ends the tasks as a worker
would have done. Leases run by the boot clock, so a machine that slept is no exception.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from swell.machine.boot_clock import boot_id, clock
from swell.machine.state_folder import Lock
from swell.machine.worker_folder import WorkerFolder
from swell.worker.last_heard import HeardNote
from swell.worker.tasks import Status, inspect

COMMAND_NAME = Path("/proc/self/comm")  # as `ps` and `top` show it
LOOK_S = 1.0  # a suspended machine's timers stand still: the boot clock is asked again and again

log = logging.getLogger(__name__)


def fork_guard(folder: WorkerFolder, lock: Lock, *, lease_s: float, end_tasks: Callable[[], None]) -> None:
    """Called before the worker has any thread, which a fork would not have. Returns in the worker only.

    `lock`: the worker's own. `end_tasks`: run by the guard, which has the lock by then.
    """
    worker = os.pidfd_open(os.getpid())
    if os.fork():
        os.close(worker)
        return
    try:
        os.setsid()
        COMMAND_NAME.write_text("swell-guard")
        lock.release()  # the worker's alone, from here on
        _wait_for_end(worker)
        guard(folder, HeardNote(folder, boot_id()).noted, lease_s=lease_s, end_tasks=end_tasks)
    except BaseException:
        log.exception("the guard of the worker's tasks has failed")
    finally:
        os._exit(0)


def _wait_for_end(process: int) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll()


def guard(
    folder: WorkerFolder,
    heard_at: Callable[[], float],
    *,
    lease_s: float,
    end_tasks: Callable[[], None],
    now: Callable[[], float] = clock,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """After the end of the worker. `heard_at`: when a worker of this folder last heard the server."""
    if not has_living_tasks(folder):
        return
    while folder.lock_holder is None:
        if now() - heard_at() > lease_s:
            lock = folder.lock()
            if lock is not None:
                log.warning("the worker is gone and its lease is over: its tasks are stopped")
                end_tasks()
                lock.release()
            return
        pause(LOOK_S)


def has_living_tasks(folder: WorkerFolder) -> bool:
    """By the table in `tasks.py`. What a keeper that was killed has left may live, too."""
    found = (inspect(path) for path in folder.tasks.glob("[0-9]*/[0-9]*"))
    return any(task.status is Status.ALIVE or task.note == "keeper" for task in found)
