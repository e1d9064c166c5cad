"""Can a value that others have sent be what its type says?

The codec builds values by the types of their fields and believes what it is given. What crosses the wire is checked
here afterwards: numbers are numbers, not negative, and none that only looks like one; names are whole characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

NUMBER_MAX = 1 << 53  # what JSON readers everywhere keep exactly
SIGNED = frozenset({"exit_code"})  # fields that may be negative
QUOTES = frozenset({"problem", "trouble"})  # may quote a path whose bytes are no UTF-8; the store escapes those

Check = Callable[[Any, str], None]


def check(value: Any) -> None:
    """Raises `ValueError` where a field is not what its type says. `value`: a dataclass."""
    kind: Any = type(value)
    _checker(kind)(value, "")


@cache
def _checker(kind: Any) -> Check:
    origin = get_origin(kind)
    if origin is Annotated:
        return _checker(get_args(kind)[0])
    if origin in (Union, UnionType):
        return _optional(kind)
    if origin is tuple:
        return _sequence(get_args(kind))
    return _fields(kind) if is_dataclass(kind) else PLAIN.get(kind) or _instance(kind)


def _refuse(name: str, value: Any, what: str) -> None:
    raise ValueError(f"{name} is {str(value)[:100]!r}; it must be {what}")


def _whole(value: Any, name: str) -> None:
    low = -NUMBER_MAX if name in SIGNED else 0
    if type(value) is not int or not low <= value <= NUMBER_MAX:
        _refuse(name, value, f"a whole number from {low} to {NUMBER_MAX}")


def _number(value: Any, name: str) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= NUMBER_MAX:
        _refuse(name, value, f"a number from 0 to {NUMBER_MAX}")


def _flag(value: Any, name: str) -> None:
    if type(value) is not bool:
        _refuse(name, value, "true or false")


def _text(value: Any, name: str) -> None:
    if type(value) is not str:
        _refuse(name, value, "text")
    value.encode(errors="surrogateescape" if name in QUOTES else "strict")  # `UnicodeEncodeError` is a `ValueError`


PLAIN: dict[Any, Check] = {int: _whole, float: _number, bool: _flag, str: _text}


def _optional(kind: Any) -> Check:
    inner = _checker(next(one for one in get_args(kind) if one is not NoneType))
    return lambda value, name: None if value is None else inner(value, name)


def _sequence(kinds: tuple[Any, ...]) -> Check:
    inner = _checker(kinds[0])  # of pairs, both are of one kind

    def every(value: Any, name: str) -> None:
        if type(value) is not tuple:
            _refuse(name, value, "a list")
        for one in value:
            inner(one, name)

    return every


def _instance(kind: Any) -> Check:
    """The codec makes the members of an enumeration itself."""
    return lambda value, name: None if type(value) is kind else _refuse(name, value, kind.__name__)


def _fields(kind: Any) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    checks = [(one.name, _checker(hints[one.name])) for one in fields(kind)]

    def each(value: Any, name: str) -> None:
        if type(value) is not kind:
            _refuse(name, value, "an object")
        for field, inner in checks:
            inner(getattr(value, field), field)

    return each
