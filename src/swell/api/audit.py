"""Where else is it written down who did what, read what of others, and was refused?

The store has an event for every change. Where the operator asks for it (config.json: `"audit"`), each of a person's is
also a line of JSON in a file, or a message to syslog, with two things that the store does not keep: what administrators
read of others, and what was refused. A thread of its own writes, so that a disk that hangs stops nobody; what it has
not told of the store's events when it is killed, it tells when it is started again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from swell.api.box import OthersData
from swell.config import AuditSettings
from swell.errors import Rejected
from swell.machine.state_folder import write_private
from swell.store import EventRecord, Store

WAITING_MAX = 10_000  # lines that a slow disk has not taken yet; what comes above is counted
READS_REMEMBERED_MAX = 10_000
READ_AGAIN_S = 60.0  # whoever follows a log asks every few seconds: that is one line a minute
LINE_BYTES_MAX = 8000  # what syslog daemons take
COMPLAIN_S = 60.0
OURSELVES = "swell"  # the actor of events that nobody asked for
SYSLOG_PRIORITY = 10 * 8 + 5  # authpriv.notice

log = logging.getLogger(__name__)
Line = dict[str, Any]


class Sink(Protocol):
    def write(self, lines: Sequence[bytes]) -> None:
        """Raises `OSError` where it cannot."""


class FileSink:
    """Opened for each batch: whoever rotates it need not tell us."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, lines: Sequence[bytes]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, 0o600), "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))


class SyslogSink:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, lines: Sequence[bytes]) -> None:
        head = f"<{SYSLOG_PRIORITY}>swell[{os.getpid()}]: ".encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(5.0)
            for line in lines:
                sender.sendto((head + line)[:LINE_BYTES_MAX], str(self._path))


