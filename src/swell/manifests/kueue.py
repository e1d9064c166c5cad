"""Which words for Kueue are on an object that Swell was given, and have no effect?

A queue, a pod group or a topology of Kueue's is a promise that somebody counts on. Where Swell places the pods, Kueue
has no say, so each of them is named in a note instead of being dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swell.manifests.fields import shorten, take_optional

QUEUE = "kueue.x-k8s.io/queue-name"
#: Label or annotation → what its user expects of it, and what does that here.
EXPECTED = {
    QUEUE: "the quota of that queue does not count here (limits in Swell's config.json, a ResourceQuota)",
    "kueue.x-k8s.io/pod-group-name": "its pods do not start together (label them scheduling.x-k8s.io/pod-group)",
    "kueue.x-k8s.io/pod-group-total-count": "the number of its pods is not waited for (minMember of a PodGroup)",
    "kueue.x-k8s.io/priority-class": "its priority there does not count (priorityClassName, or swell.dev/priority)",
    "kueue.x-k8s.io/podset-required-topology": "its pods may be in several of these topologies (nodeSelector)",
    "kueue.x-k8s.io/podset-preferred-topology": "its pods may be in several of these topologies (nodeSelector)",
    "kueue.x-k8s.io/podset-group-name": "its groups of pods may be in several topologies (nodeSelector)",
    "kueue.x-k8s.io/podset-slice-required-topology": "its slices may be in several of these topologies (nodeSelector)",
}


def kueue_notes(metadata: Mapping[str, Any], where: str) -> tuple[str, ...]:
    return tuple(_notes(metadata, where))


def _notes(metadata: Mapping[str, Any], where: str) -> Iterator[str]:
    for field in ("labels", "annotations"):
        given = take_optional(metadata.get(field), f"{where}.{field}")
        for name, missed in EXPECTED.items():
            if given.get(name) is not None:
                yield f"{where}.{field}: {name} {shorten(str(given[name]))!r} is for Kueue and has no effect: {missed}"
