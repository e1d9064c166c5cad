"""Which object of a cluster does a document stand for, and with what is it created?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swell.manifests.image_build import ImageBuild
from swell.model.job import Container, JobSpec
from swell.model.kind import NATIVE_JOB, POD


@dataclass(frozen=True, slots=True)
class Manifest:
    """A job, and the document it was read from: on a cluster what its object is made of."""

    spec: JobSpec
    document: dict[str, Any]
    file: str = ""  #: what its user calls the file; empty: there is only one
    lines: Mapping[str, int] = field(default_factory=dict)  #: path of a field → its line; empty: it was no text
    build: ImageBuild | None = None  #: how its image is made; None: it does not say
    via: str = ""  #: whose words its user knows; empty: those of its kind


@dataclass(frozen=True, slots=True)
class Translation:
    """A document of one kind in the notation of another, and what that cannot say."""

    document: dict[str, Any]
    notes: tuple[str, ...] = ()
    tensorboard: str | None = None  #: a folder; None: nobody asked for TensorBoard
    container: Container | None = None  #: None: plain processes, or pods
    build: ImageBuild | None = None  #: how its image is made; None: it does not say


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Where an object is found in a cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str | None  #: None: the document has only a `generateName`, or none at all; who creates it chooses


def object_ref(document: dict[str, Any], *, namespace: str = "default") -> ObjectRef:
    """Of a document that was read and found good. `namespace`: where it is when it does not say."""
    metadata = document.get("metadata") or {}
    return ObjectRef(
        document["apiVersion"], document["kind"], metadata.get("namespace") or namespace, metadata.get("name") or None
    )


def is_native(document: dict[str, Any]) -> bool:
    return document.get("apiVersion") == NATIVE_JOB.api_version


def is_in_cluster(document: dict[str, Any]) -> bool:
    """Was it created by somebody else already? Then it is a reference, and never changed here."""
    return bool((document.get("metadata") or {}).get("uid"))


def as_created(document: dict[str, Any]) -> dict[str, Any]:
    """A bare Pod that would begin again after it has succeeded is created with OnFailure: training ends."""
    if document.get("kind") != POD.name or is_in_cluster(document):
        return document
    spec = document["spec"]
    if spec.get("restartPolicy") not in (None, "Always"):
        return document
    return {**document, "spec": {**spec, "restartPolicy": "OnFailure"}}