class Audit:
    """Takes notes from any thread. Without a sink it does nothing."""

    def __init__(
        self, sinks: Sequence[Sink] = (), *, now: Callable[[], float] = time.time, cursor: Path | None = None
    ) -> None:
        self._sinks = sinks
        self._now = now
        self._cursor = cursor  #: file that says which event was told last; None: events are not told
        self._notes: queue.Queue[Line] = queue.Queue(WAITING_MAX)
        self._dropped = 0
        self._reads: dict[tuple[str, str], float] = {}
        self._bell = threading.Event()
        self._is_closing = False
        self._complained_at = float("-inf")
        self._thread: threading.Thread | None = None

    @property
    def is_on(self) -> bool:
        return bool(self._sinks)

    def start(self, store: Store) -> None:
        if self.is_on:
            store.listen(self._bell.set)
            self._thread = threading.Thread(target=self._run, args=(store,), name="audit", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """When all that was noted is written."""
        self._is_closing = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def refused(self, origin: str, what: str, actor: str = "") -> None:
        """Called as often as the log has a line for it: bounded for each and in all. `actor`: a known user."""
        self._note("Refused", actor, origin, {"what": what})

    def read(self, actor: str, origin: str, what: str) -> None:
        """An administrator has read what is not their own."""
        if not self.is_on:
            return
        key, now = (actor, what), self._now()
        if now - self._reads.get(key, float("-inf")) < READ_AGAIN_S:
            return
        if len(self._reads) >= READS_REMEMBERED_MAX:
            self._reads.clear()
        self._reads[key] = now
        self._note("Read", actor, origin, {"what": what})

    def _note(self, kind: str, actor: str, origin: str, detail: dict[str, Any]) -> None:
        if not self.is_on:
            return
        line = {"at": _iso(self._now()), "id": None, "kind": kind, "actor": actor, "origin": origin}
        try:
            self._notes.put_nowait({**line, "job": None, "detail": detail})
        except queue.Full:
            self._dropped += 1
        self._bell.set()

    def _run(self, store: Store) -> None:
        after = self._told(store)
        while True:
            is_last = self._is_closing
            self._bell.clear()
            after = self._tell_events(store, after)
            self._tell_notes()
            if is_last:
                return
            self._bell.wait()

    def _tell_events(self, store: Store, after: int) -> int:
        """Which was told last. What cannot be written now is told the next time."""
        while found := store.events(after=after):
            lines = [_of_event(event) for event in found if event.actor != OURSELVES]
            if lines and not self._write(lines):
                return after
            after = found[-1].id
            with contextlib.suppress(OSError):
                if self._cursor is not None:
                    write_private(self._cursor, json.dumps({"after": after}))
        return after

    def _tell_notes(self) -> None:
        lines: list[Line] = []
        with contextlib.suppress(queue.Empty):
            while len(lines) < WAITING_MAX:
                lines.append(self._notes.get_nowait())
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append({"at": _iso(self._now()), "id": None, "kind": "Dropped", "detail": {"lines": dropped}})
        if lines and not self._write(lines):
            self._dropped += len(lines)

    def _write(self, lines: Sequence[Line]) -> bool:
        encoded = [json.dumps(line).encode() for line in lines]
        try:
            for sink in self._sinks:
                sink.write(encoded)
        except OSError as error:
            if time.monotonic() - self._complained_at > COMPLAIN_S:
                self._complained_at = time.monotonic()
                log.error("the audit cannot be written: %s", error)
            return False
        return True

    def _told(self, store: Store) -> int:
        """The first time it begins with what happens from now on."""
        if self._cursor is None:
            return store.last_event_id()
        try:
            return int(json.loads(self._cursor.read_text())["after"])
        except (OSError, ValueError, LookupError, TypeError):
            return store.last_event_id()


def open_audit(settings: AuditSettings, cursor: Path) -> Audit:
    """Refused where its file cannot be written: an operator who asked for a record must not find none."""
    sinks: list[Sink] = []
    if settings.file is not None:
        sinks.append(FileSink(Path(settings.file)))
    if settings.syslog is not None:
        sinks.append(SyslogSink(Path(settings.syslog)))
    for sink in sinks:
        try:
            sink.write([])
        except OSError as error:
            raise Rejected(
                f"audit.file {settings.file} cannot be written: {error.strerror}; create its folder, or name "
                "another file"
            ) from error
    return Audit(sinks, cursor=cursor)


def _of_event(event: EventRecord) -> Line:
    return {
        "at": _iso(event.at),
        "id": event.id,
        "kind": event.kind,
        "actor": event.actor,
        "origin": event.origin,
        "job": event.job_id,
        "detail": event.detail,
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


OF_A_JOB = ("/api/v1/jobs/", "/get_job/")
OF_EVENTS = ("/api/v1/events", "/api/v1/events/stream")
USER_SHOWN_MAX = 100  # characters


def in_words(path: str, read: OthersData) -> str:
    """What of whom."""
    if read.job is None:
        whose = "all users" if read.owner is None else repr(read.owner[:USER_SHOWN_MAX])
        return f"{_word(path)} of {whose}"
    return f"{_word(path)} of job {read.job} of {read.owner!r}"


def _word(path: str) -> str:
    if path in OF_EVENTS:
        return "events"
    for prefix in OF_A_JOB:
        if path.startswith(prefix):
            return path.removeprefix(prefix).partition("/")[2] or "show"
    return path.rpartition("/")[2]


LINES_PER_ORIGIN = 20  # enough to see who and what; the rest is counted
LINES_PER_WINDOW = 100  # of all: nobody hides others behind a flood
WINDOW_S = 60.0
LINE_MAX = 500  # characters: it may quote headers
ASKED_SHOWN_MAX = 200  # characters of a path and its query
CLIMBS = re.compile(r"(^|[/\\=])\.\.([/\\&?]|$)|\0")  # a step up, or a name that would end early in C
ADDRESS = re.compile(r"^/d/[^/]*")  # it is a token (doors/entrance.py)

Scope = dict[str, Any]


class Flood:
    """So many a minute, of each and of all; after that they are only counted.

    Thread-safe: every opened door is served by a thread of its own.
    """

    def __init__(
        self,
        of_each: int,
        of_all: int,
        tell_missed: Callable[[int], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of_each = of_each
        self._of_all = of_all
        self._tell_missed = tell_missed  #: how many were not let through, when the minute is over
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._began = monotonic()
        self._missed = 0
        self._admitted: Counter[str] = Counter()

    def admits(self, key: str) -> bool:
        with self._lock:
            now = self._monotonic()
            if now - self._began > WINDOW_S:
                if self._missed:
                    self._tell_missed(self._missed)
                self._began, self._missed = now, 0
                self._admitted.clear()
            if self._admitted.total() < self._of_all and self._admitted[key] < self._of_each:
                self._admitted[key] += 1
                return True
            self._missed += 1
            return False


class RefusalLog:
    """So many lines a minute, of each and of all; after that only how many there were."""

    def __init__(self, log: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        #: as often as a line is written: origin, what, and which user, if that is known
        self.tell: Callable[[str, str, str], None] = lambda *_: None
        self._flood = Flood(LINES_PER_ORIGIN, LINES_PER_WINDOW, self._tell_missed, monotonic=monotonic)

    def _tell_missed(self, count: int) -> None:
        self._log.warning("and %d more refusals", count)

    def note(self, origin: str, what: str, actor: str = "") -> None:
        """A user has lines for all of their processes together."""
        if self._flood.admits(actor or origin):
            self._log.warning("refused %s: %s", origin, what[:LINE_MAX])
            self.tell(origin, what[:LINE_MAX], actor)

    def noting_climbers(self, scope: Scope, origin: str, send: Any) -> Any:
        """In place of `send`: whoever asks for a path that leads upwards, and is refused, is written down."""
        asked = f"{scope['path']}?{scope['query_string'].decode('latin-1')}".rstrip("?")
        if not CLIMBS.search(unquote(asked)):
            return send

        async def noting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self.note(origin, f"{scope['method']} {shown(asked)}: it climbs; answered {message['status']}")
            await send(message)

        return noting


def shown(asked: str) -> str:
    """Of a path: on one line, bounded, and without the token that an address is."""
    return repr(ADDRESS.sub("/d/…", asked)[:ASKED_SHOWN_MAX])
