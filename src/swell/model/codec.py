"""How does a value become a document that is stored or sent, and how is it read again?

By the types of its fields, so that a new field needs no translation. A document is what JSON has:

    dataclass                       an object, one member for each field
    enumeration, class with `parse` text
    tuple, list                     a list
    frozenset of plain values       a list, sorted
    `Variables`                     an object: names and values
    `Annotated[X, INLINE]`          the members of X stand among those of its owner

A field that is missing has its default, because an older version did not write it; a field that nobody knows is
refused, because a newer version meant something by it. Values are not checked: whoever reads what others send does
that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Translate = Callable[[Any], Any]


class Form(Enum):
    """How a field is written, where its type does not say it."""

    OBJECT = "object"
    INLINE = "inline"


INLINE = Form.INLINE
Variables = Annotated[tuple[tuple[str, str], ...], Form.OBJECT]  # sorted by name


def to_document(value: Any) -> Any:
    return _translations(type(value))[0](value)


def from_document(kind: type[T], document: Any) -> T:
    """Raises `TypeError`, `ValueError`, `KeyError` or `AttributeError` where the document is none of that kind."""
    found: T = _translations(kind)[1](document)
    return found


def _same(value: Any) -> Any:
    return value


SAME: tuple[Translate, Translate] = (_same, _same)


_known: dict[Any, tuple[Translate, Translate]] = {}


def _translations(kind: Any) -> tuple[Translate, Translate]:
    """How a value of this type is written, and read; worked out once."""
    if kind not in _known:
        _known[kind] = _work_out(kind)
    return _known[kind]


def _work_out(kind: Any) -> tuple[Translate, Translate]:
    origin = get_origin(kind)
    if origin is Annotated:
        return _as_object() if Form.OBJECT in kind.__metadata__ else _translations(get_args(kind)[0])
    if origin in (Union, UnionType):
        return _optional([one for one in get_args(kind) if one is not NoneType])
    if origin in (tuple, list):
        return _sequence(origin, get_args(kind))
    if origin is frozenset:
        return sorted, frozenset
    if origin in (dict, Mapping):
        return _mapping(*get_args(kind))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str, kind
    if hasattr(kind, "parse"):
        return str, kind.parse
    return _dataclass(kind) if is_dataclass(kind) else SAME


def _as_object() -> tuple[Translate, Translate]:
    return dict, lambda document: tuple(sorted(document.items()))


def _optional(kinds: list[Any]) -> tuple[Translate, Translate]:
    """Of several kinds beside None only plain ones: nothing tells which it is."""
    write, read = _translations(kinds[0]) if len(kinds) == 1 else SAME
    if write is _same and read is _same:
        return SAME
    return _unless_none(write), _unless_none(read)


def _unless_none(translate: Translate) -> Translate:
    return lambda value: None if value is None else translate(value)


def _sequence(origin: Any, kinds: tuple[Any, ...]) -> tuple[Translate, Translate]:
    if origin is tuple and kinds[-1] is not Ellipsis:
        parts = [_translations(kind) for kind in kinds]
        return (
            lambda value: [write(one) for (write, _), one in zip(parts, value, strict=True)],
            lambda document: tuple(read(one) for (_, read), one in zip(parts, document, strict=True)),
        )
    write, read = _translations(kinds[0])
    return (
        list if write is _same else lambda value: [write(one) for one in value],
        origin if read is _same else lambda document: origin([read(one) for one in document]),
    )


def _mapping(key: Any, kind: Any) -> tuple[Translate, Translate]:
    """Names of members are text; a number is read back as one."""
    write, read = _translations(kind)
    name: Translate = int if key is int else _same
    return (
        lambda value: {one: write(value[one]) for one in value},
        lambda document: {name(one): read(document[one]) for one in document},
    )


def _dataclass(kind: Any) -> tuple[Translate, Translate]:
    hints = get_type_hints(kind, include_extras=True)
    translations = {one.name: _translations(hints[one.name]) for one in fields(kind) if one.init}
    written = [(name, None if write is _same else write) for name, (write, _) in translations.items()]
    reading = [(name, read) for name, (_, read) in translations.items() if read is not _same]
    inline = {name: _names(hints[name]) for name in translations if _is_inline(hints[name])}

    def to_object(value: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, write in written:
            one = getattr(value, name)
            if write is None:
                document[name] = one
            elif name in inline:
                document |= write(one)
            else:
                document[name] = write(one)
        return document

    def from_object(document: dict[str, Any]) -> Any:
        values = dict(document)
        for name, inner in inline.items():
            values[name] = {one: values.pop(one) for one in inner if one in values}
        for name, read in reading:
            if name in values:
                values[name] = read(values[name])
        return kind(**values)

    return to_object, from_object


def _is_inline(hint: Any) -> bool:
    return get_origin(hint) is Annotated and INLINE in hint.__metadata__


def _names(hint: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(get_args(hint)[0]))
