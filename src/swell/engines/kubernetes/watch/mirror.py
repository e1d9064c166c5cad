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

An object that `read` cannot make sense of is no fault of the watch: it is left out, with its reason, until it changes
(`unreadable.py`). One that could be read before stays as it was then, because what it holds, it still holds.

Versions are compared as numbers, which they are wherever etcd is the store; others are only compared for being equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from swell.engines.kubernetes.client.documents import Document, parse_json
from swell.engines.kubernetes.watch.unreadable import Unreadable, describe

T = TypeVar("T")
V = TypeVar("V")
Key = tuple[str, str]  # namespace (empty for what is in none) and name


class Relist(Exception):
    """What the watch said cannot be used; a fresh list can."""


@dataclass(frozen=True, slots=True)
class WatchChange(Generic[T]):
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
    marks: dict[Key, _Mark]  #: also of those that cannot be read
    unreadable: dict[Key, Unreadable]


class Mirror(Generic[T]):
    """A copy of one resource. `read` makes of a document what is kept of it; the rest costs no memory."""

    def __init__(self, read: Callable[[Document], T]) -> None:
        self._read = read
        self._values: dict[Key, T] = {}
        self._marks: dict[Key, _Mark] = {}
        #: Never changes again: a change makes another.
        self.unreadable: Mapping[Key, Unreadable] = MappingProxyType({})
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
        listing: Listing[T] = Listing(version, {}, {}, {})
        may_trust_marks = not self.is_ahead_of(version)  # a restored etcd counts from an old number on
        for document in (item for page in pages for item in page):
            key, mark = _identify(document)
            value, unreadable = self._kept_or_read(key, mark, document, may_trust_marks)
            listing.marks[key] = mark
            if value is not None:
                listing.values[key] = value
            if unreadable is not None:
                listing.unreadable[key] = unreadable
        return listing

    def replace(self, listing: Listing[T]) -> tuple[WatchChange[T], ...]:
        before = self._values
        keys = before.keys() | listing.values.keys()
        pairs = ((key, before.get(key), listing.values.get(key)) for key in sorted(keys))
        changes = tuple(WatchChange(key, old, new) for key, old, new in pairs if old is not new)
        self._values, self._marks, self._snapshot = listing.values, listing.marks, None
        if dict(self.unreadable) != listing.unreadable:
            self.unreadable = MappingProxyType(listing.unreadable)
        self.version, self.needs_list = listing.version, False
        return changes

    def _kept_or_read(
        self, key: Key, mark: _Mark, document: Document, may_trust_marks: bool
    ) -> tuple[T | None, Unreadable | None]:
        held, is_known = self._values.get(key), self._marks.get(key) == mark
        if is_known and may_trust_marks:
            return held, self.unreadable.get(key)
        value, unreadable = self._read_one(key, mark, document)
        return (held if is_known and held == value else value), unreadable

    def _read_one(self, key: Key, mark: _Mark, document: Document) -> tuple[T | None, Unreadable | None]:
        """What is kept of it, and why it could not be read; of one that could be before, what was read then."""
        try:
            return self._read(document), None
        except Exception as error:  # noqa: BLE001  whatever is wrong with one object is wrong with that one only
            before = self._marks.get(key)
            is_same = before is not None and before.uid == mark.uid
            return (self._values.get(key) if is_same else None), describe(document, error)

    # -- watches ---------------------------------------------------------------------------------------------------

    def apply(self, line: bytes) -> WatchChange[T] | None:
        """One whole line of a watch. None: nothing changed."""
        try:
            return self._apply(*parse_event(line))
        except Relist:
            self.needs_list = True
            raise

    def _apply(self, kind: str, document: Document) -> WatchChange[T] | None:
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
        after, unreadable = (None, None) if kind == "DELETED" else self._read_one(key, mark, document)
        before = self._values.get(key)
        self._keep(key, None if kind == "DELETED" else mark, after, unreadable)
        self.version = version
        return None if before is after else WatchChange(key, before, after)

    def _is_known(self, kind: str, key: Key, mark: _Mark) -> bool:
        return key not in self._marks if kind == "DELETED" else self._marks.get(key) == mark

    def _keep(self, key: Key, mark: _Mark | None, value: T | None, unreadable: Unreadable | None) -> None:
        """`mark` None: it is gone."""
        self._snapshot = None
        _put(self._marks, key, mark)
        _put(self._values, key, value)
        if unreadable != self.unreadable.get(key):
            known = dict(self.unreadable)
            _put(known, key, unreadable)
            self.unreadable = MappingProxyType(known)


def _put(table: dict[Key, V], key: Key, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def parse_event(line: bytes) -> tuple[str, Document]:
    try:
        event = parse_json(line)
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
