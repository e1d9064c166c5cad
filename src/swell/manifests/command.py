"""What is run, in which folder, with which variables?"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import describe, shorten, system_bytes, take_mapping

COMMAND_BYTES_MAX = 128 * 1024  # the kernel's limit for one argument (MAX_ARG_STRLEN)


def read_command(value: object) -> tuple[str, ...]:
    """An argv. Never a shell string of ours: quoting it would be guessing."""
    if isinstance(value, str):
        raise Rejected(
            f"command must be a list of words, but is text: write [sh, -c, {shorten(value)!r}] to use a shell"
        )
    if not isinstance(value, list) or not value:
        raise Rejected(f"command must be a list of words, as in [python, train.py], but is {describe(value)}")
    words = read_words(value, "command")
    if not words[0]:
        raise Rejected("command: the first word, the program, is empty")
    return words


def read_words(words: list[Any], field: str) -> tuple[str, ...]:
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            raise Rejected(f"{field}: every word must be text, but one is {describe(word)}; quote it")
        if len(system_bytes(str(word), f"{field}: a word")) > COMMAND_BYTES_MAX:
            raise Rejected(f"{field}: a word is longer than {COMMAND_BYTES_MAX} bytes; put it into a file")
    return tuple(str(word) for word in words)


def read_folder(value: object, base: str, field: str, *, otherwise: str) -> str:
    """Absolute; a relative one is found from `base`. `otherwise`: what leaving it out would mean."""
    if not isinstance(value, str) or not value:
        raise Rejected(f"{field} must be a folder's path, but is {describe(value)}; leave it out for {otherwise}")
    system_bytes(value, field)
    return str(PurePosixPath(base) / value)


def read_env(value: object) -> tuple[tuple[str, str], ...]:
    mapping = take_mapping({} if value is None else value, "env")
    for key, text in mapping.items():
        if not key or "=" in key or "\0" in key:
            raise Rejected(f"env: {shorten(key)!r} cannot be a variable's name; write NAME: value")
        if not isinstance(text, str | int | float):
            raise Rejected(f"env: the value of {shorten(key)} must be text, but is {describe(text)}; quote it")
        system_bytes(key, "env: a name")
        system_bytes(str(text), f"env: the value of {shorten(key)}")
    return tuple(sorted((key, _env_text(text)) for key, text in mapping.items()))


def _env_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
