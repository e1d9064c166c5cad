"""Which group does a pod say that it is of? Pods of one group start together.

By a label of coscheduling; as a member of a LeaderWorkerSet, whose controller labels its pods; or by Kubernetes' own
API, which has changed: in 1.35 a pod names a group of a Workload, in 1.36 a PodGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swell.model.placement_fields import POD_GROUP

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"  # label of its pods: 0 is the leader
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"  # annotation of its pods: how many are in a group
WORKLOAD = "workloadRef"  # field of a pod's specification
SCHEDULING_GROUP = "schedulingGroup"


def group_name(labels: Mapping[str, str], spec: Mapping[str, Any]) -> str:
    """Empty: of none."""
    if POD_GROUP in labels:
        return labels[POD_GROUP]
    if LWS_NAME in labels and LWS_GROUP in labels:
        return f"{labels[LWS_NAME]}-{labels[LWS_GROUP]}"
    reference = spec.get(WORKLOAD)
    if reference:
        parts = (reference.get("name"), reference.get("podGroup"), reference.get("podGroupReplicaKey"))
        return ".".join(str(part) for part in parts if part)
    return str((spec.get(SCHEDULING_GROUP) or {}).get("podGroupName") or "")
