"""The kinds of objects that Swell runs jobs as: one file for each, one protocol for all.

What differs between them: how their documents are read and filled, whether a suspended one can be given another size,
and which pod has which rank. Public: `Kind`, `KINDS`.
"""

from __future__ import annotations

from typing import Any, Protocol

from swell.engines.kubernetes.kinds.job import JobKind
from swell.engines.kubernetes.kinds.jobset import JobSetKind
from swell.engines.kubernetes.kinds.pytorchjob import PyTorchJobKind
from swell.engines.kubernetes.objects import Filling, ObjectSeen
from swell.engines.kubernetes.picture import PodSeen

Document = dict[str, Any]


class Kind(Protocol):
    api_version: str
    name: str

    def read(self, document: Document) -> ObjectSeen: ...

    def templates(self, document: Document) -> list[Document]:
        """Of its pods, in the order of ranks; none of those that it has no pods of."""

    def fill(self, document: Document, filling: Filling) -> Document:
        """As it is created: suspended, in its attempt, at its size."""

    def change(self, live: Document, filled: Document, *, is_array: bool) -> Document | None:
        """A merge patch that makes a suspended object like `filled`; None: the API allows it no more."""

    def suspension(self, is_suspended: bool) -> Document:
        """A merge patch."""

    def rank(self, pod: PodSeen, seen: ObjectSeen) -> int | None:
        """None: it has none of its own."""


KINDS: dict[str, Kind] = {kind.name: kind for kind in (JobKind(), JobSetKind(), PyTorchJobKind())}
