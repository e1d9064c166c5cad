"""How are rules about nodes written in the specification of a pod, and which label makes pods one group?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swell.model.placement import NO_RULES, Company, PlacementRules, Requirement, Term, Toleration

Document = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label of coscheduling and Fluence: pods that start together
COMPANY = {Company.APART: "podAntiAffinity", Company.TOGETHER: "podAffinity"}


def render_rules(rules: PlacementRules | None, labels: Mapping[str, str]) -> Document:
    """Fields of a pod's `spec`. `labels` are those that the pods of this role have, and nobody else."""
    given = rules or NO_RULES
    affinity: Document = {}
    if given.terms:
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [_term(term) for term in given.terms]}}
    if given.company in COMPANY:
        others = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": dict(labels)}}
        affinity[COMPANY[given.company]] = {REQUIRED: [others]}
    fields = {
        "nodeSelector": dict(given.selector),
        "affinity": affinity,
        "tolerations": [_toleration(one) for one in given.tolerations],
    }
    return {name: value for name, value in fields.items() if value}


def _term(term: Term) -> Document:
    parts = {"matchExpressions": term.labels, "matchFields": term.fields}
    return {name: [_requirement(one) for one in given] for name, given in parts.items() if given}


def _requirement(one: Requirement) -> Document:
    values = {"values": list(one.values)} if one.values else {}
    return {"key": one.key, "operator": str(one.operator), **values}


def _toleration(one: Toleration) -> Document:
    said: Document = {"operator": "Exists"} if one.value is None else {"operator": "Equal", "value": one.value}
    if one.key:
        said["key"] = one.key
    if one.effect is not None:
        said["effect"] = str(one.effect)
    return said
