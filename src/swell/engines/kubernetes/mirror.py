"""What does the cluster hold, given one list and what followed?

Pure: pages and lines go in, state and changes come out. The rule that keeps it true: **the version only moves with a
whole event, and whatever is not understood asks for a new list.** So a gap, a repetition, a reordering or a torn line
ends in the state that a fresh list gives:

    torn line at the end     thrown away; the watch resumes from the last whole event, and the line comes again
    repeated last event      nothing changes
    older event              a list: it is a repetition, or the server has lost its memory
    line without a meaning   a list: what it said cannot be known
    410, other ERROR         a list
    no line at all           a list, after a while (`reflector.py`)

Versions are compared as numbers, which they are wherever etcd is the store; others are only compared for being equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic_core import from_json

T = TypeVar("T")
Document = dict[str, Any]
Key = tuple[str, str]  # namespace (empty for what is in none) and name


class Relist(Exception):
    """What the watch said cannot be used; a fresh list can."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    key: Key
    before: T | None  #: None: it was not there
    after: T | None  #: None: it is gone


@dataclass(frozen=True, slots=True)
class _Mark:
    """Which state of which object: names are used again, uids are not."""

    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list, not yet in force."""

    version: str
    values: dict[Key, T]
    marks: dict[Key, _Mark]


class Mirror(Generic[T]):
    """A copy of one resource. `read` makes of a document what is kept of it; the rest costs no memory."""

    def __init__(self, read: Callable[[Document], T]) -> None:
        self._read = read
        self._values: dict[Key, T] = {}
        self._marks: dict[Key, _Mark] = {}
        self._snapshot: Mapping[Key, T] | None = MappingProxyType({})
        self.version = ""  #: state up to here is known; empty: nothing is
        self.needs_list = True

    def snapshot(self) -> Mapping[Key, T]:
        """Never changes again; what has not changed is the same object in the next one."""
        if self._snapshot is None:
            self._snapshot = MappingProxyType(self._values.copy())
        return self._snapshot

    # -- lists -----------------------------------------------------------------------------------------------------

    def is_ahead_of(self, version: str) -> bool:
        return is_older(version, self.version)

    def gather(self, version: str, pages: Iterable[Iterable[Document]]) -> Listing[T]:
        """What is known already is kept as it is, by uid and version; after a step back in time, by value."""
        values: dict[Key, T] = {}
        marks: dict[Key, _Mark] = {}
        may_trust_marks = not self.is_ahead_of(version)  # a restored etcd counts from an old number on
        for document in (item for page in pages for item in page):
            key, mark = _identify(document)
            values[key] = self._kept_or_read(key, mark, document, may_trust_marks)
            marks[key] = mark
        return Listing(version, values, marks)

    def replace(self, listing: Listing[T]) -> tuple[Change[T], ...]:
        before = self._values
        keys = before.keys() | listing.values.keys()
        pairs = ((key, before.get(key), listing.values.get(key)) for key in sorted(keys))
        changes = tuple(Change(key, old, new) for key, old, new in pairs if old is not new)
        self._values, self._marks, self._snapshot = listing.values, listing.marks, None
        self.version, self.needs_list = listing.version, False
        return changes

    def _kept_or_read(self, key: Key, mark: _Mark, document: Document, may_trust_marks: bool) -> T:
        held = self._values.get(key)
        if held is not None and may_trust_marks and self._marks[key] == mark:
            return held
        value = self._read(document)
        return held if held is not None and held == value and self._marks[key] == mark else value

    # -- watches ---------------------------------------------------------------------------------------------------

    def apply(self, line: bytes) -> Change[T] | None:
        """One whole line of a watch. None: nothing changed."""
        try:
            return self._apply(*parse_event(line))
        except Relist:
            self.needs_list = True
            raise

    def _apply(self, kind: str, document: Document) -> Change[T] | None:
        version = _version(document)
        if is_older(version, self.version):
            raise Relist(f"an event of version {version} came after {self.version}")
        if kind == "BOOKMARK":
            self.version = version
            return None
        key, mark = _identify(document)
        if version == self.version and not self._is_known(kind, key, mark):
            raise Relist(f"two events have the version {version}")
        if self._is_known(kind, key, mark):
            self.version = version
            return None
        # Read first: where that fails, nothing has moved.
        after = None if kind == "DELETED" else self._read(document)
        before = self._values.get(key)
        self._keep(key, mark, after)
        self.version = version
        return Change(key, before, after)

    def _is_known(self, kind: str, key: Key, mark: _Mark) -> bool:
        return key not in self._marks if kind == "DELETED" else self._marks.get(key) == mark

    def _keep(self, key: Key, mark: _Mark, value: T | None) -> None:
        self._snapshot = None
        if value is None:
            del self._values[key], self._marks[key]
        else:
            self._values[key], self._marks[key] = value, mark


def parse_event(line: bytes) -> tuple[str, Document]:
    try:
        event = from_json(line)  # half the time of json.loads, and there are many of these
        kind, document = event["type"], event["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise Relist(f"a line of the watch is no event: {line[:200]!r}") from error
    if kind == "ERROR":
        raise Relist(f"the watch ended with: {document.get('message') if isinstance(document, dict) else document}")
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not isinstance(document, dict):
        raise Relist(f"an event of an unknown type: {line[:200]!r}")
    return kind, document


def is_older(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _version(document: Document) -> str:
    try:
        return str(document["metadata"]["resourceVersion"])
    except (KeyError, TypeError) as error:
        raise Relist("an object came without a resourceVersion") from error


def _identify(document: Document) -> tuple[Key, _Mark]:
    version = _version(document)
    metadata = document["metadata"]
    try:
        return (metadata.get("namespace", ""), metadata["name"]), _Mark(metadata["uid"], version)
    except (KeyError, TypeError, AttributeError) as error:
        raise Relist("an object came without a name or uid") from error
