"""How is a job shown until it ends?

The main thread waits for the job's state; one thread per task copies its log. Messages about the job go to standard
error, its output to standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from swell.cli.printing import say, say_end
from swell.client.client import Client
from swell.client.connection import NoServer
from swell.client.embedded import ensure_server
from swell.client.find import typed
from swell.client.job import POLL_S, RESTART_S
from swell.errors import SwellError
from swell.machine.state_folder import StateFolder

if TYPE_CHECKING:
    from swell.client import Job

PASSING = ("NotYetPlanned", "NoWorker")  # true for a moment after every submission; not worth a line
PASSING_S = 1.0
FOLLOWED_MAX = 16  # more tasks than this on one terminal help nobody


class Follower:
    """Shows one job; can be interrupted and resumed without showing anything twice."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client = client
        self._job = job
        self._said = ""
        self._copiers: list[threading.Thread] = []
        self._copied = 0  #: attempts whose output is shown, or being shown

    def until_ended(self) -> None:
        """Follow the job until it ends, then print how it ended unless it succeeded."""
        job = self._job
        self._let_pass()
        while not job.has_ended:
            self._say_why_it_waits()
            self._copy_new_attempts()
            _show_progress(job)
            self._wait_for_change()
        self._copy_new_attempts()
        for copier in self._copiers:
            copier.join()
        _show_end(job)

    def _copy_new_attempts(self) -> None:
        """Each attempt of the job has its own output; they are shown one after the other."""
        if self._job.document["attempts"] == self._copied:
            return
        document = self._client.patiently(partial(self._client.show, self._job.id), RESTART_S)
        if document["spec"]["array"] is not None:
            if not self._copied:
                _point_to_tasks(self._client, self._job)
            self._copied = len(document["attempts"])
            return
        for attempt in document["attempts"][self._copied :]:
            for copier in self._copiers:
                copier.join()
            if attempt["number"] > 1:
                say(f"job {self._job.id} continues as attempt {attempt['number']}, width {attempt['width']}")
            self._copiers = copiers(self._client, self._job, attempt)
            self._copied = attempt["number"]

    def _let_pass(self) -> None:
        """Print why the job waits, but not in the first moments."""
        until = time.monotonic() + PASSING_S
        while (reason := self._job.document["reason"]) and reason["code"] in PASSING:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._job.refresh(wait_s=left)

    def _wait_for_change(self) -> None:
        """Restart a server that crashed; leave down one that was stopped on purpose."""
        state = self._client.state
        try:
            self._job.refresh(wait_s=POLL_S)
        except NoServer:
            if not isinstance(state, StateFolder) or state.socket is not None:
                raise
            if not state.server_file.exists():
                again = f"{typed('up -d', state)}, then {typed(f'logs -f {self._job.id}', state)}"
                raise NoServer(
                    f"the server of {state} was stopped; job {self._job.id} keeps running; to see it again: {again}"
                ) from None
            say("the server has crashed; restarting it (the job keeps running)")
            ensure_server(state)

    def _say_why_it_waits(self) -> None:
        """Why it does not run yet, or what keeps it from starting or going on."""
        reason = self._job.document["reason"]
        text = ""
        if reason and self._job.state == "queued":
            text = f"waits: {reason['message']}"
        elif reason and reason["evidence"].get("trouble"):
            text = f"is {self._job.state}: {reason['message']}"
        if text and text != self._said:
            say(f"job {self._job.id} {text}")
            self._said = text


def _point_to_tasks(client: Client, job: Job) -> None:
    one, each = (typed(f"logs {which} {job.id}", client.state) for which in ("--rank I", "--all -f"))
    say(f"job {job.id} has {job.document['tasks']['total']} tasks; to see one: {one}; to see all running tasks: {each}")


def copiers(client: Client, job: Job, attempt: dict[str, Any]) -> list[threading.Thread]:
    total = len(attempt["placements"])
    if total > FOLLOWED_MAX:
        see = typed(f"logs -f --rank R {job.id}", client.state)
        say(f"showing ranks 0 to {FOLLOWED_MAX - 1} of {total}; to see others: {see}")
    ranks = range(min(total, FOLLOWED_MAX))
    threads = [copier(client, job.id, attempt["number"], rank, prefixed=total > 1) for rank in ranks]
    for thread in threads:
        thread.start()
    return threads


def copier(client: Client, job: int, attempt: int, rank: int, *, prefixed: bool) -> threading.Thread:
    def copy() -> None:
        out = sys.stdout.buffer
        line = b""
        try:
            for piece in Client(client.state).logs(job, rank=rank, attempt=attempt, follow=True):
                if not prefixed:
                    out.write(piece)
                    out.flush()
                    continue
                *lines, line = (line + piece).split(b"\n")
                write_lines(out, rank, lines)
            if line:
                write_lines(out, rank, [line])
        except (SwellError, OSError) as error:
            say(f"the log of task {rank} is cut off here: {error}")

    return threading.Thread(target=copy, daemon=True)


_printing = threading.Lock()


def write_lines(out: Any, rank: int, lines: list[bytes]) -> None:
    with _printing:
        for line in lines:
            out.write(b"%d| %s\n" % (rank, line))
        out.flush()


def _show_progress(job: Job) -> None:
    if job.document.get("is_array") and sys.stderr.isatty():  # a server of before does not say
        print(f"\r\x1b[K{_progress(job)}", end="", file=sys.stderr, flush=True)


def _progress(job: Job) -> str:
    tasks = job.document["tasks"]
    done = tasks["succeeded"] + tasks["failed"]
    return f"{done} of {tasks['total']} tasks done, {tasks['running']} running, {tasks['failed']} failed"


def _show_end(job: Job) -> None:
    if job.document.get("is_array"):
        line = f"job {job.id}: {_progress(job)}"
        print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)
    say_end(job)
