"""Does the server have what tasks here have written?

A worker whose folder the server cannot read sends its tasks' logs while they grow. The end of a task is told only when
all of its log is there (`agent.py`), so a log that the server calls complete is. The server answers how far it has each
log, so nothing needs to be remembered here: after a restart of either side a piece is sent again and ignored.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swell.machine.users import open_without_waiting
from swell.model.job import AttemptId

LOOK_S = 0.25  # between two looks at logs that may grow
RETRY_S = 1.0
PIECE_BYTES = 256 << 10  # of one log in one request, so that a chatty task does not keep the others' waiting
REQUEST_BYTES = 4 << 20
PIECES_MAX = 2000  # in one request

log = logging.getLogger(__name__)

TaskKey = tuple[AttemptId, int]


class LogLine(Protocol):
    def send_logs(self, body: bytes) -> list[int | None]:
        """How far the server has each log; None: it does not want it."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _Sent:
    bytes: int = 0  #: that the server has
    has_ended: bool = False  #: its task has, so it grows no more
    is_done: bool = False  #: all of it is there, or the server does not want it
    turn: int = 0  #: in which it was last looked at; 0: not yet


@dataclass(frozen=True, slots=True)
class _Piece:
    key: TaskKey
    offset: int
    data: bytes
    is_last: bool  #: there was no more when it was read
    has_ended: bool  #: its task had, before it was read


class LogSender:
    """Thread-safe: the agent follows and asks, a thread of its own sends."""

    def __init__(self, tasks: Path, connect: Callable[[], LogLine], *, wake: Callable[[], None]) -> None:
        self._tasks = tasks
        self._connect = connect
        self._wake = wake  #: the agent should look: a log is done
        self._changed = threading.Condition()
        self._logs: dict[TaskKey, _Sent] = {}
        self._turn = 0  #: how many requests were made up

    def start(self) -> None:
        threading.Thread(target=self._run, name="log-sender", daemon=True).start()

    def follow(self, attempt: AttemptId, index: int, *, has_ended: bool) -> None:
        with self._changed:
            known = self._logs.setdefault((attempt, index), _Sent())
            known.has_ended = known.has_ended or has_ended
            self._changed.notify_all()

    def is_done(self, attempt: AttemptId, index: int) -> bool:
        with self._changed:
            known = self._logs.get((attempt, index))
            return known is not None and known.is_done

    def forget(self, attempt: AttemptId) -> None:
        with self._changed:
            for key in [key for key in self._logs if key[0] == attempt]:
                del self._logs[key]

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        line = self._connect()
        while True:
            with self._changed:
                self._changed.wait_for(self._open_logs)
            try:
                self.send_once(line)
                pause_s = LOOK_S
            except Exception as error:  # noqa: BLE001  no server and no log ends this thread
                line.close()
                log.debug("logs could not be sent yet: %s", error)
                pause_s = RETRY_S
            time.sleep(pause_s)

    def _open_logs(self) -> list[TaskKey]:
        return [key for key, known in self._logs.items() if not known.is_done]

    def send_once(self, line: LogLine) -> None:
        """What has been written since; several requests if it is much. Every log is looked at once at least."""
        with self._changed:
            unseen = set(self._open_logs())
        while True:
            pieces = self._collect()
            filled = [piece for piece in pieces if piece.data]
            sizes = dict(zip((piece.key for piece in filled), self._send(line, filled), strict=True))
            self._note(pieces, sizes)
            with self._changed:
                unseen = (unseen - {piece.key for piece in pieces}) & self._logs.keys()
            if not unseen and all(piece.is_last for piece in pieces):
                return

    def _send(self, line: LogLine, pieces: list[_Piece]) -> list[int | None]:
        if not pieces:
            return []
        named = [[str(one.key[0]), one.key[1], one.offset, len(one.data)] for one in pieces]
        return line.send_logs(json.dumps(named).encode() + b"\n" + b"".join(one.data for one in pieces))

    def _collect(self) -> list[_Piece]:
        """Those that were not looked at for longest come first, so that a few chatty tasks leave nobody out."""
        with self._changed:
            keys = sorted(self._open_logs(), key=lambda key: self._logs[key].turn)
            waiting = [(key, self._logs[key].bytes, self._logs[key].has_ended) for key in keys]
        found: list[_Piece] = []
        left = REQUEST_BYTES
        for key, offset, has_ended in waiting[:PIECES_MAX]:
            piece = self._read(key, offset, min(PIECE_BYTES, left), has_ended=has_ended)
            found.append(piece)
            left -= len(piece.data)
            if left <= 0:
                break
        return found

    def _read(self, key: TaskKey, offset: int, limit: int, *, has_ended: bool) -> _Piece:
        """A beginning that was dropped is skipped: the server leaves the same hole."""
        try:
            descriptor = open_without_waiting(self._tasks / str(key[0]) / str(key[1]) / "log")
        except OSError:  # none was written, or its user keeps it shut
            return _Piece(key, offset, b"", is_last=True, has_ended=has_ended)
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
            data = os.pread(descriptor, limit, start)
            is_last = start + len(data) >= os.fstat(descriptor).st_size
            return _Piece(key, start, data, is_last=is_last, has_ended=has_ended)
        except OSError:  # ENXIO: nothing was written from there on
            return _Piece(key, offset, b"", is_last=True, has_ended=has_ended)
        finally:
            os.close(descriptor)

    def _note(self, pieces: list[_Piece], sizes: dict[TaskKey, int | None]) -> None:
        is_news = False
        with self._changed:
            self._turn += 1
            for piece in pieces:
                known = self._logs.get(piece.key)
                if known is None:
                    continue
                known.turn = self._turn
                size = sizes.get(piece.key, piece.offset)
                known.bytes = piece.offset if size is None else size
                is_all = piece.is_last and known.bytes >= piece.offset + len(piece.data)
                known.is_done = size is None or (piece.has_ended and is_all)
                is_news = is_news or known.is_done
        if is_news:
            self._wake()
