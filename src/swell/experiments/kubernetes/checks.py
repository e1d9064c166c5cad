"""May this experiment be measured on this cluster? Asked before anything is touched; each refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS, SELF_REVIEWS, Resource
from swell.errors import Conflict, Denied, Rejected
from swell.experiments.experiment import Experiment, ObjectForm
from swell.experiments.kubernetes.contender import ClusterContender, Rights
from swell.experiments.kubernetes.namespace import NAMESPACES, ExperimentNamespace
from swell.experiments.kubernetes.nodes import SystemPods, UsableNode, foreign_pods
from swell.experiments.kubernetes.render import JOBS
from swell.experiments.too_large import refuse_too_large
from swell.model.quantity import number_of

NAMED_MAX = 5  # pods in a message
ALWAYS: Rights = (
    *(("get", NAMESPACES), ("create", NAMESPACES), ("delete", NAMESPACES)),
    *(("create", PODS), ("list", PODS), ("watch", PODS), ("delete", PODS), ("patch", PODS)),
)


def refuse_unmeasurable(
    experiment: Experiment,
    namespace: ExperimentNamespace,
    nodes: Sequence[UsableNode],
    pods: Iterable[Document],
    contenders: Sequence[ClusterContender],
) -> None:
    namespace.check()
    if not nodes:
        raise Rejected("the cluster has no node that takes pods: none is ready, without a taint and not cordoned")
    if len({node.is_simulated for node in nodes}) > 1:
        raise Rejected(
            "the cluster has simulated nodes (kwok's) and real ones, and a gang would be spread over both; cordon "
            "those that are not to be measured (`kubectl cordon NODE`)"
        )
    foreign = foreign_pods(pods, namespace.name, SystemPods.of(experiment))
    if foreign:
        named = ", ".join(foreign[:NAMED_MAX]) + (
            f" and {len(foreign) - NAMED_MAX} more" if foreign[NAMED_MAX:] else ""
        )
        raise Conflict(
            f"the cluster is not clean: room on its nodes is taken by {number_of(len(foreign), 'pod')} ({named}); "
            "end them, or measure on a cluster of its own: what others use meanwhile would be counted as the "
            "contender's fault. Pods that belong to the cluster or to a scheduler are not counted where the file names "
            "their namespace (cluster.kubernetes.systemNamespaces)"
        )
    refuse_too_large(experiment, [node.room for node in nodes])  # after that: what the pods of others take is not there
    for contender in contenders:
        contender.check()


def _of_workload(experiment: Experiment) -> Rights:
    is_job = experiment.workload.form is ObjectForm.JOB and not experiment.workload.template
    return (("create", JOBS), ("watch", JOBS)) if is_job else ()


def refuse_rights(experiment: Experiment, client: ApiClient, contenders: Sequence[ClusterContender]) -> None:
    """First of all: who may not look would be told so one thing at a time."""
    rights = [*ALWAYS, *_of_workload(experiment), *(right for one in contenders for right in one.rights)]
    namespace = experiment.cluster.namespace
    missing = [
        f"{verb} {resource}" for verb, resource in dict.fromkeys(rights) if not _may(client, verb, resource, namespace)
    ]
    if missing:
        raise Denied(
            f"{client.access.source} may not {', '.join(missing)}, which this experiment needs; ask for it, or use a "
            "context of somebody who may (`kubectl auth can-i --list`)"
        )


def _may(client: ApiClient, verb: str, resource: Resource, namespace: str) -> bool:
    attributes = {"verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural}
    if resource.is_namespaced:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": SELF_REVIEWS.api_version,
        "kind": SELF_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.create(SELF_REVIEWS, body)["status"].get("allowed"))
