"""What do pods look like that stand in for a job that waits?

A job has no pods before it starts, and a cluster autoscaler adds nodes for pods only. So a pod stands in for each of
its tasks: it asks for what the task asks for, says that it cannot be placed, and is never placed. It names us as its
scheduler, so nobody else places it either, and its image is never pulled. Like every pod of ours it fits Pod Security
"restricted". Its name is made from what it stands in for: made twice, it is there once.
"""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.picture import SCHEDULER, STAND_IN, STORE
from swell.engines.kubernetes.rules import render_rules
from swell.model.job import JobId
from swell.model.kubernetes_quantity import GPU
from swell.model.placement import Rules
from swell.model.resources import Resources

Document = dict[str, Any]

ROLE = "swell.dev/stand-in-role"  # label: which role of the job, by its number; rules of company are about one role
IMAGE = "registry.k8s.io/pause:3.10"


def make_stand_in(
    resources: Resources, rules: Rules | None, *, job: JobId, role: int, rank: int, store: str, namespace: str
) -> Document:
    """`rank`: of the task, in the whole job."""
    labels = {STAND_IN: str(job), ROLE: str(role), STORE: store}
    container = {
        "name": "stand-in",
        "image": IMAGE,
        "resources": _amounts(resources),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        **render_rules(rules, labels),
    }
    metadata = {"name": stand_in_name(store, job, rank), "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def stand_in_name(store: str, job: JobId, rank: int) -> str:
    return f"swell-stand-in-{store[:8]}-{job}-{rank}"


def _amounts(resources: Resources) -> Document:
    """A share of a GPU needs a GPU that is not there yet: a whole one."""
    gpus = 1 if resources.is_share else resources.gpus
    requests = {}
    if resources.cpus_milli:
        requests["cpu"] = f"{resources.cpus_milli}m"
    if resources.memory_mib:
        requests["memory"] = f"{resources.memory_mib}Mi"
    if gpus:
        requests[GPU] = str(gpus)
    limits = {GPU: requests[GPU]} if gpus else {}
    return {side: given for side, given in (("requests", requests), ("limits", limits)) if given}
