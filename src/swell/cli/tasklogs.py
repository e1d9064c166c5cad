"""Which task's output is shown for a job with several tasks?"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from swell.cli.follow import FOLLOWED_MAX, copier, copiers, write_lines
from swell.cli.printing import say
from swell.client.find import typed
from swell.client.job import POLL_S
from swell.errors import NotFound, Rejected
from swell.model.quantity import IndexSet

if TYPE_CHECKING:
    from swell.client import Client, Job


def say_which(client: Client, job: Job, *, follow: bool) -> None:
    """Tell the user that this is the output of one task, not of the whole job."""
    total = job.document["tasks"]["total"]
    if total < 2:
        return
    first = next(_indices(client, job))
    word = "task" if is_array(job) else "rank"
    then = ", then of the tasks that run after it" if follow and is_array(job) else ""
    one, every = (typed(f"logs {which} {job.id}", client.state) for which in (f"--rank {word[0].upper()}", "--all"))
    say(f"job {job.id} has {total} tasks; this is the output of {word} {first}{then}; another: {one}; all: {every}")


def is_array(job: Job) -> bool:
    return bool(job.document.get("is_array"))  # a server of before does not say


def first_failed(client: Client, job: Job) -> int:
    failed = client.show(job.id).get("failed_tasks") or []
    if not failed:
        raise Rejected(f"no task of job {job.id} has failed; leave out --failed")
    if job.document["tasks"]["total"] > 1:
        say(f"task {failed[0]} of job {job.id} has failed; this is its output")
    return int(failed[0])


def _indices(client: Client, job: Job) -> Iterator[int]:
    array = client.show(job.id)["spec"]["array"]
    return iter(range(job.document["tasks"]["total"]) if array is None else IndexSet.parse(array["indices"]))


# -- one task after the other --------------------------------------------------------------------------------


def follow_array(client: Client, job: Job, out: Any, *, since: float | None) -> None:
    """Follow the first task, then a running one each time a task ends, until the job ends."""
    shown: set[tuple[int, int]] = set()
    index: int | None = next(_indices(client, job))
    while index is not None:
        shown.add((job.document["attempts"], index))
        for piece in client.logs(job.id, rank=index, since=since, follow=True):
            out.write(piece)
            out.flush()
        index, since = _next_running(client, job, shown), None
        if index is not None:
            say(f"this is the output of task {index}")


def _next_running(client: Client, job: Job, shown: set[tuple[int, int]]) -> int | None:
    while True:
        life = job.refresh().document["attempts"]
        running = client.show(job.id).get("running_tasks", ())
        fresh = next((int(index) for index in running if (life, index) not in shown), None)
        if fresh is not None or job.has_ended:
            return fresh
        job.refresh(wait_s=POLL_S)


# -- all of them ---------------------------------------------------------------------------------------------


def print_all(client: Client, job: Job, attempt: int | None, *, follow: bool) -> None:
    """Print each line with the number of its task."""
    if not follow:
        _print_each(client, job, attempt)
    elif is_array(job):
        _follow_each(client, job)
    else:
        _follow_gang(client, job)


def _print_each(client: Client, job: Job, attempt: int | None) -> None:
    total = job.document["tasks"]["total"]
    if total > FOLLOWED_MAX:
        see = typed(f"logs --rank R {job.id}", client.state)
        say(f"showing the first {FOLLOWED_MAX} of {total} tasks; to see others, run: {see}")
    for index in islice(_indices(client, job), FOLLOWED_MAX):
        line = b""
        try:
            for piece in client.logs(job.id, rank=index, attempt=attempt):
                *lines, line = (line + piece).split(b"\n")
                write_lines(sys.stdout.buffer, index, lines)
        except NotFound:  # an attempt may be narrower than the widest
            continue
        write_lines(sys.stdout.buffer, index, [line] if line else [])


def _follow_gang(client: Client, job: Job) -> None:
    """Each attempt of the job has its own output; they are shown one after the other."""
    copied = 0
    while True:
        for attempt in client.show(job.refresh().id)["attempts"][copied:]:
            for thread in copiers(client, job, attempt):
                thread.join()
            copied = attempt["number"]
        if job.has_ended:
            return
        if job.document["attempts"] == copied:
            job.refresh(wait_s=POLL_S)


def _follow_each(client: Client, job: Job) -> None:
    """The running tasks to follow, at most the limit."""
    shown: set[tuple[int, int]] = set()
    threads: list[threading.Thread] = []
    while True:
        life = job.refresh().document["attempts"]
        running = [int(index) for index in client.show(job.id).get("running_tasks", ())]
        threads = [thread for thread in threads if thread.is_alive()]
        for index in [one for one in running if (life, one) not in shown][: FOLLOWED_MAX - len(threads)]:
            shown.add((life, index))
            threads.append(copier(client, job.id, life, index, prefixed=True))
            threads[-1].start()
        if job.has_ended:
            break
        job.refresh(wait_s=POLL_S)
    for thread in threads:
        thread.join()
