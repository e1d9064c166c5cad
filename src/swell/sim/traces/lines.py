"""How is a text file read so that every complaint names the file and the line?"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swell.errors import Rejected
from swell.model import quantity

FILE_BYTES_MAX = 256 * 1024 * 1024  # a year of a large cluster; more would fill this machine's memory
NUMBER_MAX = 1e15  # above it, seconds lose their fractions


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line of a file; `number` counts from 1."""

    path: Path
    number: int
    text: str

    def refuse(self, problem: str) -> Rejected:
        return Rejected(f"{self.path}:{self.number}: {problem}")

    def words(self) -> list[str]:
        return self.text.split()


def refuse(path: Path, problem: str) -> Rejected:
    """About the file as a whole."""
    return Rejected(f"{path}: {problem}")


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise refuse(path, f"the file is larger than {FILE_BYTES_MAX // 2**20} MiB; cut it")
        return path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte-order mark
    except OSError as error:
        raise refuse(path, f"it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise refuse(path, f"it is no text in UTF-8 (byte {error.start})") from error


def read_lines(path: Path) -> list[TraceLine]:
    return [TraceLine(path, number, text) for number, text in enumerate(read_text(path).splitlines(), 1)]


@dataclass(frozen=True)
class TraceRow:
    """One row of a CSV file, by the names in its first line."""

    line: TraceLine
    values: dict[str, str]

    def text(self, name: str, default: str | None = None) -> str:
        found = (self.values.get(name) or "").strip()
        if found:
            return found
        if default is None:
            raise self.line.refuse(f"the field {name!r} is empty")
        return default

    def number(self, name: str, default: float | None = None, *, low: float = 0.0) -> float:
        found = self.text(name, "" if default is not None else None)
        if not found and default is not None:
            return default
        return parse_number(self.line, name, found, low=low)

    def whole(self, name: str, default: int | None = None, *, low: int = 0) -> int:
        found = self.number(name, None if default is None else float(default), low=low)
        if found != int(found):
            raise self.line.refuse(f"{name} is {found:g}; it must be a whole number")
        return int(found)


def parse_number(line: TraceLine, name: str, text: str, *, low: float = 0.0) -> float:
    try:
        return quantity.parse_number(text, low=low, high=NUMBER_MAX)
    except quantity.BadQuantity as problem:
        raise line.refuse(f"{name}: {problem}") from None


def read_csv(path: Path, required: Sequence[str]) -> Iterator[TraceRow]:
    lines = [line for line in read_lines(path) if line.text.strip() and not line.text.startswith("#")]
    if not lines:
        raise refuse(path, "the file is empty")
    names = [name.strip() for name in _cells(lines[0])]
    missing = [name for name in required if name not in names]
    if missing:
        raise lines[0].refuse(f"there is no column {missing[0]!r}; it has {', '.join(names)}")
    for line in lines[1:]:
        cells = _cells(line)
        if len(cells) != len(names):
            raise line.refuse(f"it has {quantity.number_of(len(cells), 'field')}, the first line has {len(names)}")
        yield TraceRow(line, dict(zip(names, cells, strict=True)))


def _cells(line: TraceLine) -> list[str]:
    try:
        return next(csv.reader([line.text], strict=True))
    except csv.Error as error:
        raise line.refuse(f"it is no row of a CSV file: {error}") from error
