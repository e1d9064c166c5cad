"""jobset.x-k8s.io JobSet: a gang over several Jobs, or an array. Its Jobs cannot be changed, so another size is another
object.

A set of one replicated Job that runs a few of its pods at a time is an array: its tasks are counted as they begin,
first the first pod of each Job, then the second.
"""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.objects import Filling, ObjectSeen, PodTemplateGroup, read_object, read_verdict
from swell.engines.kubernetes.objects.pod_template import fill_template, gpus_of
from swell.engines.kubernetes.watch.observed_objects import INDEX, PodSeen, parse_number
from swell.model.kind import JOBSET
from swell.model.placement import EXCLUSIVE


class JobSetKind:
    api_version = JOBSET.api_version
    name = JOBSET.name
    is_job = False
    makes_jobs = True
    resizes_in_place = False

    def read(self, document: Document) -> ObjectSeen:
        return read_object(
            document,
            is_suspended=bool(_spec(document).get("suspend")),
            verdict=read_verdict(document, good="Completed"),
            groups=_groups(document),
            templates=self.templates(document),
            is_of_jobs=True,
        )

    def templates(self, document: Document) -> list[Document]:
        return [one["template"]["spec"]["template"] for one in _entries(document) if one.get("replicas", 1)]

    def fill(self, document: Document, filling: Filling) -> Document:
        sizes = iter(filling.roles)  # entries without a replica have no role
        entries = [_fill(one, next(sizes), filling) if one.get("replicas", 1) else one for one in _entries(document)]
        spec = {name: value for name, value in document["spec"].items() if name != "ttlSecondsAfterFinished"}
        return {
            **document,
            "metadata": filling.marked(document["metadata"]),
            "spec": {**spec, "suspend": True, "replicatedJobs": entries},
        }

    def change(self, live: Document, filled: Document, *, is_array: bool) -> Document | None:
        if _groups(live) != _groups(filled):
            return None
        return {"metadata": {"annotations": filled["metadata"]["annotations"]}}

    def suspension(self, is_suspended: bool) -> Document:
        return {"spec": {"suspend": is_suspended}}

    def rank(self, pod: PodSeen, seen: ObjectSeen) -> int | None:
        name = pod.labels.get("jobset.sigs.k8s.io/replicatedjob-name", "")
        offset = seen.offset(name)
        job = parse_number(pod.labels.get("jobset.sigs.k8s.io/job-index", ""))
        index = parse_number(pod.annotations.get(INDEX) or pod.labels.get(INDEX) or "")
        if offset is None or job is None or index is None:
            return None
        group = next(group for group in seen.groups if group.name == name)
        return job + index * group.sets if group.at_once is not None else offset + job * group.pods + index


def _spec(document: Document) -> Document:
    return document.get("spec") or {}


def _entries(document: Document) -> list[Document]:
    """The API server takes a JobSet without any."""
    return _spec(document).get("replicatedJobs") or []


def _groups(document: Document) -> list[PodTemplateGroup]:
    is_led = _is_exclusive(document)
    return [_group(entry, is_led=is_led) for entry in _entries(document)]


def _is_exclusive(document: Document) -> bool:
    """Does JobSet make a follower only when it knows the domain of its Job, where the first pod of that is?"""
    return EXCLUSIVE in ((document.get("metadata") or {}).get("annotations") or {})


def _group(entry: Document, *, is_led: bool) -> PodTemplateGroup:
    job = entry["template"]["spec"]
    at_once = int(job.get("parallelism") or 1)
    pods = int(job.get("completions") or at_once)
    few = at_once if at_once < pods else None
    is_led = is_led or any(_is_exclusive(one) for one in (entry["template"], job["template"]))
    sets = int(entry.get("replicas", 1))
    return PodTemplateGroup(entry["name"], pods, gpus_of(job["template"]["spec"]), sets, few, is_led and pods > 1)


def _fill(entry: Document, size: Any, filling: Filling) -> Document:
    template = entry["template"]
    job = {**template["spec"], "template": fill_template(template["spec"]["template"], size, filling)}
    return {**entry, "template": {**template, "spec": job}}
