"""What does the fake API server remember? Objects, one revision for all of them, and everything that happened."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Key = tuple[str, str]  # namespace and name


class Refusal(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Happening:
    revision: int
    plural: str
    key: Key
    before: Document | None
    after: Document | None


class Storage:
    """Safe for several threads; `moved` is told of each change."""

    def __init__(self) -> None:
        self.moved = threading.Condition(threading.RLock())
        self.revision = 1
        self.compacted = 1  #: nothing before this revision can be asked for
        self.history: list[Happening] = []
        self._objects: dict[str, dict[Key, Document]] = {}

    def state(self, plural: str, revision: int | None = None) -> dict[Key, Document]:
        """Now, or as it was."""
        with self.moved:
            if revision is None or revision == self.revision:
                return dict(self._objects.get(plural, {}))
            past: dict[Key, Document] = {}
            for happening in self.history:
                if happening.plural == plural and happening.revision <= revision:
                    past.pop(happening.key, None)
                    if happening.after is not None:
                        past[happening.key] = happening.after
            return past

    def since(self, plural: str, revision: int) -> Iterator[Happening]:
        """The history is in the order of revisions, one each: what comes after one is a slice."""
        with self.moved:
            news = self.history[max(0, revision - 1) :]
        return (happening for happening in news if happening.plural == plural and happening.revision > revision)

    def compact(self) -> None:
        with self.moved:
            self.compacted = self.revision

    def create(self, plural: str, key: Key, document: Document) -> Document:
        with self.moved:
            if key in self._objects.get(plural, {}):
                raise Refusal(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
            made = copy.deepcopy(document)
            made.setdefault("metadata", {}).update({"name": key[1], "uid": f"uid-{self.revision + 1}"})
            made["metadata"].setdefault(
                "creationTimestamp", f"2026-11-16T12:{self.revision // 60 % 60:02}:{self.revision % 60:02}Z"
            )
            if key[0]:
                made["metadata"]["namespace"] = key[0]
            return self._put(plural, key, made)

    def get(self, plural: str, key: Key) -> Document:
        with self.moved:
            found = self._objects.get(plural, {}).get(key)
            if found is None:
                raise Refusal(404, "NotFound", f'{plural} "{key[1]}" not found')
            return found

    def update(self, plural: str, key: Key, document: Document) -> Document:
        """A resourceVersion in the document must be the newest."""
        with self.moved:
            held = self.get(plural, key)
            version = document.get("metadata", {}).get("resourceVersion")
            if version not in (None, held["metadata"]["resourceVersion"]):
                raise Refusal(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {plural} "{key[1]}": the object has been modified; '
                    "please apply your changes to the latest version and try again",
                )
            made = copy.deepcopy(document)
            made["metadata"] = {**made.get("metadata", {}), "uid": held["metadata"]["uid"]}
            return self._put(plural, key, made)

    def delete(self, plural: str, key: Key, expected: Document) -> Document:
        with self.moved:
            held = self.get(plural, key)
            for field, value in expected.items():
                if held["metadata"][field] != value:
                    raise Refusal(
                        409,
                        "Conflict",
                        f'Operation cannot be fulfilled on {plural} "{key[1]}": Precondition failed: '
                        f"{field} in precondition: {value}, {field} in object meta: {held['metadata'][field]}",
                    )
            del self._objects[plural][key]
            self._record(plural, key, held, None)
            return held

    def _put(self, plural: str, key: Key, document: Document) -> Document:
        held = self._objects.setdefault(plural, {}).get(key)
        document["metadata"]["resourceVersion"] = str(self.revision + 1)
        self._objects[plural][key] = document
        self._record(plural, key, held, document)
        return document

    def _record(self, plural: str, key: Key, before: Document | None, after: Document | None) -> None:
        self.revision += 1
        self.history.append(Happening(self.revision, plural, key, before, after))
        self.moved.notify_all()
