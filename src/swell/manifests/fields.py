"""Is every field known, and of the right kind? Errors say which field, what was found and what to write."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from swell.errors import Rejected
from swell.model.quantity import BadQuantity

T = TypeVar("T")
TEXT_SHOWN_MAX = 80  # a line of a terminal
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")  # of an object of Kubernetes


@dataclass(frozen=True, slots=True)
class Fields:
    """Every field of one kind of foreign object, by what becomes of it here."""

    used: tuple[str, ...]
    idle: tuple[str, ...] = ()  #: means nothing where processes run on this machine; accepted, whatever it says
    refused: Mapping[str, str] = field(default_factory=dict)  #: → why, and what to do; left empty it is fine
    refused_on_cluster: Mapping[str, str] = field(default_factory=dict)  #: the same, where Kubernetes runs it

    def check(self, found: Mapping[str, object], where: str, *, on_cluster: bool = False) -> None:
        """On a cluster a field that is not known here may be a newer one: its API server knows, and is asked."""
        refused = self.refused_on_cluster if on_cluster else self.refused
        for name, value in found.items():
            if name in refused and not (value is None or value == [] or value == {}):
                raise Rejected(f"{where}.{name} {refused[name]}")
            if not on_cluster and name not in (*self.used, *self.idle, *self.refused):
                known = (*self.used, *self.idle, *self.refused)
                close = difflib.get_close_matches(shorten(name), known, n=1, cutoff=0.6)
                hint = f"did you mean {close[0]!r}? (used here" if close else "(used here"
                raise Rejected(f"{where} has no field {shorten(name)!r}; {hint}: {', '.join(self.used) or 'none'})")


def take_mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Rejected(f"{where} must be a mapping of names to values, but is {describe(value)}")
    for key in value:
        if not isinstance(key, str):
            raise Rejected(f"{where} has the field {key!r}, which is no text; quote it")
    return value


def take_optional(value: object, where: str) -> dict[str, Any]:
    return {} if value is None else take_mapping(value, where)


def take_list(value: object, where: str) -> list[Any]:
    """Left empty it is a list of nothing."""
    if value is not None and not isinstance(value, list):
        raise Rejected(f"{where} must be a list, but is {describe(value)}")
    return value or []


def take_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{where} must be text, but is {describe(value)}")
    return value


def take_choice(value: object, good: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in good:
        close = difflib.get_close_matches(shorten(value), good, n=1, cutoff=0.6) if isinstance(value, str) else []
        hint = f"did you mean {close[0]}? " if close else ""
        raise Rejected(f"{where} must be one of {', '.join(good)}, but is {describe(value)}; {hint}".rstrip("; "))
    return value


def is_true(value: object, where: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise Rejected(f"{where} must be true or false, but is {describe(value)}")
    return bool(value)


@contextmanager
def inside(where: str) -> Iterator[None]:
    """What is refused in here is said to be there."""
    try:
        yield
    except Rejected as problem:
        raise type(problem)(f"{where}{problem}") from None


def refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for name in found:
        if name not in known:
            raise Rejected(f"{where} has no field {shorten(name)!r}{did_you_mean(shorten(name), known)}")


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
        raw = str(value).strip()  # the parsers quote it in full, however long
        raise Rejected(f"{where}: {str(problem).replace(repr(raw), repr(shorten(raw)))}") from None


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


def shorten(text: str) -> str:
    """What a message repeats of somebody's text."""
    return text if len(text) <= TEXT_SHOWN_MAX else text[: TEXT_SHOWN_MAX - 1] + "…"


def describe(value: object) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", type(None): "empty"}
    kind = kinds.get(type(value), "a number")
    if isinstance(value, dict | type(None)):
        return kind
    shown = reprlib.repr(value)  # cut while it is made: a nested value may stand for millions
    if isinstance(value, str):  # its quotes say that it is text
        return f"{shown[:60]}{'…' if len(shown) > 60 else ''}"
    return f"{kind}: {shown[:60]}{'…' if len(shown) > 60 else ''}"


def read_name(value: object) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise Rejected(
            f"name {reprlib.repr(value)} cannot be used: a name is 1 to 63 letters, digits, '.', '_' or '-', "
            "and begins with a letter or digit"
        )
    if value.isdigit():
        raise Rejected(f"name {value!r} is a number and would be taken for a job's id; add a letter")
    return value


def default_name(command: tuple[str, ...]) -> str:
    """`python train.py` → train; `/bin/true` → true; a script after an interpreter names the job."""
    words = [word.rstrip("/").rpartition("/")[2] for word in command if not word.startswith("-")]
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), None)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", script[: -len(".py")] if script else words[0] if words else "")
    name = name.strip(".-_")[:63]
    return name if name and not name.isdigit() else "job"
