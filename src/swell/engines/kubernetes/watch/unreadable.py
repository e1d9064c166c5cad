"""Which objects can we not read, and why?

Whoever may create an object in one namespace can write something into it that we did not think of. That is between
them and us: the object is skipped and told, it is read again when it changes, and all others of its kind go on. What is
watched comes through one place where that is so, the mirror (`mirror.py`); what is only listed, through `readable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from swell.engines.kubernetes.client.documents import Document

T = TypeVar("T")
log = logging.getLogger(__name__)

SCHEDULER = "swell"  # what a pod names as its scheduler to be placed by us
PARTS_MAX = 100_000  # of one document are looked at: etcd takes no object above a few megabytes
STORE = "swell.dev/store"  # label of everything we make: whose job; ids of two servers are not the same
PROBLEM_MAX = 500  # characters: an error may quote all that it could not read


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object as it is now: another version of it may be readable."""

    kind: str
    namespace: str
    name: str
    uid: str
    problem: str
    is_for_us: bool  #: it asks for our scheduler, or we made it: its user hears from us

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} cannot be read and is left out until it changes: {self.problem}"


def describe(document: Document, error: Exception) -> Unreadable:
    """`document` has a name, a uid and a version; nothing else of it is believed. Never raises."""
    metadata = document["metadata"]
    return Unreadable(
        kind=str(document.get("kind") or "object"),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        problem=_in_words(error),
        is_for_us=is_for_us(document),
    )


def readable(documents: Iterable[Document], read: Callable[[Document], T]) -> list[T]:
    """What was made of each; those of which nothing could be made are left out, and logged once."""
    made = []
    for document in documents:
        try:
            made.append(read(document))
        except Exception as error:  # noqa: BLE001  whatever is wrong with one object is wrong with that one only
            _log_once(str(describe(document, error)))
    return made


@lru_cache(maxsize=4096)
def _log_once(said: str) -> None:
    log.warning("%s", said)


def _in_words(error: Exception) -> str:
    """Our own errors are sentences already (`errors.py`, which the mirror need not know)."""
    is_ours = type(error).__module__.startswith("swell.")
    said = str(error) if is_ours else f"{type(error).__name__}: {error}"
    if isinstance(error, KeyError):
        said = f"it has no field {error}"
    return said if len(said) <= PROBLEM_MAX else f"{said[:PROBLEM_MAX]} …"


def is_for_us(document: dict[str, Any]) -> bool:
    """Whatever else is in it: does it ask for our scheduler, or did a server of ours make it?

    Of an object that makes pods, their templates say who places them, wherever its kind keeps those.
    """
    rest: list[Any] = [document]
    for _ in range(PARTS_MAX):
        if not rest:
            return False
        part = rest.pop()
        if isinstance(part, dict):
            if part.get("schedulerName") == SCHEDULER or STORE in part:
                return True
            rest += _nested(part.values())
        else:
            rest += _nested(part)
    return False


def _nested(parts: Iterable[Any]) -> list[Any]:
    return [part for part in parts if isinstance(part, dict | list)]
