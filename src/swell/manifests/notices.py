"""Who is told when it has ended?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from swell.errors import Rejected
from swell.manifests.command import read_command
from swell.manifests.fields import describe, inside, system_bytes, take_choice
from swell.model.job import Notify

ON = ("end", "error")


def read_notify(value: object, on: object) -> Notify | None:
    if value is None:
        if on is not None:
            raise Rejected(f"notifyOn is {describe(on)}, but notify does not say who is told; give both, or neither")
        return None
    when = "end" if on is None else take_choice(on, ON, "notifyOn")
    return Notify(_words(value), only_on_error=when == "error")


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return _command(value)
    if not isinstance(value, str) or not value.strip():
        raise Rejected(f"notify must be a command or an http(s) address, but is {describe(value)}")
    text = value.strip()
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return (_address(text),)
    try:
        return _command(shlex.split(text))
    except ValueError as problem:
        raise Rejected(f"notify: {describe(value)} cannot be split into words: {problem}; write a list") from None


def _command(words: Sequence[object]) -> tuple[str, ...]:
    with inside("notify: "):
        return read_command(list(words))


def _address(text: str) -> str:
    system_bytes(text, "notify")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:  # a port or an address in brackets that is none
        is_good = False
    if not is_good or not text.startswith(("http://", "https://")) or re.search(r"\s", text):
        raise Rejected(f"notify: {describe(text)} is no address that can be told; write http://host/path or https://…")
    return text
