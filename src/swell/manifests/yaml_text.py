"""Which documents does a YAML text hold, and on which line is each field?

One pass over the text's events builds the values and counts them: aliases make a page of text mean a billion values
("billion laughs"), by nesting or by merging, so what is counted is what the text means when every alias is written out.

Values are text, true/false, null, lists and mappings; nothing else, and no key twice. A number stays the text it was
written as: `[python, --version=, 3.10]` must not become 3.1, nor 010 become 8, and `no` is a word. Whoever wants a
number parses the text. Of a document for a cluster a plain number is a number, as kubectl reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from swell.errors import Rejected, TooLarge

MANIFEST_BYTES_MAX = 1024 * 1024  # Kubernetes stops at 1.5 MB; a job file is a page of text
VALUES_MAX = 20_000  # building that many takes a fifth of a second, in which the server answers nobody else
DEPTH_MAX = 50
PATH_MAX = 300  # characters of a field's path whose line is kept; a key may be as long as the text
EXACT_MAX = 2**53  # beyond it a float is no whole number's exact value

TAG = "tag:yaml.org,2002:"
TEXT_TAGS = frozenset(TAG + name for name in ("str", "int", "float", "bool", "null"))
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
NULL = re.compile(r"~|null|Null|NULL|")
INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
OCTAL = re.compile(r"[-+]?0o?[0-7]{1,20}")
HEX = re.compile(r"[-+]?0x[0-9a-fA-F]{1,16}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,20}|[0-9]{1,20}(?:\.[0-9]{0,20})?)(?:[eE][-+]?[0-9]{1,3})?")
MERGE = "<<"

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_END = object()


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One document of a text."""

    value: Any
    lines: Mapping[str, int]  #: path of a field, as in `spec.containers[0].env` → its line, counted from 1
    values: int  #: how many it stands for when its aliases are written out


def parse_documents(text: str, has_numbers: Callable[[str], bool]) -> list[TextDocument]:
    """Those that hold anything. `has_numbers`: by a document's apiVersion, whether its plain numbers become numbers."""
    _refuse_size(text)
    try:
        builder = _Builder()
        found = [builder.build(events, has_numbers(_api_version(events))) for events in _split(text)]
    except yaml.YAMLError as error:
        raise _malformed(getattr(error, "problem_mark", None), _problem(error)) from None
    return [document for document in found if document.value is not None]


def _refuse_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Rejected("the manifest is not valid Unicode text; save it as UTF-8") from None
    if size > MANIFEST_BYTES_MAX:
        raise TooLarge(f"the manifest has {size} bytes; at most {MANIFEST_BYTES_MAX} are read: split it")


def _problem(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or " ".join(str(error).split())


def _malformed(mark: Any, problem: str) -> Rejected:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return Rejected(f"the manifest is not valid YAML: {where}{problem}")


def _split(text: str) -> Iterator[list[Any]]:
    """The events of each document, without its start and end."""
    events: list[Any] = []
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.DocumentStartEvent):
            events = []
        elif isinstance(event, yaml.DocumentEndEvent):
            yield events
        elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                raise Rejected(f"the manifest is nested deeper than {DEPTH_MAX} levels; a job needs five")
            events.append(event)
            if len(events) > 2 * VALUES_MAX:
                raise _too_many()


def _too_many() -> Rejected:
    return Rejected(
        f"the manifest stands for more than {VALUES_MAX} values when its YAML aliases are written out; "
        "a job needs a few dozen: leave aliases out, or split it"
    )


def _api_version(events: list[Any]) -> str:
    """What the document calls itself, as far as it can be told before it is built."""
    depth, is_key, was_asked = 0, True, False
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        if depth == 1 and isinstance(event, yaml.ScalarEvent) and was_asked:
            return str(event.value)
        if depth == 1:
            was_asked = is_key and isinstance(event, yaml.ScalarEvent) and event.value == "apiVersion"
            is_key = not is_key
        depth += isinstance(event, yaml.CollectionStartEvent)
    return ""


# -- values --------------------------------------------------------------------------------------------------


def _scalar(event: Any, has_numbers: bool) -> Any:
    tag = event.tag
    if tag is None or tag == "!":
        return _plain(event.value, has_numbers) if event.implicit[0] else event.value
    if tag not in TEXT_TAGS:
        raise _bad_tag(event)
    if tag == f"{TAG}null":
        return None
    if tag == f"{TAG}bool":
        return _plain(event.value, False) if BOOL.fullmatch(event.value) else event.value
    return event.value if tag == f"{TAG}str" or not has_numbers else _number(event.value)


def _plain(text: str, has_numbers: bool) -> Any:
    if BOOL.fullmatch(text):
        return text.lower() == "true"
    if NULL.fullmatch(text):
        return None
    return _number(text) if has_numbers else text


def _number(text: str) -> int | float | str:
    """`defaultMode: 0644` is octal. What is too large stays text; the API server says what it thinks of it."""
    if INT.fullmatch(text):
        return int(text)
    if OCTAL.fullmatch(text):
        return int(text.replace("o", ""), 8)
    if HEX.fullmatch(text):
        return int(text, 16)
    number = float(text) if FLOAT.fullmatch(text) else math.inf
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and abs(number) <= EXACT_MAX else number


