"""What does `apiVersion: v1, kind: Pod` ask for?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.manifests.context import Context
from swell.manifests.document import is_in_cluster
from swell.manifests.gang import check_replicas, gang_width, make_spec, pod_parts
from swell.manifests.metadata import read_object
from swell.manifests.podspec import RETRIES_DEFAULT, read_pod
from swell.model.job import JobSpec

RESTARTS = ("Always", "OnFailure", "Never")
ALWAYS = (
    "spec.restartPolicy is Always, with which it would begin again after it has succeeded; it is created with OnFailure"
)


def read(document: dict[str, Any], context: Context) -> JobSpec:
    """`Always`, which is what Kubernetes takes when nothing is said, is read as `OnFailure`: training that has ended
    well is not begun again."""
    identity, spec = read_object(document, context)
    pod = read_pod(spec, "spec", identity.labels, identity, context, restarts=RESTARTS)
    if context.on_cluster and pod.restart == "Always" and not is_in_cluster(document):
        pod = replace(pod, notes=(*pod.notes, ALWAYS))
    check_replicas(identity, 1)
    parts = pod_parts(pod, identity)
    retries = 0 if pod.restart == "Never" else RETRIES_DEFAULT
    return make_spec(identity, context, parts, (pod,), gang_width(parts), retries=retries)
