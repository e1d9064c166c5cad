"""jobset.x-k8s.io JobSet: a gang over several Jobs. Its Jobs cannot be changed, so another size is another object."""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.objects import Filling, Group, ObjectSeen, read_object, read_verdict
from swell.engines.kubernetes.picture import INDEX, PodSeen, parse_number
from swell.engines.kubernetes.template import fill_template, gpus_of

Document = dict[str, Any]


class JobSetKind:
    api_version = "jobset.x-k8s.io/v1alpha2"
    name = "JobSet"

    def read(self, document: Document) -> ObjectSeen:
        return read_object(
            document,
            is_suspended=bool(_spec(document).get("suspend")),
            verdict=read_verdict(document, good="Completed"),
            groups=[_group(one) for one in _entries(document)],
            templates=self.templates(document),
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
        groups = [[_group(one) for one in _entries(document)] for document in (live, filled)]
        if groups[0] != groups[1]:
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
        return offset + job * group.pods + index


def _spec(document: Document) -> Document:
    return document.get("spec") or {}


def _entries(document: Document) -> list[Document]:
    """The API server takes a JobSet without any."""
    return _spec(document).get("replicatedJobs") or []


def _group(entry: Document) -> Group:
    job = entry["template"]["spec"]
    pods = int(job.get("completions") or job.get("parallelism") or 1)
    return Group(entry["name"], pods, gpus_of(job["template"]["spec"]), int(entry.get("replicas", 1)))


def _fill(entry: Document, size: Any, filling: Filling) -> Document:
    template = entry["template"]
    job = {**template["spec"], "template": fill_template(template["spec"]["template"], size, filling)}
    return {**entry, "template": {**template, "spec": job}}
