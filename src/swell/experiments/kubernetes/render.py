"""As which objects is a gang created?

A Job (`as: job`), plain pods (`as: pods`), or what the experiment's template says. Whatever it is, each pod carries the
label that tells its gang, and its contender's labels and schedulerName. On simulated nodes a rank runs until the
experiment ends it; on real ones it waits until all its siblings answer, then sleeps for the gang's duration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import Resource
from swell.errors import Rejected
from swell.experiments.experiment import ContenderWanted, ExperimentWorkload, ObjectForm
from swell.experiments.measure import GangAsked
from swell.manifests.podspec import GROUP_SIZE
from swell.manifests.yaml_text import parse_documents
from swell.model.kubernetes_quantity import GPU
from swell.model.placement_fields import POD_GROUP

GANG_LABEL = "swell.dev/experiment-gang"
RANK_LABEL = "swell.dev/experiment-rank"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
JOBS = Resource("batch", "v1", "jobs", "Job")
PORT = 7101
#: A rank answers its siblings, waits until each of them answers, and runs.
RANK_SCRIPT = f"""\
(while true; do nc -l -p {PORT} </dev/null >/dev/null 2>&1; done) &
i=0
while [ $i -lt $SIZE ]; do
  until [ $i -eq $RANK ] || nc -w 1 $GANG-$i.$GANG {PORT} </dev/null >/dev/null 2>&1; do sleep 0.2; done
  i=$((i+1))
done
exec sleep $DURATION
"""
KWOK_TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


@dataclass(frozen=True, slots=True)
class GangObject:
    """One object of a gang, in the order in which they are created."""

    resource: Resource | None  #: None: of a template, whose kind the API server is asked for
    document: Document


@dataclass(frozen=True, slots=True)
class GangRendering:
    """How the gangs of one run are rendered."""

    workload: ExperimentWorkload
    contender: ContenderWanted
    is_simulated: bool  #: the nodes are kwok's
    namespace: str

    def objects(self, gang: GangAsked) -> tuple[GangObject, ...]:
        return tuple(self._objects(gang))

    def _objects(self, gang: GangAsked) -> Iterator[GangObject]:
        labels = self._labels(gang)
        if POD_GROUP in labels and GROUP_SIZE not in labels:
            yield GangObject(POD_GROUPS, self._named(POD_GROUPS, gang, {"spec": {"minMember": gang.size}}))
        if self.workload.template:
            yield from self._templated(gang, labels)
        elif self.workload.form is ObjectForm.PODS:
            yield from self._service(gang)
            for rank in range(gang.size):
                yield GangObject(None, self._pod(gang, rank, labels))
        else:
            yield from self._service(gang)
            yield GangObject(JOBS, self._job(gang, labels))

    def _labels(self, gang: GangAsked) -> dict[str, str]:
        filled = {
            name: Template(text).safe_substitute(name=gang.name, size=gang.size) for name, text in self.contender.labels
        }
        if gang.size == 1 and GROUP_SIZE not in filled:
            filled.pop(POD_GROUP, None)  # nobody waits for anybody
        is_loose = self.workload.form is ObjectForm.PODS and gang.size > 1
        if self.contender.scheduler == "swell" and is_loose and not filled:
            filled = {POD_GROUP: gang.name, GROUP_SIZE: str(gang.size)}  # plain pods say in labels what they belong to
        return filled

    def _named(self, resource: Resource, gang: GangAsked, body: Document) -> Document:
        metadata = {"name": gang.name, "namespace": self.namespace}
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}

    # -- pods --------------------------------------------------------------------------------------------------

    def _job(self, gang: GangAsked, labels: Mapping[str, str]) -> Document:
        template = {
            "metadata": {"labels": {**labels, GANG_LABEL: gang.name}},
            "spec": {**self._pod_spec(gang), "subdomain": gang.name},
        }
        spec = {
            "completions": gang.size,
            "parallelism": gang.size,
            "completionMode": "Indexed",
            "template": template,
            **({"suspend": True} if QUEUE_LABEL in labels else {}),  # Kueue lets it go
        }
        job = self._named(JOBS, gang, {"spec": spec})
        job["metadata"]["labels"] = {**labels, GANG_LABEL: gang.name}
        return job

    def _pod(self, gang: GangAsked, rank: int, labels: Mapping[str, str]) -> Document:
        name = f"{gang.name}-{rank}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {**labels, GANG_LABEL: gang.name, RANK_LABEL: str(rank)},
            },
            "spec": {**self._pod_spec(gang, rank), "hostname": name, "subdomain": gang.name},
        }

    def _pod_spec(self, gang: GangAsked, rank: int | None = None) -> Document:
        requests = {"cpu": f"{gang.cpus_milli}m", "memory": f"{gang.memory_mib}Mi"}
        limits = {GPU: str(gang.gpus)} if gang.gpus else {}
        container: Document = {
            "name": "main",
            "image": self.workload.image,
            "resources": {"requests": {**requests, **limits}, **({"limits": limits} if limits else {})},
        }
        if not self.is_simulated:
            container["command"] = ["/bin/sh", "-c", RANK_SCRIPT]
            container["env"] = _environment(gang, rank)
        return {
            "schedulerName": self.contender.scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "tolerations": [KWOK_TOLERATION] if self.is_simulated else [],
        }

    def _service(self, gang: GangAsked) -> Iterator[GangObject]:
        """By which ranks on real nodes find each other."""
        if self.is_simulated:
            return
        service = Resource("", "v1", "services", "Service")
        spec = {"clusterIP": "None", "selector": {GANG_LABEL: gang.name}, "publishNotReadyAddresses": True}
        yield GangObject(service, self._named(service, gang, {"spec": spec}))

    # -- a template --------------------------------------------------------------------------------------------

    def _templated(self, gang: GangAsked, labels: Mapping[str, str]) -> Iterator[GangObject]:
        for document in fill_template(self.workload.template, gang, self.contender):
            metadata = document.setdefault("metadata", {})
            metadata["namespace"] = self.namespace
            pods = list(pod_templates(document))
            if pods and QUEUE_LABEL in labels:
                _suspend(document)
            if pods:
                metadata["labels"] = {**(metadata.get("labels") or {}), **labels, GANG_LABEL: gang.name}
            for pod in pods:
                own = pod.setdefault("metadata", {})
                own["labels"] = {**(own.get("labels") or {}), **labels, GANG_LABEL: gang.name}
                pod["spec"]["schedulerName"] = self.contender.scheduler
            yield GangObject(None, document)


def _environment(gang: GangAsked, rank: int | None) -> list[Document]:
    """A Job's pod is told its rank by Kubernetes."""
    index = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}
    values = {"GANG": gang.name, "SIZE": str(gang.size), "DURATION": f"{gang.duration_s:g}"}
    own: Document = {"valueFrom": index} if rank is None else {"value": str(rank)}
    return [*({"name": name, "value": value} for name, value in values.items()), {"name": "RANK", **own}]


