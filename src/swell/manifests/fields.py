"""Is every field known, and of the right kind? Errors say which field, what was found and what to write."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from swell.errors import Rejected
from swell.model.quantity import BadQuantity

T = TypeVar("T")


def take_mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{where} must be a mapping of names to values, but is {describe(value)}")
    for key in value:
        if not isinstance(key, str):
            raise Rejected(f"{where} has the field {key!r}, which is no text; quote it")
    return value


def refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for name in found:
        if name not in known:
            raise Rejected(f"{where} has no field {name!r}{did_you_mean(name, known)}")


def did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    listed = ", ".join(sorted(known))
    return f"; did you mean {close[0]!r}? (known: {listed})" if close else f"; known: {listed}"


def quantity(parse: Callable[[object], T], value: object, where: str) -> T:
    """Parse one value; a bool is never a number here, although Python thinks so."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Rejected(f"{where} must be a number or text, but is {describe(value)}")
    try:
        return parse(value)
    except BadQuantity as problem:
        raise Rejected(f"{where}: {problem}") from None


def whole_number(value: object, where: str, *, low: int, high: int) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None:
        raise Rejected(f"{where} must be a whole number from {low} to {high}, but is {describe(value)}")
    number = int(text)
    if not low <= number <= high:
        raise Rejected(f"{where} is {number}; it must be from {low} to {high}")
    return number


def system_bytes(text: str, where: str) -> bytes:
    """As the kernel will get it. Bytes that are no UTF-8 came as lone surrogates and go back to what they were."""
    if "\0" in text:
        raise Rejected(f"{where} holds a null character, which no program can be given")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Rejected(f"{where} is not valid Unicode text: {describe(text)}; write it as UTF-8") from None


def describe(value: object) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", type(None): "empty"}
    kind = kinds.get(type(value), "a number")
    if isinstance(value, dict | type(None)):
        return kind
    shown = reprlib.repr(value)  # cut while it is made: a nested value may stand for millions
    return f"{kind}: {shown[:60]}{'…' if len(shown) > 60 else ''}"
