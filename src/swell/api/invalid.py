"""What is wrong with a request that has not the form of its endpoint? In a sentence: what must be, and what was sent.

Pydantic's own words are for who wrote the model: regular expressions, seconds where somebody wrote days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from swell.manifests.fields import describe
from swell.model.quantity import duration_text, number_of

PLAIN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
SUFFIX = r"^[a-z0-9.-]*$"
#: patterns in words
PATTERNS = {
    SUFFIX: "lowercase letters, digits, '.' and '-' only",
    PLAIN_NAME: "1 to 63 letters, digits, '.', '_' or '-', of which the first is a letter or a digit",
}
SECONDS = "_s"  # how the names of durations end

Ctx = Mapping[str, Any]
Show = Callable[[Any], str]

#: pydantic's name for an error → what must be
MUST_BE: dict[str, Callable[[Ctx, Show], str]] = {
    "greater_than_equal": lambda ctx, show: f"at least {show(ctx['ge'])}",
    "greater_than": lambda ctx, show: f"more than {show(ctx['gt'])}",
    "less_than_equal": lambda ctx, show: f"at most {show(ctx['le'])}",
    "less_than": lambda ctx, show: f"less than {show(ctx['lt'])}",
    "finite_number": lambda *_: "a finite number",
    "literal_error": lambda ctx, _: str(ctx["expected"]),
    "string_pattern_mismatch": lambda ctx, _: PATTERNS.get(ctx["pattern"], "of another form"),
    "string_too_short": lambda ctx, _: f"at least {number_of(ctx['min_length'], 'character')} long",
    "string_too_long": lambda ctx, _: f"at most {number_of(ctx['max_length'], 'character')} long",
    "too_short": lambda ctx, _: f"at least {number_of(ctx['min_length'], 'item')} long",
    "too_long": lambda ctx, _: f"at most {number_of(ctx['max_length'], 'item')} long",
}
#: how pydantic's names for a wrong type begin → the right one
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "dict": "a mapping of names to values",
    "model": "a mapping of names to values",
    "list": "a list",
    "tuple": "a list",
}


def in_words(error: Mapping[str, Any]) -> str:
    """Of one of pydantic's errors: 'lasts must be at most 366d, but is 900d'."""
    parts = [str(part) for part in error["loc"][1:]]
    show = _duration if parts and parts[-1].endswith(SECONDS) else _plain
    return f"{_name(parts)} must be {_must_be(error, show)}, but is {show(error['input'])}"


def _name(parts: list[str]) -> str:
    """As it is written in the request, without the unit that durations are sent in."""
    if parts and parts[-1] == "[key]":
        return f"a name in {'.'.join(parts[:-2])}"
    return ".".join(parts).removesuffix(SECONDS) or "the request"


def _must_be(error: Mapping[str, Any], show: Show) -> str:
    kind = str(error["type"])
    if kind in MUST_BE:
        return MUST_BE[kind](error.get("ctx", {}), show)
    known = KINDS.get(kind.partition("_")[0])
    return known or str(error["msg"]).removeprefix("Input should be ")


def _plain(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if isinstance(value, float) else str(value) if is_number else describe(value)


def _duration(value: Any) -> str:
    is_duration = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    return duration_text(value) if is_duration else _plain(value)
