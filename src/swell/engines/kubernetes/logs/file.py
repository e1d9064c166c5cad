"""What of a pod's log is on disk, for certain?

A mark beside the log says how far it goes and how to go on from there. Bytes are written first, the mark after them,
so whoever was killed in between left bytes that no mark vouches for: they are cut off and read again. The mark is
written in place, with one short write that a kill cannot tear; after a power cut its checksum tells, and what cannot
be trusted is read again from the cluster.

One file holds the logs of all pods that were the same task of the same attempt, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from swell.engines.kubernetes.logs.lines import NANO, Had, LogPart
from swell.machine.log_limit import DROP_STEP, LOG_BYTES_MAX, drop_beginning
from swell.model.logindex import ENTRY, pack_entry

NOTHING = Had()
UNTIL_S = 0.999999  # an index entry stands for its whole second: who asks from its middle on gets a little more


@dataclass(frozen=True, slots=True)
class LogMark:
    uid: str  #: of the pod whose log is being written
    began: int  #: the offset of its first byte
    offset: int  #: of the byte after the last one that is had
    restarts: int = 0  #: of its container, when that was read
    had: Had = NOTHING
    is_complete: bool = False
    past: tuple[str, ...] = ()  #: pods before it, of which nothing more is read

    def render(self) -> bytes:
        text = json.dumps(asdict(self), separators=(",", ":")).encode()
        return b"%08x %s\n" % (zlib.crc32(text), text)

    @classmethod
    def parse(cls, data: bytes) -> LogMark | None:
        """None: this is none, or only half of one."""
        checksum, _, text = data.partition(b"\n")[0].partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text) or not text:
            return None
        fields = json.loads(text)
        return cls(**{**fields, "had": Had.parse(fields["had"]), "past": tuple(fields["past"])})


def read_mark(folder: Path) -> LogMark | None:
    try:
        return LogMark.parse((folder / "mark").read_bytes())
    except FileNotFoundError:
        return None


def is_kept(folder: Path, uid: str) -> bool:
    """Is everything of that pod's log here, or as much as there will ever be?"""
    mark = read_mark(folder)
    return mark is not None and (uid in mark.past or (mark.uid == uid and mark.is_complete))


class LogFile:
    """One task's log, written by one thread."""

    def __init__(self, folder: Path, uid: str, *, bytes_max: int = LOG_BYTES_MAX, step: int = DROP_STEP) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "log"
        self._limit = {"bytes_max": bytes_max, "step": step}
        self._dropped = 0
        with contextlib.ExitStack() as files:
            self._log, self._index, self._marks = (
                _open(files, folder / name, extra)
                for name, extra in (("log", os.O_APPEND), ("index", os.O_APPEND), ("mark", 0))
            )
            self._resume(read_mark(folder), uid)
            self._files = files.pop_all()

    def close(self) -> None:
        self._files.close()

    @property
    def had(self) -> Had:
        return self._mark.had

    @property
    def restarts(self) -> int:
        return self._mark.restarts

    def append(self, parts: Iterable[LogPart], had: Had) -> None:
        data = b"".join(part.data for part in parts)
        self._write_index(parts)
        _write(self._log, data)
        self._note(replace(self._mark, offset=self._mark.offset + len(data), had=had))
        with contextlib.suppress(OSError):  # some file systems know no holes: it is kept whole
            self._dropped = drop_beginning(self._path, self._mark.offset, self._dropped, **self._limit)

    def restarted(self, count: int) -> None:
        """What follows is of the container's next life."""
        self._note(replace(self._mark, restarts=count, had=self._mark.had.reborn()))

    def completed(self) -> None:
        self._note(replace(self._mark, is_complete=True))

    # -- going on --------------------------------------------------------------------------------------------------

    def _resume(self, mark: LogMark | None, uid: str) -> None:
        size = os.fstat(self._log).st_size
        if mark is None:
            mark = LogMark(uid, began=0, offset=0)
        elif mark.offset > size:  # a power cut took bytes that the mark knows of: this pod's are read again
            start = min(mark.began, size)
            mark = LogMark(mark.uid, began=start, offset=start, past=mark.past)
        os.truncate(self._log, mark.offset)
        self._indexed_s = self._cut_index(mark.offset)
        if mark.uid != uid:
            mark = self._succeed(mark, uid)
        self._note(mark)

    def _succeed(self, mark: LogMark, uid: str) -> LogMark:
        """Another pod of the same task; no line is of two pods."""
        offset = mark.offset
        if offset and os.pread(self._log, 1, offset - 1) != b"\n":
            _write(self._log, b"\n")
            offset += 1
        return LogMark(uid, began=offset, offset=offset, past=(*mark.past, mark.uid))

    def _note(self, mark: LogMark) -> None:
        os.pwrite(self._marks, mark.render(), 0)
        self._mark = mark

    # -- when what was written -------------------------------------------------------------------------------------

    def _write_index(self, parts: Iterable[LogPart]) -> None:
        entries, offset = b"", self._mark.offset
        for part in parts:
            second = part.at // NANO
            if second > self._indexed_s:
                entries += pack_entry(offset, second + UNTIL_S)
                self._indexed_s = second
            offset += len(part.data)
        if entries:
            _write(self._index, entries)

    def _cut_index(self, offset: int) -> int:
        """Without what stands for bytes beyond the offset; the last second in it."""
        data = os.pread(self._index, os.fstat(self._index).st_size, 0)
        whole = data[: len(data) // ENTRY.size * ENTRY.size]
        kept = [(start, at) for start, at in ENTRY.iter_unpack(whole) if start < offset]
        os.truncate(self._index, len(kept) * ENTRY.size)
        return int(kept[-1][1]) if kept else -1


def _open(files: contextlib.ExitStack, path: Path, extra: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | extra, 0o600)
    files.callback(os.close, descriptor)
    return descriptor


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
