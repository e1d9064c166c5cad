"""What does a stream of a pod's log hold that we do not have yet?

Pure: bytes go in as they come, lines without their timestamps come out. A stream that breaks is asked for again from a
moment that is exact to a second only (`sinceTime`), so its beginning repeats what is had. The kubelet reads one file
from its start and leaves out what is older than that moment; so what repeats is **as many lines as we had since then,
in the same order**, and they are counted, not searched for. Timestamps alone would not do: several lines may share
one, and stdout and stderr are stamped before they are put in order. They tell when counting is wrong: a line newer
than all that is had is new, whatever the count says: the file was rotated. A container that begins anew has a new file,
in which nothing repeats.

A long line comes as one, with the timestamp of its beginning, however many hours it takes (a progress bar). Of one that
had no end yet the bytes are counted.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from dataclasses import dataclass
from typing import Any

NANO = 1_000_000_000
SLACK_S = 1  # lines of stdout and stderr may be out of order by less than that, across a second's border too
STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
STAMP_BYTES_MAX = 36  # with nine digits, an offset and the space after it


@dataclass(frozen=True, slots=True)
class Had:
    """Enough of what is had to find its end in another stream."""

    newest: int | None = None  #: the latest timestamp, in nanoseconds; None: nothing is had
    lines: tuple[tuple[int, int], ...] = ()  #: whole ones, by second: of the newest second and the one before
    open_at: int | None = None  #: when a last line without an end began; None: the last one is whole
    open_bytes: int = 0  #: how much of it is had
    floor: int = 0  #: nothing up to this timestamp is of the container's present life; none of `lines` is older

    @property
    def since(self) -> str | None:
        """From when on to ask; None: from the beginning."""
        if self.newest is None:
            return None
        moment = datetime.datetime.fromtimestamp(self.newest // NANO - SLACK_S, datetime.UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"

    def reborn(self) -> Had:
        """The container begins anew: what is had will not repeat."""
        return dataclasses.replace(self, lines=(), floor=self.newest or 0)

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Had:
        lines = tuple((second, count) for second, count in document["lines"])
        return cls(**{**document, "lines": lines})


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes of one line, to be kept; `at` is when the line began."""

    at: int
    data: bytes


class _Tally:
    """Counts what is had. Changed in place: a new value for each line would cost more than all the rest."""

    def __init__(self, had: Had) -> None:
        self._newest = had.newest
        self._lines = dict(had.lines)
        self._open_at = had.open_at
        self._open_bytes = had.open_bytes
        self._floor = had.floor

    @property
    def had(self) -> Had:
        lines = tuple(sorted(self._lines.items()))
        return Had(self._newest, lines, self._open_at, self._open_bytes, self._floor)

    def add(self, at: int, count: int) -> None:
        """Bytes of the last line, which began then."""
        if self._newest is None or at > self._newest:
            self._newest = at
            if at // NANO not in self._lines:
                oldest = at // NANO - SLACK_S
                self._lines = {second: lines for second, lines in self._lines.items() if second >= oldest}
        self._open_at = at
        self._open_bytes += count

    def end(self) -> None:
        """The last line is whole."""
        assert self._open_at is not None
        assert self._newest is not None
        second = self._open_at // NANO
        if second >= self._newest // NANO - SLACK_S and self._open_at > self._floor:
            self._lines[second] = self._lines.get(second, 0) + 1
        self._open_at, self._open_bytes = None, 0


class LineReader:
    """Of one stream. `had` is what is had once everything that `feed` returned is kept."""

    def __init__(self, had: Had) -> None:
        self._tally = _Tally(had)
        self._newest_before = had.newest
        self._floor = had.floor
        self._repeated = sum(count for _, count in had.lines)  #: lines still to come that are had
        self._open = had.open_bytes  #: of the line after those; 0 once it has come
        self._skip = 0  #: bytes of the line being read that are had
        self._at: int | None = None  #: when the line being read began; None: it is not to be kept
        self._is_within = False  #: a line has begun and not ended
        self._rest = b""  #: the beginning of a timestamp
        self._second = (b"", 0)  #: the last one read, and what it means: most lines are of the same

    @property
    def had(self) -> Had:
        return self._tally.had

    def feed(self, piece: bytes) -> list[LogPart]:
        parts: list[LogPart] = []
        data = self._rest + piece
        position = 0
        while position < len(data):
            if not self._is_within:
                after = self._begin(data, position, parts)
                if after is None:
                    break
                position = after
            end = data.find(b"\n", position) + 1
            stop = end or len(data)
            self._take(data[position:stop], bool(end), parts)
            position = stop
        self._rest = data[position:]
        return parts

    def _begin(self, data: bytes, position: int, parts: list[LogPart]) -> int | None:
        """Where the line's own bytes begin; None: more is needed to tell."""
        found = STAMP.match(data, position)
        if found is not None:
            self._is_within = True
            self._at = self._new_at(self._moment(found), parts)
            return found.end()
        if len(data) - position < STAMP_BYTES_MAX and b"\n" not in data[position:]:
            return None
        # The end of a line that began before the moment that was asked for, which is had; or the kubelet's own words.
        self._is_within = True
        self._at = None
        return position

    def _new_at(self, at: int, parts: list[LogPart]) -> int | None:
        """None: this line is had."""
        if at <= self._floor:
            return None
        is_newer = self._newest_before is None or at > self._newest_before
        if is_newer:
            self._repeated = 0
        if self._repeated:
            self._repeated -= 1
            return None
        if self._open and is_newer:  # the rest of it never came, or is lost: no line of two
            self._tally.end()
            parts.append(LogPart(at, b"\n"))
        elif self._open:
            self._skip = self._open
        self._open = 0
        return at

    def _take(self, data: bytes, is_whole: bool, parts: list[LogPart]) -> None:
        self._is_within = not is_whole
        if self._at is None:
            return
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        if is_whole and skipped == len(data):  # it was longer before: what the kubelet said in between is in it
            data, skipped = b"\n", 0
        if skipped < len(data):
            parts.append(LogPart(self._at, data[skipped:]))
            self._tally.add(self._at, len(data) - skipped)
        if is_whole:
            self._tally.end()
            self._skip = 0

    def _moment(self, found: re.Match[bytes]) -> int:
        text, fraction, zone = found.groups()
        if self._second[0] != text + zone:
            moment = datetime.datetime.fromisoformat((text + zone).decode())
            self._second = text + zone, int(moment.timestamp())
        return self._second[1] * NANO + int((fraction or b"").ljust(9, b"0"))
