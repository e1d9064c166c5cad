"""Which volume is made for a job on a cluster, shared by its tasks, and deleted when it has ended?

An annotation of the job's object says it, as in `10G ReadWriteMany fast`: its size, who may mount it, and its class. It
is a claim with the object's name and an ending, so that the pods of the object can name it before it is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.model.quantity import BadQuantity, shown

ANNOTATION = "swell.dev/shared-volume"
MODES = ("ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany")  # the first when nothing is said
SIZE = re.compile(r"[1-9][0-9]{0,8}(?:[MGT]i?)")
CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class SharedVolume:
    size: str  #: as Kubernetes writes amounts of storage
    mode: str
    storage_class: str = ""  #: empty: the cluster's default

    def __str__(self) -> str:
        return " ".join(word for word in (self.size, self.mode, self.storage_class) if word)


def parse_shared_volume(text: object) -> SharedVolume:
    words = str(text).split(" ")
    size, mode, name = (*words, *("", MODES[0], "")[len(words) :])[:3]
    if len(words) > 3 or SIZE.fullmatch(size) is None:
        raise BadQuantity(f"{shown(text)} is no volume; write its size, mode and class, as in 10G ReadWriteMany fast")
    if mode not in MODES:
        raise BadQuantity(f"{shown(mode)} is no access mode; write one of {', '.join(MODES)}")
    if name and CLASS.fullmatch(name) is None:
        raise BadQuantity(f"{shown(name)} is no name of a storage class; it has small letters, digits, '-' and '.'")
    return SharedVolume(size, mode, name)


def claim_name(object_name: str) -> str:
    return f"{object_name}-shared"


def claim_of(metadata: Mapping[str, Any]) -> str:
    """The claim that an object with this metadata has; empty: it has none."""
    return claim_name(metadata["name"]) if ANNOTATION in (metadata.get("annotations") or {}) else ""


def render_claim(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Of an object that has one."""
    asked = parse_shared_volume(metadata["annotations"][ANNOTATION])
    spec: dict[str, Any] = {"accessModes": [asked.mode], "resources": {"requests": {"storage": asked.size}}}
    if asked.storage_class:
        spec["storageClassName"] = asked.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_of(metadata), "labels": dict(labels)},
        "spec": spec,
    }
