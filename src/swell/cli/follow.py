"""How is a job shown while it lives?

Its state is waited for in the main thread; one thread per task copies its log. Words about the job go to standard
error, its output to standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from swell.cli.printing import say, say_end
from swell.client.client import Client
from swell.client.connection import NoServer
from swell.client.embedded import ensure_server
from swell.client.job import POLL_S
from swell.errors import SwellError
from swell.state import StateFolder

if TYPE_CHECKING:
    from swell.client import Job

PASSING = ("NotYetPlanned", "NoWorker")  # true for a moment after every submission; not worth a line
PASSING_S = 1.0
FOLLOWED_MAX = 16  # more tasks than this on one terminal help nobody


class Follower:
    """Shows one job; may be interrupted and go on where it was, without showing anything twice."""

    def __init__(self, client: Client, job: Job) -> None:
        self._client = client
        self._job = job
        self._said = ""
        self._copiers: list[threading.Thread] = []
        self._copied = 0  #: attempts whose output is shown, or being shown

    def until_ended(self) -> None:
        """Then say how, if that was not well."""
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
        """Each life of the job has its own output; they are shown one after the other."""
        if self._job.document["attempts"] == self._copied:
            return
        document = self._client.show(self._job.id)
        if document["spec"]["array"] is not None:
            if not self._copied:
                _point_to_tasks(self._job)
            self._copied = len(document["attempts"])
            return
        for attempt in document["attempts"][self._copied :]:
            for copier in self._copiers:
                copier.join()
            if attempt["number"] > 1:
                say(f"job {self._job.id} goes on as attempt {attempt['number']}, width {attempt['width']}")
            self._copiers = _copiers(self._client, self._job, attempt)
            self._copied = attempt["number"]

    def _let_pass(self) -> None:
        """The first moments are not worth a line; what lasts longer is."""
        until = time.monotonic() + PASSING_S
        while (reason := self._job.document["reason"]) and reason["code"] in PASSING:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._job.refresh(wait_s=left)

    def _wait_for_change(self) -> None:
        """A server that crashed is started again; one that was stopped on purpose stays down."""
        state = self._client.state
        try:
            self._job.refresh(wait_s=POLL_S)
        except NoServer:
            if not isinstance(state, StateFolder):
                raise
            if not state.server_file.exists():
                number = self._job.id
                raise NoServer(
                    f"the server of {state} was stopped; job {number} goes on: swell up -d, then swell logs -f {number}"
                ) from None
            say("the server has died; starting it again (the job goes on)")
            ensure_server(state)

    def _say_why_it_waits(self) -> None:
        reason = self._job.document["reason"]
        text = f"waits: {reason['message']}" if reason and self._job.state == "queued" else ""
        if text and text != self._said:
            say(f"job {self._job.id} {text}")
            self._said = text


def _point_to_tasks(job: Job) -> None:
    say(f"job {job.id} has {job.document['tasks']['total']} tasks; see one with: swell logs --rank I {job.id}")


def _copiers(client: Client, job: Job, attempt: dict[str, Any]) -> list[threading.Thread]:
    total = len(attempt["placements"])
    if total > FOLLOWED_MAX:
        say(f"showing ranks 0 to {FOLLOWED_MAX - 1} of {total}; see others with: swell logs -f --rank R {job.id}")
    ranks = range(min(total, FOLLOWED_MAX))
    threads = [_copier(client, job.id, attempt["number"], rank, prefixed=total > 1) for rank in ranks]
    for thread in threads:
        thread.start()
    return threads


def _copier(client: Client, job: int, attempt: int, rank: int, *, prefixed: bool) -> threading.Thread:
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
                _write_lines(out, rank, lines)
            if line:
                _write_lines(out, rank, [line])
        except (SwellError, OSError) as error:
            say(f"the log of task {rank} breaks off here: {error}")

    return threading.Thread(target=copy, daemon=True)


_printing = threading.Lock()


def _write_lines(out: Any, rank: int, lines: list[bytes]) -> None:
    with _printing:
        for line in lines:
            out.write(b"%d| %s\n" % (rank, line))
        out.flush()


def _show_progress(job: Job) -> None:
    tasks = job.document["tasks"]
    if tasks["total"] > 1 and job.document["width_max"] != tasks["total"] and sys.stderr.isatty():
        done = tasks["succeeded"] + tasks["failed"]
        line = f"{done} of {tasks['total']} tasks done, {tasks['running']} running, {tasks['failed']} failed"
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _show_end(job: Job) -> None:
    if job.document["tasks"]["total"] > 1 and sys.stderr.isatty():
        print(file=sys.stderr)
    say_end(job)