def _bad_tag(event: Any) -> Rejected:
    line = event.start_mark.line + 1
    return Rejected(f"line {line}: the YAML tag {event.tag!r} is not understood here; write plain values without it")


# -- building ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: Any
    path: str
    anchor: str | None
    before: int  #: how many values came before it
    key: Any = _END  #: of a mapping: the key whose value comes next; _END: a key comes next
    seen: set[str] = field(default_factory=set)  #: keys, as they are written
    merges: list[Any] = field(default_factory=list)  #: what `<<` stands for, in order
    is_merge: bool = False  #: the key that was read last is `<<`
    mark: Any = None  #: where it begins


class _Builder:
    def __init__(self) -> None:
        self._count = 0  # of all documents of the text together
        self._sizes: dict[str, int] = {}
        self._anchors: dict[str, Any] = {}
        self._open: list[_Open] = []
        self._lines: dict[str, int] = {}
        self._has_numbers = False
        self._root: Any = None

    def build(self, events: list[Any], has_numbers: bool) -> TextDocument:
        self._sizes, self._anchors, self._open, self._lines = {}, {}, [], {}
        self._has_numbers, self._root = has_numbers, None
        before = self._count
        for event in events:
            self._take(event)
            if self._count > VALUES_MAX:
                raise _too_many()
        return TextDocument(self._root, self._lines, self._count - before)

    def _take(self, event: Any) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._take_alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._count += 1
            self._take_scalar(event)
        else:
            self._begin(event)

    def _take_alias(self, event: Any) -> None:
        if any(one.anchor == event.anchor for one in self._open):
            raise Rejected(
                f"line {event.start_mark.line + 1}: the YAML alias *{event.anchor} stands for something it is part of; "
                "write it out"
            )
        if event.anchor not in self._anchors:
            raise _malformed(event.start_mark, "found undefined alias")
        self._count += self._sizes[event.anchor]
        self._put(self._anchors[event.anchor], event, is_plain=False)

    def _take_scalar(self, event: Any) -> None:
        value = _scalar(event, self._has_numbers)
        if event.anchor is not None:
            self._anchors[event.anchor], self._sizes[event.anchor] = value, 1
        self._put(value, event, is_plain=event.tag is None and event.implicit[0])

    def _begin(self, event: Any) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{TAG}{'map' if is_mapping else 'seq'}"):
            raise _bad_tag(event)
        self._refuse_key(event)
        path = self._mark(event)
        self._sizes.pop(event.anchor, None)
        self._open.append(_Open({} if is_mapping else [], path, event.anchor, self._count, mark=event.start_mark))
        self._count += 1

    def _close(self) -> None:
        done = self._open.pop()
        for merged in reversed(done.merges):
            for key, value in merged.items():
                done.value.setdefault(key, value)
        if done.anchor is not None:
            self._anchors[done.anchor], self._sizes[done.anchor] = done.value, self._count - done.before
        self._place(done.value, done.mark)

    def _put(self, value: Any, event: Any, *, is_plain: bool) -> None:
        """A value that is complete: a key, or what belongs to one."""
        parent = self._open[-1] if self._open else None
        if parent is None or isinstance(parent.value, list) or parent.key is not _END:
            self._mark(event)
            self._place(value, event.start_mark)
            return
        if isinstance(value, dict | list):
            raise _malformed(event.start_mark, "found unhashable key")
        written = event.value if isinstance(event, yaml.ScalarEvent) else str(value)
        is_merge = is_plain and written == MERGE
        if written in parent.seen and not is_merge:
            line = event.start_mark.line + 1
            raise Rejected(f"line {line}: the field {written!r} is given twice; keep one")
        parent.seen.add(written)
        parent.key, parent.is_merge = value, is_merge
        if not is_merge:
            self._note(_under(parent.path, value), event)

    def _place(self, value: Any, mark: Any) -> None:
        if not self._open:
            self._root = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list):
            parent.value.append(value)
            return
        if parent.is_merge:
            parent.merges += _mappings(value, mark)
        else:
            parent.value[parent.key] = value
        parent.key, parent.is_merge = _END, False

    def _refuse_key(self, event: Any) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is _END:
            raise _malformed(event.start_mark, "found unhashable key")

    def _mark(self, event: Any) -> str:
        """The path of the value that begins here."""
        if not self._open:
            return ""
        parent = self._open[-1]
        if isinstance(parent.value, list):
            path = f"{parent.path}[{len(parent.value)}]"
            self._note(path, event)
            return path
        return _under(parent.path, parent.key)

    def _note(self, path: str, event: Any) -> None:
        if len(path) <= PATH_MAX:
            self._lines.setdefault(path, event.start_mark.line + 1)


def _mappings(value: Any, mark: Any) -> list[Any]:
    """What `<<` may stand for."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        kind = "sequence" if isinstance(value, list) else "scalar"
        raise _malformed(mark, f"expected a mapping or list of mappings for merging, but found {kind}")
    return found


def _under(path: str, key: Any) -> str:
    """Cut where nobody would look it up any more, so that a long key costs its own length once."""
    return (f"{path}.{str(key)[: PATH_MAX + 1]}" if path else str(key)[: PATH_MAX + 1])[: PATH_MAX + 1]
