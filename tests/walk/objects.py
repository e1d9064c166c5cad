"""What do users of kubectl apply in a walk? One object or group of each kind, whose pods run until they are ended."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.jobs import ON_KWOK, job, jobset, pod, pytorchjob, template
from swell.model.member_loss import ON_MEMBER_LOST

Document = dict[str, Any]
OF = "walk"  # label of each pod: the name of what it belongs to
GROUP = "scheduling.x-k8s.io/pod-group"
SIZE = "fluence.group-size"
RETRIES = 100  # a pod that somebody deletes is no reason for its object to fail


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, or plain pods that start together, of one user."""

    kind: str
    namespace: str
    name: str
    documents: tuple[Document, ...]
    path: str  #: of the collection that its documents are created in
    gpus: int  #: of each pod
    pods: int  #: how many it has
    least: int  #: so many of its pods run, or none; 1: each for itself
    done: int = 0  #: so many of its pods had succeeded before they were deleted

    @property
    def addresses(self) -> list[str]:
        return [f"{self.path}/{document['metadata']['name']}" for document in self.documents]


def collection(api: str, namespace: str, plural: str) -> str:
    return f"{api}/namespaces/{namespace}/{plural}"


def _marked(template_of: Document, name: str, **labels: str) -> Document:
    metadata = template_of.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), OF: name, **labels}
    template_of["spec"]["schedulerName"] = "swell"
    return template_of


def deployment(namespace: str, name: str, gpus: int, count: int) -> Thing:
    made = _marked(template("true", on=ON_KWOK, gpus=gpus, restartPolicy="Always"), name)
    spec = {"replicas": count, "selector": {"matchLabels": {OF: name}}, "template": made}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    path = collection("/apis/apps/v1", namespace, "deployments")
    return Thing("Deployment", namespace, name, (document,), path, gpus, count, 1)


def group(namespace: str, name: str, gpus: int, count: int) -> Thing:
    """Of a StatefulSet whose pods name a group; all but one of them start together, if there are so many."""
    least = max(2, count - 1)
    made = _marked(
        template("true", on=ON_KWOK, gpus=gpus, restartPolicy="Always"), name, **{GROUP: name, SIZE: str(least)}
    )
    spec = {"replicas": max(count, least), "serviceName": name, "podManagementPolicy": "Parallel", "template": made}
    spec["selector"] = {"matchLabels": {OF: name}}
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
    path = collection("/apis/apps/v1", namespace, "statefulsets")
    return Thing("StatefulSet", namespace, name, (document,), path, gpus, max(count, least), least)


def gang(namespace: str, name: str, gpus: int, count: int) -> Thing:
    """Plain pods that nobody makes again."""
    labels = {GROUP: name, SIZE: str(count)}
    pods = [pod(f"{name}-{rank}", "true", on=ON_KWOK, gpus=gpus) for rank in range(count)]
    made = tuple(_marked(one, name, **labels) for one in pods)
    return Thing("Pods", namespace, name, made, collection("/api/v1", namespace, "pods"), gpus, count, count)


def array(namespace: str, name: str, gpus: int, count: int) -> Thing:
    document = job(name, "true", count=count, on=ON_KWOK, gpus=gpus)
    document["spec"]["backoffLimit"] = RETRIES
    _marked(document["spec"]["template"], name)
    path = collection("/apis/batch/v1", namespace, "jobs")
    return Thing("Job", namespace, name, (document,), path, gpus, count, 1)


def ring(namespace: str, name: str, gpus: int, count: int) -> Thing:
    """A Job whose pods start together."""
    made = array(namespace, name, gpus, count)
    made.documents[0]["metadata"]["labels"] = {GROUP: name}
    return replace(made, least=count)


def joined(namespace: str, name: str, gpus: int, count: int) -> Thing:
    document = jobset(name, "true", count=count, on=ON_KWOK, gpus=gpus)
    for entry in document["spec"]["replicatedJobs"]:
        entry["template"]["spec"]["backoffLimit"] = RETRIES
        _marked(entry["template"]["spec"]["template"], name)
    path = collection("/apis/jobset.x-k8s.io/v1alpha2", namespace, "jobsets")
    return Thing("JobSet", namespace, name, (document,), path, gpus, count, count)


def trained(namespace: str, name: str, gpus: int, count: int) -> Thing:
    workers = max(1, count - 1)
    document = pytorchjob(name, "true", "true", workers=workers, on=ON_KWOK, gpus=gpus)
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
        _marked(replicas["template"], name)
    path = collection("/apis/kubeflow.org/v1", namespace, "pytorchjobs")
    return Thing("PyTorchJob", namespace, name, (document,), path, gpus, workers + 1, workers + 1)


MAKERS: Sequence[Callable[[str, str, int, int], Thing]] = (deployment, group, gang, array, ring, joined, trained)


#: What may be written on pods of a group; on plain ones not that they wait for one that replaces the lost one.
LOSSES = {"Pods": ("restart", "go-on"), "StatefulSet": ("restart", "wait", "go-on")}


def losing(thing: Thing, loss: str) -> Thing:
    """The same; its pods say what becomes of the others when one of them is lost."""
    documents = []
    for one in thing.documents:
        whole = copy.deepcopy(one)
        of_pods = whole["spec"]["template"] if thing.kind == "StatefulSet" else whole
        of_pods["metadata"].setdefault("annotations", {})[ON_MEMBER_LOST] = loss
        documents.append(whole)
    return replace(thing, documents=tuple(documents))


def draw(lots: random.Random, namespace: str, number: int) -> Thing:
    maker = lots.choice(MAKERS)
    thing = maker(namespace, f"{maker.__name__}-{number}", lots.choice((1, 1, 2, 4)), lots.randint(1, 4))
    losses = LOSSES.get(thing.kind, ())
    return losing(thing, lots.choice(losses)) if losses and lots.random() < 0.5 else thing
