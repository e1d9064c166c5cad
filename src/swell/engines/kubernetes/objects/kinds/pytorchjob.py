"""kubeflow.org/v1 PyTorchJob: a gang whose size may be patched while it is suspended."""

from __future__ import annotations

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.objects import (
    Filling,
    ObjectSeen,
    PodTemplateGroup,
    RoleSize,
    read_object,
    read_verdict,
)
from swell.engines.kubernetes.objects.pod_template import fill_template, gpus_of
from swell.engines.kubernetes.watch.observed_objects import PodSeen, parse_number
from swell.model.kind import PYTORCHJOB

TYPES = ("Master", "Worker")  # in the order of ranks


class PyTorchJobKind:
    api_version = PYTORCHJOB.api_version
    name = PYTORCHJOB.name
    is_job = False
    makes_jobs = False
    resizes_in_place = True

    def read(self, document: Document) -> ObjectSeen:
        specs = {name: given for name, given in _replica_specs(document).items() if given}
        return read_object(
            document,
            is_suspended=bool(((document.get("spec") or {}).get("runPolicy") or {}).get("suspend")),
            verdict=read_verdict(document, good="Succeeded"),
            groups=[
                PodTemplateGroup(
                    name.lower(), int(specs[name].get("replicas", 1)), gpus_of(_template(specs[name]).get("spec") or {})
                )
                for name in TYPES
                if name in specs
            ],
            templates=self.templates(document),
        )

    def templates(self, document: Document) -> list[Document]:
        specs = _replica_specs(document)
        return [_template(specs[name]) for name in TYPES if specs.get(name) and specs[name].get("replicas", 1)]

    def fill(self, document: Document, filling: Filling) -> Document:
        given = document["spec"]["pytorchReplicaSpecs"]
        present = [name for name in TYPES if given.get(name) and given[name].get("replicas", 1)]
        specs = {name: _fill(given[name], size, filling) for name, size in zip(present, filling.roles, strict=True)}
        policy = {
            name: value
            for name, value in (document["spec"].get("runPolicy") or {}).items()
            if name != "ttlSecondsAfterFinished"
        }
        return {
            **document,
            "metadata": filling.marked(document["metadata"]),
            "spec": {
                **document["spec"],
                "pytorchReplicaSpecs": specs,
                "runPolicy": {**policy, "suspend": True},
            },
        }

    def change(self, live: Document, filled: Document, *, is_array: bool) -> Document | None:
        """Everything: a merge patch replaces lists whole, and the templates come whole."""
        return {
            "metadata": {"annotations": filled["metadata"]["annotations"], "labels": filled["metadata"]["labels"]},
            "spec": {"pytorchReplicaSpecs": filled["spec"]["pytorchReplicaSpecs"]},
        }

    def suspension(self, is_suspended: bool) -> Document:
        return {"spec": {"runPolicy": {"suspend": is_suspended}}}

    def rank(self, pod: PodSeen, seen: ObjectSeen) -> int | None:
        offset = seen.offset(pod.labels.get("training.kubeflow.org/replica-type", ""))
        index = parse_number(pod.labels.get("training.kubeflow.org/replica-index", ""))
        return None if offset is None or index is None else offset + index


def _replica_specs(document: Document) -> Document:
    """The API server takes a PyTorchJob without a specification; its operator does not."""
    return (document.get("spec") or {}).get("pytorchReplicaSpecs") or {}


def _template(replicas: Document) -> Document:
    """The API server takes one without; its operator does not."""
    return replicas.get("template") or {}


def _fill(replicas: Document, size: RoleSize, filling: Filling) -> Document:
    """A pod that is lost is made again, unless its user says that it shall not be."""
    return {
        "restartPolicy": "OnFailure",
        **replicas,
        "replicas": size.tasks,
        "template": fill_template(replicas["template"], size, filling),
    }
