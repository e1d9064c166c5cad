"""Where may a pod go, because of its volumes?

A volume that is bound may be in one zone, or on one node (`nodeAffinity` of the PersistentVolume). One that waits for
its first consumer is made where its class allows (`allowedTopologies` of the StorageClass). Both become terms of the
pod's placement rules when its job is taken in, so that the planner keeps them as it keeps an affinity.

A claim that is bound later than that is not looked at again. A volume of a class that makes none (`no-provisioner`)
is not chosen here: who uses such a claim binds it first, by `volumeName`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from swell.engines.kubernetes.watch.observed_objects import claims_of
from swell.errors import NotFound, Rejected
from swell.model.job import JobSpec
from swell.model.placement import NO_RULES, Operator, PlacementRules, Requirement, Term

Choice = tuple[Term, ...]  # one of them must hold
LATE = "WaitForFirstConsumer"
TERMS_MAX = 200  # each is held against every node


class Volumes:
    def __init__(self, port: ApiClient) -> None:
        self._port = port

    def choices(self, spec: Document, pod: str, namespace: str) -> tuple[Choice, ...]:
        """What its volumes ask of the node, of a pod with this specification; all of them must hold."""
        found = (self._choice(claim, namespace) for claim in claims_of(spec, pod))
        return tuple(one for one in found if one)

    def _choice(self, claim: str, namespace: str) -> Choice:
        try:
            return self._find(claim, namespace)
        except NotFound:  # it is not there yet: its pod waits for it where it is, and says so
            return ()
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Rejected(
                f"where the volume of claim {claim!r} is cannot be read from the claim, its PersistentVolume or its "
                f"StorageClass ({type(error).__name__}: {error}); correct it, or leave the volume out"
            ) from error

    def _find(self, claim: str, namespace: str) -> Choice:
        spec = self._port.get(CLAIMS, claim, namespace).get("spec") or {}
        if spec.get("volumeName"):
            return parse_volume(self._port.get(VOLUMES, spec["volumeName"]))
        name = spec.get("storageClassName")
        return parse_class(self._port.get(STORAGE_CLASSES, name)) if name else ()


def parse_volume(document: Document) -> Choice:
    required = ((document.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    return tuple(_term(one) for one in required.get("nodeSelectorTerms") or ())


def _term(one: Document) -> Term:
    labels, fields = (one.get(name) or () for name in ("matchExpressions", "matchFields"))
    return Term(tuple(map(_requirement, labels)), tuple(map(_requirement, fields)))


def _requirement(one: Document) -> Requirement:
    return _checked(Requirement(one["key"], Operator(one["operator"]), tuple(one.get("values") or ())))


def _checked(one: Requirement) -> Requirement:
    """Raises where no label of a node could be compared with it: every plan would stumble over it."""
    is_number = one.operator in (Operator.GT, Operator.LT)
    if not all(isinstance(text, str) for text in (one.key, *one.values)) or (is_number and len(one.values) != 1):
        raise ValueError(f"{one.key!r} {one.operator} {one.values!r} is no requirement of a label")
    return one


def parse_class(document: Document) -> Choice:
    if document.get("volumeBindingMode") != LATE:
        return ()
    return tuple(Term(tuple(_labels(one))) for one in document.get("allowedTopologies") or ())


def _labels(topology: dict[str, Any]) -> Iterator[Requirement]:
    for one in topology.get("matchLabelExpressions") or ():
        yield _checked(Requirement(one["key"], Operator.IN, tuple(one.get("values") or ())))


def with_choices(rules: PlacementRules | None, choices: Sequence[Choice]) -> PlacementRules | None:
    """The same rules, and what volumes ask for. All must hold, so every term is joined with every other."""
    if not choices:
        return rules
    terms = (rules or NO_RULES).terms
    for choice in choices:
        terms = tuple(_joined(one, other) for one in terms for other in choice) if terms else choice
        terms = tuple(dict.fromkeys(terms))
        if len(terms) > TERMS_MAX:
            raise Rejected(
                f"its node affinity and that of its volumes together are {len(terms)} terms; at most {TERMS_MAX} are "
                "held against every node: write fewer nodeSelectorTerms"
            )
    return replace(rules or NO_RULES, terms=terms)


def _joined(one: Term, other: Term) -> Term:
    if not (one.labels or one.fields) or not (other.labels or other.fields):
        return Term()  # which holds nowhere, as one of them does
    labels, fields = (*one.labels, *other.labels), (*one.fields, *other.fields)
    return Term(tuple(dict.fromkeys(labels)), tuple(dict.fromkeys(fields)))


def with_volumes(spec: JobSpec, choices: Sequence[Sequence[Choice]]) -> JobSpec:
    """`choices`: of the pods of each role."""
    if not any(choices):
        return spec
    roles = [
        replace(role, rules=with_choices(role.rules, asked)) for role, asked in zip(spec.roles, choices, strict=True)
    ]
    return replace(spec, roles=tuple(roles))
