"""kubeflow.org MPIJob: a gang of a launcher, which is the pod of a Job of the operator's, and of workers.

The operator writes the launcher's Job once and takes workers from the object whenever it makes them, so nothing but the
object's own annotations may be patched: pods of one attempt would differ from each other.
"""

from __future__ import annotations

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.objects import Filling, ObjectSeen, PodTemplateGroup, read_object, read_verdict
from swell.engines.kubernetes.objects.pod_template import fill_template, gpus_of
from swell.engines.kubernetes.watch.observed_objects import MPI_ROLE, PodSeen, parse_number
from swell.model.kind import MPIJOB

TYPES = ("Launcher", "Worker")  # in the order of ranks
REPLICA = "training.kubeflow.org/replica-index"


class MPIJobKind:
    api_version = MPIJOB.api_version
    name = MPIJOB.name
    is_job = False
    makes_jobs = False
    resizes_in_place = False

    def read(self, document: Document) -> ObjectSeen:
        return read_object(
            document,
            is_suspended=bool(((document.get("spec") or {}).get("runPolicy") or {}).get("suspend")),
            verdict=read_verdict(document, good="Succeeded"),
            groups=[_group(name, one) for name, one in _replicas(document)],
            templates=self.templates(document),
        )

    def templates(self, document: Document) -> list[Document]:
        return [one.get("template") or {} for _, one in _replicas(document)]

    def fill(self, document: Document, filling: Filling) -> Document:
        given = document["spec"]["mpiReplicaSpecs"]
        filled = {
            name: {**one, "replicas": size.tasks, "template": fill_template(one["template"], size, filling)}
            for (name, one), size in zip(_replicas(document), filling.roles, strict=True)
        }
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
                "mpiReplicaSpecs": {**given, **filled},
                "runPolicy": {**policy, "suspend": True},
            },
        }

    def change(self, live: Document, filled: Document, *, is_array: bool) -> Document | None:
        groups = [[_group(name, one) for name, one in _replicas(document)] for document in (live, filled)]
        if groups[0] != groups[1]:
            return None
        return {"metadata": {"annotations": filled["metadata"]["annotations"]}}

    def suspension(self, is_suspended: bool) -> Document:
        return {"spec": {"runPolicy": {"suspend": is_suspended}}}

    def rank(self, pod: PodSeen, seen: ObjectSeen) -> int | None:
        role = pod.labels.get(MPI_ROLE, "")
        offset = seen.offset(role)
        index = 0 if role == "launcher" else parse_number(pod.labels.get(REPLICA, ""))
        return None if offset is None or index is None else offset + index


def _replicas(document: Document) -> list[tuple[str, Document]]:
    """Those that there are any of. The API server takes an MPIJob without a specification; its operator does not."""
    given = (document.get("spec") or {}).get("mpiReplicaSpecs") or {}
    return [(name, given[name]) for name in TYPES if given.get(name) and given[name].get("replicas", 1)]


def _group(name: str, replicas: Document) -> PodTemplateGroup:
    pod = (replicas.get("template") or {}).get("spec") or {}
    return PodTemplateGroup(name.lower(), int(replicas.get("replicas", 1)), gpus_of(pod))
