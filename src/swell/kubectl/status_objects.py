"""What do the notices look like that we leave on objects of a cluster?

Conditions tell programs (a cluster autoscaler) that a pod waits for room, Events and annotations tell people. Events
are of the core group: `kubectl describe` reads them, every version serves them, and they carry a count, so that what is
said again is one Event that was seen several times. Their names are made from what they say: told twice, they are there
once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import EVENTS, Resource
from swell.engines.kubernetes.watch.observed_objects import PodSeen

PREFIX = "swell.dev/"
COMPONENT = "swell.dev/swell"
MESSAGE_BYTES_MAX = 1024  # what Kubernetes takes as the note of an Event
NAME_MAX = 180  # of an object, in the name of its Event: 253 characters are the limit of both


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """Something in a cluster that can be told something."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """One thing to be said in an Event."""

    reason: str  #: what happened, in one word of letters
    message: str
    is_warning: bool = False


def condition_patch(pod: PodSeen, version: str, message: str, at: float) -> Document:
    """That it waits for room. Only of the pod as it was seen: one that was bound since must not be called waiting."""
    said: Document = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": shorten(message)}
    if not pod.is_told:
        said["lastTransitionTime"] = whole_second(at)
    return {"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": {"conditions": [said]}}


def condition_said(document: Document) -> str:
    """Why a pod waits, as it says itself; empty: it does not."""
    for one in (document.get("status") or {}).get("conditions") or ():
        if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable":
            return str(one.get("message") or "")
    return ""


def annotations_patch(target: ObjectTarget, annotations: dict[str, str | None]) -> Document:
    """None removes one. Not of another object of that name that was made since."""
    named = {PREFIX + name: value for name, value in annotations.items()}
    return {"metadata": {"uid": target.uid, "annotations": named}}


def make_event(
    target: ObjectTarget, name: str, word: StatusMessage, *, at: float, instance: str, count: int = 1
) -> Document:
    """`name` of `event_name` or `repeated_name`; `instance`: whose Event it is."""
    involved = {
        "apiVersion": target.resource.api_version,
        "kind": target.resource.kind,
        "namespace": target.namespace,
        "name": target.name,
        "uid": target.uid,
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": target.namespace},
        "involvedObject": involved,
        "type": "Warning" if word.is_warning else "Normal",
        "reason": word.reason,
        "action": word.reason,
        "message": shorten(word.message),
        "firstTimestamp": whole_second(at),
        "lastTimestamp": whole_second(at),
        "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "count": count,
        "source": {"component": "swell"},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
    }


def repeat_patch(word: StatusMessage, *, at: float, count: int) -> Document:
    """It is said once more."""
    return {"message": shorten(word.message), "lastTimestamp": whole_second(at), "count": count}


def event_name(target: ObjectTarget, store: str, number: int) -> str:
    """Of what happened once: by its number in our store, in whose order Events of one second are listed."""
    return f"{target.name[:NAME_MAX]}.{store[:8]}{number:016x}"


def repeated_name(target: ObjectTarget, kind: str) -> str:
    """Of what is said as long as it is so: one for each thing that can be said of one object."""
    digest = hashlib.sha256(f"{target.uid} {kind}".encode()).hexdigest()
    return f"{target.name[:NAME_MAX]}.{digest[:24]}"


def shorten(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= MESSAGE_BYTES_MAX:
        return text
    return encoded[: MESSAGE_BYTES_MAX - len("…".encode())].decode(errors="ignore") + "…"


def whole_second(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
