"""Whom does a job tell that it has ended: a command, an address or an e-mail?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from swell.errors import Rejected
from swell.manifests.command import read_command
from swell.manifests.fields import describe, inside, take_choice
from swell.model.job import MAILTO, Notify
from swell.model.webaddress import BadAddress, WebAddress

ON = ("end", "error")
# What every mail program takes as it is: no space, no comma, no further headers, and nothing that is an option.
RECIPIENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,63}(@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)?")


def read_notify(value: object, on: object) -> Notify | None:
    if value is None:
        if on is not None:
            raise Rejected("notifyOn needs notify, which says who is told; give both, or neither")
        return None
    when = "end" if on is None else take_choice(on, ON, "notifyOn")
    return Notify(_words(value), only_on_error=when == "error")


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        words = _command(value)
        return _one_word(words[0]) or words if len(words) == 1 else words
    if not isinstance(value, str) or not value.strip():
        raise Rejected(f"notify must be a command, an http(s) address or mailto:, but is {describe(value)}")
    text = value.strip()
    found = _one_word(text)
    if found is not None:
        return found
    try:
        return _command(shlex.split(text))
    except ValueError as problem:
        raise Rejected(
            f"notify: {describe(value)} cannot be split into words: {problem}; close the quotation mark"
        ) from None


def _one_word(text: str) -> tuple[str] | None:
    """An address or a recipient; None: it is a command, if anything."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return (_address(text),)
    return (_mail(text),) if text.lower().startswith(MAILTO) else None


def _command(words: Sequence[object]) -> tuple[str, ...]:
    with inside("notify: "):
        return read_command(list(words))


def _address(text: str) -> str:
    try:
        WebAddress.parse(text)
    except BadAddress as problem:
        raise Rejected(
            f"notify: {describe(text)} is no address that can be notified: {problem}; write http://host/path or https://…"
        ) from None
    return text


def _mail(text: str) -> str:
    if not text.startswith(MAILTO) or not RECIPIENT.fullmatch(text.removeprefix(MAILTO)):
        raise Rejected(f"notify: {describe(text)} is no address of one person; write it as in mailto:ann@example.org")
    return text
