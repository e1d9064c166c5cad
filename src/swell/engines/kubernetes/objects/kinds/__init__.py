"""The kinds of objects that Swell runs jobs as: one file for each, one protocol for all.

What differs between them: how their documents are read and filled, whether a suspended one can be given another size,
and which pod has which rank. Public: `Kind`, `KINDS`.
"""

from __future__ import annotations

from typing import Protocol

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.kinds.job import JobKind
from swell.engines.kubernetes.objects.kinds.jobset import JobSetKind
from swell.engines.kubernetes.objects.kinds.mpijob import MPIJobKind
from swell.engines.kubernetes.objects.kinds.pytorchjob import PyTorchJobKind
from swell.engines.kubernetes.objects.objects import Filling, ObjectSeen
from swell.engines.kubernetes.watch.observed_objects import PodSeen


class Kind(Protocol):
    api_version: str
    name: str
    is_job: bool  #: its controller is that of Jobs, which numbers its pods
    makes_jobs: bool  #: its pods are made by Jobs of its own, which may have to be made anew one by one
    resizes_in_place: bool  #: templates of a suspended one may be patched, also if it came by kubectl

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


KINDS: dict[str, Kind] = {kind.name: kind for kind in (JobKind(), JobSetKind(), PyTorchJobKind(), MPIJobKind())}
