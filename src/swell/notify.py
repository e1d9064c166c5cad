"""Who is told that a job has ended, and how?

One thread per user tells one after the other, so nobody waits for another's: a command is run with the job's facts
in its environment, an address gets them as JSON. It is tried a few times; then the failure is in server.log and nobody
is kept waiting. What was not told when the server ended is told when it starts again, so a notice may come twice,
never not at all.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime

from swell.model.job import Notify
from swell.process import as_user, in_folder
from swell.store import JobRecord
from swell.users import user_of_job

TRIES = 3
PAUSE_S = 2.0
TIMEOUT_S = 30.0

log = logging.getLogger(__name__)


class Notifiers:
    """One notifier for each user, from their first notice on."""

    def __init__(self, told: Callable[[int], object]) -> None:
        self._told = told
        self._of: dict[str, Notifier] = {}

    def tell(self, job: JobRecord) -> None:
        if job.owner not in self._of:
            self._of[job.owner] = Notifier(self._told)
        self._of[job.owner].tell(job)

    def close(self) -> None:
        """What is not told yet stays due."""
        for notifier in self._of.values():
            notifier.let_go()
        for notifier in self._of.values():
            notifier.join(TIMEOUT_S)


class Notifier(threading.Thread):
    def __init__(self, told: Callable[[int], object]) -> None:
        super().__init__(name="notifier", daemon=True)
        self._told = told
        self._due: queue.SimpleQueue[JobRecord | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self.start()

    def tell(self, job: JobRecord) -> None:
        self._due.put(job)

    def let_go(self) -> None:
        self._is_closing.set()
        self._due.put(None)

    def run(self) -> None:
        while not self._is_closing.is_set():
            job = self._due.get()
            if job is not None:
                self._try(job)

    def _try(self, job: JobRecord) -> None:
        notify = job.spec.notify
        if notify is None:
            return
        for attempt in range(TRIES):
            try:
                send(notify, job)
                break
            except (OSError, subprocess.SubprocessError, ValueError) as problem:
                log.warning("telling %s that job %s has ended: %s", " ".join(notify.to), job.id, problem)
                if attempt + 1 < TRIES and self._is_closing.wait(PAUSE_S):
                    return
        self._told(job.id)


def send(notify: Notify, job: JobRecord) -> None:
    if notify.is_address:
        _post(notify.to[0], job)
    else:
        _run(notify.to, job)


def facts(job: JobRecord) -> dict[str, object]:
    ended_at = None if job.ended_at is None else datetime.fromtimestamp(job.ended_at, UTC).isoformat()
    reason = None if job.reason_code is None else str(job.reason_code)
    return {
        "job": job.id,
        "name": job.name,
        "user": job.owner,
        "state": str(job.state),
        "exit_code": job.exit_code,
        "reason": reason,
        "ended_at": ended_at,
    }


def _post(address: str, job: JobRecord) -> None:
    body = json.dumps(facts(job)).encode()
    request = urllib.request.Request(  # noqa: S310  only http(s) is accepted as an address
        address, body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        answer.read(1024)


def _run(argv: tuple[str, ...], job: JobRecord) -> None:
    """In the job's folder, with the server's environment: the caller's own may hold what is only for the job.

    A box server runs it as the user who submitted the job, with what a login would set and nothing of its own.
    """
    user = None if job.uid is None else user_of_job(job.owner, job.uid)
    if job.uid is not None and user is None:
        raise ValueError(f"the user {job.owner} (uid {job.uid}) is no longer known here")
    told = {f"SWELL_{name.upper()}": "" if value is None else str(value) for name, value in facts(job).items()}
    told["SWELL_JOB_ID"] = told.pop("SWELL_JOB")
    subprocess.run(
        in_folder(job.spec.workdir, argv),
        cwd="/",
        env={**(os.environ if user is None else user.variables), **told},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
        **as_user(user),
    )