def _suspend(document: Document) -> None:
    """Kueue lets it go."""
    if (document.get("apiVersion"), document["kind"]) != (JOBS.api_version, JOBS.kind):
        raise Rejected(f"contender kueue is measured with Jobs, but workload.template has a {document['kind']}")
    document["spec"]["suspend"] = True


def fill_template(text: str, gang: GangAsked, contender: ContenderWanted) -> list[Document]:
    """${name}, ${size}, ${workers} (all but one), ${cpus}, ${memory}, ${gpus}, ${duration} and ${schedulerName}."""
    values = {
        "name": gang.name,
        "size": gang.size,
        "workers": gang.size - 1,
        "cpus": f"{gang.cpus_milli}m",
        "memory": f"{gang.memory_mib}Mi",
        "gpus": gang.gpus,
        "duration": f"{gang.duration_s:g}",
        "schedulerName": contender.scheduler,
    }
    filled = Template(text).safe_substitute(values)
    documents = [one.value for one in parse_documents(filled, lambda _: True)]
    if not documents or not all(isinstance(one, dict) and one.get("kind") for one in documents):
        raise Rejected("workload.template must hold Kubernetes objects, each with apiVersion, kind and metadata.name")
    if not any(list(pod_templates(one)) for one in documents):
        raise Rejected("workload.template has no pods: no object of it is a Pod or has a pod template")
    return documents


def pod_templates(value: Any) -> Iterator[Document]:
    """Wherever they stand: of a Job, a JobSet, a PyTorchJob, an MPIJob, or the Pod itself."""
    if isinstance(value, list):
        for one in value:
            yield from pod_templates(one)
    if not isinstance(value, dict):
        return
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        yield value
        return
    for one in value.values():
        yield from pod_templates(one)
