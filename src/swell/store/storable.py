"""What can be written, and whose part of something cannot?

Text from outside may hold what no database takes: halves of surrogate pairs, by which bytes that are no UTF-8 travel,
and NUL. Documents are JSON, which escapes both and gives them back. In all other text they are shown as escapes; that
is done here, to every value of every statement, so that the same text is also found again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from swell.errors import SwellError
from swell.store.writer import disk_trouble

UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
PROBLEM_MAX = 500  # characters; SQLAlchemy quotes the whole statement

K = TypeVar("K")
P = TypeVar("P")


def storable(values: Any) -> Any:
    """The values of one statement, or of many rows, with every text made storable."""
    if isinstance(values, str):
        return storable_text(values)
    if isinstance(values, list | tuple):
        return type(values)(map(storable, values))
    if isinstance(values, dict):
        return {name: storable(value) for name, value in values.items()}
    return values


def storable_text(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return UNSTORABLE.sub(_escaped, text)


def to_json(value: object) -> str:
    """What is no number is refused: no answer that holds one can be sent."""
    return json.dumps(value, allow_nan=False)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code else "\\x00"


def unstorable(connection: Connection, parts: Mapping[K, P], write: Callable[[Sequence[P]], None]) -> dict[K, str]:
    """Which of them cannot be written, and why. Halved until they are found: one of thousands takes a dozen tries."""
    problem = _problem(connection, list(parts.values()), write)
    if problem is None:
        return {}
    keys = list(parts)
    if len(keys) == 1:
        return {keys[0]: problem}
    halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
    return {
        key: why
        for half in halves
        for key, why in unstorable(connection, {key: parts[key] for key in half}, write).items()
    }


def _problem(connection: Connection, parts: Sequence[P], write: Callable[[Sequence[P]], None]) -> str | None:
    """None: they can be written. Whether or not, they are not."""
    savepoint = connection.begin_nested()
    try:
        write(parts)
    except Exception as error:
        if isinstance(error, SwellError) or disk_trouble(error, connection.engine) is not None:
            raise
        return f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"[:PROBLEM_MAX]
    else:
        return None
    finally:
        savepoint.rollback()
