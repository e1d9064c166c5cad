"""Who is told when, and what if it does not work?

Each user has a few notices under way at once, each in a thread of its own, the rest in line behind them: a slow one
delays nobody else's, and of the same user only what is far behind it. A notice is tried a few times. How it went is an
event of its job; only then it is no longer due. What was not told when the server ended is told when it starts again,
so a notice may come twice, never not at all.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from swell.errors import NotFound, Rejected, SwellError
from swell.machine.users import user_of_job
from swell.model.job import JobId, Notify
from swell.model.webaddress import WebAddress
from swell.notifications.facts import VARIABLE, find_sendmail, mail_command, message, payload, printable, variables
from swell.notifications.post import NotSent, post
from swell.notifications.programs import Closing, Interrupted, Program, Programs
from swell.notifications.rules import NotificationRules
from swell.store import JobRecord

AT_ONCE_PER_USER = 4
TRIES = 3
PAUSE_S = 2.0
CLOSE_S_MAX = 5.0  # for programs to be killed; nobody waits for an address
PROBLEM_MAX = 500  # letters in an event

Told = Callable[[JobId, str, Mapping[str, object], bool], object]

log = logging.getLogger(__name__)


class Notices:
    def __init__(
        self, rules: NotificationRules, programs: Programs | None, read: Callable[[JobId], JobRecord], told: Told
    ) -> None:
        self._rules = rules
        self._programs = programs  #: None: this server runs none
        self._read = read
        self._told = told  #: a job, the kind and the detail of an event, and: is nothing of it due any more?
        self._mutex = threading.Lock()
        self._lines: dict[str, deque[JobId]] = {}  #: of each user
        self._busy: dict[str, int] = {}  #: threads of each user
        self._ends: dict[JobId, float | None] = {}  #: which end of a job is to be told
        self._running: set[threading.Thread] = set()  #: those that wait for a program
        self._closing = Closing()

    def tell(self, job: JobRecord) -> None:
        """Never blocks. The same end twice is told once: it is said again whenever the world is read again."""
        with self._mutex:
            if job.id in self._ends and self._ends[job.id] == job.ended_at:
                return
            self._ends[job.id] = job.ended_at
            self._lines.setdefault(job.owner, deque()).append(job.id)
            if self._busy.get(job.owner, 0) >= AT_ONCE_PER_USER:
                return
            self._busy[job.owner] = self._busy.get(job.owner, 0) + 1
        try:
            threading.Thread(target=self._work, args=(job.owner,), name="notice", daemon=True).start()
        except RuntimeError as problem:  # no thread is to be had; who has one goes on with the line, or the next server
            log.warning("the notice of job %s cannot be sent: %s", job.id, problem)
            with self._mutex:
                self._leave(job.owner)

    def close(self) -> None:
        """What is not told yet stays due. Programs are killed, with all that they have started."""
        self._closing.set()
        until = time.monotonic() + CLOSE_S_MAX
        with self._mutex:
            running = list(self._running)
        for thread in running:
            thread.join(max(0.0, until - time.monotonic()))

    # -- a thread -----------------------------------------------------------------------------------------------------

    def _work(self, owner: str) -> None:
        while (job := self._next(owner)) is not None:
            try:
                self._tell(job)
            except Exception as problem:  # it stays due, and the next ones are told all the same
                log.warning("the notice of job %s: %s", job, problem, exc_info=not isinstance(problem, SwellError))
                self._forget(job)

    def _next(self, owner: str) -> JobId | None:
        with self._mutex:
            line = self._lines.get(owner)
            if line and not self._closing.is_set:
                return line.popleft()
            self._leave(owner)
            return None

    def _leave(self, owner: str) -> None:
        """A thread ends. Under the lock in which it found nothing to do: what comes next needs another."""
        self._busy[owner] -= 1
        if not self._busy[owner]:
            del self._busy[owner]
        if not self._lines.get(owner):
            self._lines.pop(owner, None)

    def _forget(self, job: JobId) -> None:
        with self._mutex:
            self._ends.pop(job, None)

    def _tell(self, job: JobId) -> None:
        with self._mutex:
            if job not in self._ends:  # its later end was told when the earlier one's turn came
                return
        found = self._find(job)
        if found is None or found.spec.notify is None:
            self._forget(job)
            return
        with contextlib.suppress(Interrupted):
            self._record(found, *self._try(found, found.spec.notify))

    def _find(self, job: JobId) -> JobRecord | None:
        """None: it was deleted, or is to run again: then its next end is told."""
        try:
            found = self._read(job)
        except NotFound:
            return None
        return found if found.state.has_ended else None

    def _try(self, job: JobRecord, notify: Notify) -> tuple[str, dict[str, object]]:
        """What to record."""
        shown = _shown(notify)
        for tries in range(1, TRIES + 1):
            try:
                self._send(job, notify)
            except Rejected as refusal:  # it will be the same the next time
                return "NoticeRefused", {"to": shown, "problem": _bounded(refusal)}
            except NotSent as problem:
                log.warning("notifying %s that job %s has ended: %s", shown, job.id, _bounded(problem))
                if tries == TRIES:
                    return "NoticeFailed", {"to": shown, "problem": _bounded(problem), "tries": tries}
                if self._closing.wait(PAUSE_S):
                    raise Interrupted from None
            else:
                return "NoticeSent", {"to": shown, "tries": tries}
        raise AssertionError("there is at least one try")

    def _record(self, job: JobRecord, kind: str, detail: Mapping[str, object]) -> None:
        with self._mutex:
            is_last = self._ends.get(job.id) == job.ended_at
            if is_last:
                del self._ends[job.id]
        self._told(job.id, kind, detail, is_last)

    # -- the ways -----------------------------------------------------------------------------------------------------

    def _send(self, job: JobRecord, notify: Notify) -> None:
        self._rules.refuse(notify)
        if notify.is_address:
            post(WebAddress.parse(notify.to[0]), payload(job), self._rules)
        elif notify.is_mail:
            self._mail(job, notify.recipient)
        else:
            self._run(job, notify.to, variables(job))

    def _mail(self, job: JobRecord, recipient: str) -> None:
        program = find_sendmail()
        if program is None:
            raise Rejected("notify: this machine no longer has sendmail, so the e-mail was not sent")
        told = {**variables(job), VARIABLE: message(job, recipient)}
        self._run(job, mail_command(program, recipient), told)

    def _run(self, job: JobRecord, argv: tuple[str, ...], told: dict[str, str]) -> None:
        """As the user who submitted it, where the server is not that user's own."""
        assert self._programs is not None, "rules that refuse programs"
        user = None if job.uid is None else user_of_job(job.owner, job.uid)
        if job.uid is not None and user is None:
            raise Rejected(f"notify: the user {job.owner} (uid {job.uid}) is no longer known on this machine")
        me = threading.current_thread()
        with self._mutex:
            if self._closing.is_set:
                raise Interrupted
            self._running.add(me)
        try:
            self._programs.run(Program(job.id, argv, job.spec.workdir, told, user), self._closing)
        finally:
            with self._mutex:
                self._running.discard(me)


def _shown(notify: Notify) -> str:
    """Whom, without what may be secret: the path of an address, the arguments of a command."""
    if notify.is_address:
        try:
            return WebAddress.parse(notify.to[0]).origin
        except ValueError:
            return "an address"
    return printable(notify.to[0])[:100]


def _bounded(problem: Exception) -> str:
    text = printable(str(problem))
    return text if len(text) <= PROBLEM_MAX else f"{text[:PROBLEM_MAX]}…"
