"""Which nodes does a pod ask for?

Rules are read; wishes ("preferred…") are noted and have no effect. Of rules about other pods those are read that
are about the pods of the same role and single nodes: all apart, or all together. What else is asked for of other
pods cannot be planned with. On a cluster it is refused, because there a rule is kept or refused, never dropped; on one
machine, which is a single node, it is noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import (
    Fields,
    describe,
    shorten,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
)
from swell.model.placement import (
    NO_RULES,
    NODE_NAME,
    OWN_LABELS,
    Company,
    Effect,
    Operator,
    PlacementRules,
    Requirement,
    Term,
    Toleration,
    parse_int64,
)
from swell.model.placement_fields import HOSTNAME, REQUIRED

ENTRIES_MAX = 200  # of one list; each is held against every node of a cluster
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
AFFINITY = Fields(used=("nodeAffinity", "podAffinity", "podAntiAffinity"))
KIND = Fields(used=(REQUIRED,), idle=(PREFERRED,))
NODE_SELECTOR = Fields(used=("nodeSelectorTerms",))
NODE_TERM = Fields(used=("matchExpressions", "matchFields"))
EXPRESSION = Fields(used=("key", "operator", "values"))
POD_TERM = Fields(
    used=("labelSelector", "topologyKey", "namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys")
)
LABEL_SELECTOR = Fields(used=("matchLabels", "matchExpressions"))
TOLERATION = Fields(used=("key", "operator", "value", "effect"), idle=("tolerationSeconds",))
WISHED_SPREAD = "ScheduleAnyway"
NOT_KEPT = (
    "is about pods that are not of this role, or about more than single nodes; Swell does not plan with such a rule, "
    f"and does not drop it: write it under {PREFERRED}, or create the pods for a scheduler that keeps it"
)
SPREAD_NOT_KEPT = (
    "must be kept (DoNotSchedule), but Swell does not plan with it, and does not drop it: write whenUnsatisfiable: "
    f"{WISHED_SPREAD}, or, for one pod on each node, podAntiAffinity with topologyKey {HOSTNAME}"
)
NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{NAME}")
VALUE = re.compile(rf"(?:{NAME})?")
NODE = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


def read_rules(
    spec: dict[str, Any], where: str, labels: Mapping[str, str], *, on_cluster: bool = False
) -> tuple[PlacementRules | None, tuple[str, ...]]:
    """What a pod with these labels asks for, and what of it has no effect, in words. None: it asks for nothing."""
    affinity = take_optional(spec.get("affinity"), f"{where}.affinity")
    AFFINITY.check(affinity, f"{where}.affinity")
    kinds = {kind: _take_kind(affinity, kind, f"{where}.affinity.{kind}") for kind in AFFINITY.used}
    notes = [
        f"{where}.affinity.{kind}.{PREFERRED} is a wish and has no effect"
        for kind, given in kinds.items()
        if take_list(given.get(PREFERRED), f"{where}.affinity.{kind}.{PREFERRED}")
    ]
    company = _company(kinds, f"{where}.affinity", labels, notes, on_cluster=on_cluster)
    if on_cluster:
        _refuse_spreads(spec, where)
    rules = PlacementRules(
        selector=tuple(sorted(read_labels(spec.get("nodeSelector"), f"{where}.nodeSelector").items())),
        terms=_terms(kinds["nodeAffinity"].get(REQUIRED), f"{where}.affinity.nodeAffinity.{REQUIRED}"),
        tolerations=_tolerations(spec.get("tolerations"), f"{where}.tolerations"),
        company=company,
    )
    return None if rules == NO_RULES else rules, tuple(notes)


def is_about_tags(rules: object) -> bool:
    """Does a selector, or do tolerations, name nothing but labels that workers have?"""
    entries = rules if isinstance(rules, list | dict) else ()
    keys = [entry.get("key") if isinstance(entry, dict) else entry for entry in entries]
    return all(str(key).startswith(OWN_LABELS) for key in keys)


def read_labels(value: object, where: str) -> dict[str, str]:
    """Labels as Kubernetes would take them."""
    given = take_optional(value, where)
    return {_key(key, where): _value(text, f"{where}: {shorten(key)}") for key, text in given.items()}


def _take_kind(affinity: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    given = take_optional(affinity.get(kind), where)
    KIND.check(given, where)
    return given


def _few(value: object, where: str) -> list[Any]:
    entries = take_list(value, where)
    if len(entries) > ENTRIES_MAX:
        raise Rejected(f"{where} has {len(entries)} entries; the maximum is {ENTRIES_MAX}")
    return entries


def _key(value: object, where: str) -> str:
    if not isinstance(value, str) or KEY.fullmatch(value) is None:
        raise Rejected(f"{where}: {describe(value)} cannot be the name of a label; write zone, or example.com/zone")
    return value


def _value(value: object, where: str) -> str:
    if not isinstance(value, str) or VALUE.fullmatch(value) is None:
        raise Rejected(
            f"{where}: {describe(value)} cannot be the value of a label: up to 63 letters, digits, '-', '_' or '.'"
        )
    return value


# -- nodes ---------------------------------------------------------------------------------------------------


def _terms(value: object, where: str) -> tuple[Term, ...]:
    if value is None:
        return ()
    given = take_mapping(value, where)
    NODE_SELECTOR.check(given, where)
    where = f"{where}.nodeSelectorTerms"
    entries = _few(given.get("nodeSelectorTerms"), where)
    if not entries:
        raise Rejected(f"{where} is empty, so no node can match; give a term, or leave {REQUIRED} out")
    return tuple(_term(entry, f"{where}[{number}]") for number, entry in enumerate(entries))


def _term(value: object, where: str) -> Term:
    given = take_mapping(value, where)
    NODE_TERM.check(given, where)
    labels = _expressions(given.get("matchExpressions"), f"{where}.matchExpressions", tuple(Operator))
    fields = tuple(
        _field(entry, f"{where}.matchFields[{number}]")
        for number, entry in enumerate(_few(given.get("matchFields"), f"{where}.matchFields"))
    )
    return Term(labels, fields)


def _expressions(value: object, where: str, operators: tuple[Operator, ...]) -> tuple[Requirement, ...]:
    return tuple(_expression(entry, f"{where}[{number}]", operators) for number, entry in enumerate(_few(value, where)))


def _expression(value: object, where: str, operators: tuple[Operator, ...]) -> Requirement:
    given = take_mapping(value, where)
    EXPRESSION.check(given, where)
    operator = Operator(take_choice(given.get("operator"), operators, f"{where}.operator"))
    values = _few(given.get("values"), f"{where}.values")
    if operator in (Operator.GT, Operator.LT):
        texts = tuple(str(entry) for entry in values)
        if len(texts) != 1 or parse_int64(texts[0]) is None:
            raise Rejected(f"{where}.values of {operator} must be one whole number, but is {describe(values)}")
        return Requirement(_key(given.get("key"), f"{where}.key"), operator, texts)
    _check_number(operator, values, where)
    texts = tuple(_value(entry, f"{where}.values[{number}]") for number, entry in enumerate(values))
    return Requirement(_key(given.get("key"), f"{where}.key"), operator, texts)


def _check_number(operator: Operator, values: list[Any], where: str) -> None:
    is_needed = operator in (Operator.IN, Operator.NOT_IN)
    if is_needed != bool(values):
        raise Rejected(f"{where}.values of {operator} must {'hold at least one value' if is_needed else 'be left out'}")


def _field(value: object, where: str) -> Requirement:
    given = take_mapping(value, where)
    EXPRESSION.check(given, where)
    operator = Operator(take_choice(given.get("operator"), (Operator.IN, Operator.NOT_IN), f"{where}.operator"))
    key = take_choice(given.get("key"), (NODE_NAME,), f"{where}.key")
    values = _few(given.get("values"), f"{where}.values")
    if len(values) != 1 or not isinstance(values[0], str) or NODE.fullmatch(values[0]) is None:
        raise Rejected(f"{where}.values must be the name of one node, but is {describe(values)}")
    return Requirement(key, operator, (values[0],))


def _tolerations(value: object, where: str) -> tuple[Toleration, ...]:
    return tuple(_toleration(entry, f"{where}[{number}]") for number, entry in enumerate(_few(value, where)))


def _toleration(value: object, where: str) -> Toleration:
    """How long it is tolerated does not matter: a task of ours that was evicted is started again."""
    given = take_mapping(value, where)
    TOLERATION.check(given, where)
    key, operator, text, effect = (
        "" if given.get(field) is None else take_text(given[field], f"{where}.{field}") for field in TOLERATION.used
    )
    operator = take_choice(operator or "Equal", ("Equal", "Exists"), f"{where}.operator")
    if operator == "Exists" and text:
        raise Rejected(f"{where}.value is given, but with the operator Exists every value is tolerated; leave it out")
    if operator == "Equal" and not key:
        raise Rejected(f"{where} has no key; to tolerate every taint write operator: Exists")
    return Toleration(
        key=_key(key, f"{where}.key") if key else "",
        value=None if operator == "Exists" else _value(text, f"{where}.value"),
        effect=None if not effect else Effect(take_choice(effect, tuple(Effect), f"{where}.effect")),
    )


# -- other pods ----------------------------------------------------------------------------------------------


def _company(
    kinds: Mapping[str, dict[str, Any]], where: str, labels: Mapping[str, str], notes: list[str], *, on_cluster: bool
) -> Company:
    found = Company.ANY
    for kind, meaning in (("podAffinity", Company.TOGETHER), ("podAntiAffinity", Company.APART)):
        for number, entry in enumerate(_few(kinds[kind].get(REQUIRED), f"{where}.{kind}.{REQUIRED}")):
            here = f"{where}.{kind}.{REQUIRED}[{number}]"
            if not _is_about_itself(entry, here, labels):
                if on_cluster and not _means_nobody(entry, meaning):
                    raise Rejected(f"{here} {NOT_KEPT}")
                notes.append(f"{here} is not about this role's own tasks on single nodes and has no effect")
            elif found not in (Company.ANY, meaning):
                raise Rejected(f"{here}: podAffinity and podAntiAffinity contradict each other; remove one")
            else:
                found = meaning
    return found


def _means_nobody(value: object, meaning: Company) -> bool:
    """A selector that is left out means no pod, and from nobody everybody keeps away."""
    return meaning is Company.APART and take_mapping(value, "").get("labelSelector") is None


def selectors(spec: dict[str, Any], where: str) -> Iterator[tuple[str, object]]:
    """What the rules about other pods select, and where each stands; of a pod whose rules were read."""
    affinity = take_optional(spec.get("affinity"), f"{where}.affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        entries = take_list(take_optional(affinity.get(kind), where).get(REQUIRED), where)
        for number, entry in enumerate(entries):
            yield f"{where}.affinity.{kind}.{REQUIRED}[{number}]", entry.get("labelSelector")


def _refuse_spreads(spec: dict[str, Any], where: str) -> None:
    """Those that are only wished for (`ScheduleAnyway`) are noted elsewhere."""
    where = f"{where}.topologySpreadConstraints"
    for number, entry in enumerate(_few(spec.get("topologySpreadConstraints"), where)):
        given = take_mapping(entry, f"{where}[{number}]")
        if given.get("whenUnsatisfiable") != WISHED_SPREAD:
            raise Rejected(f"{where}[{number}] {SPREAD_NOT_KEPT}")


def _is_about_itself(value: object, where: str, labels: Mapping[str, str]) -> bool:
    """By labels alone, on single nodes, and the pod's own labels are among those meant."""
    given = take_mapping(value, where)
    POD_TERM.check(given, where)
    means_itself = selects(given.get("labelSelector"), f"{where}.labelSelector", labels)
    is_plain = all(field in ("labelSelector", "topologyKey") or not given[field] for field in given)
    is_here = given.get("namespaceSelector") is None  # an empty one means every namespace
    return means_itself and is_plain and is_here and given.get("topologyKey") == HOSTNAME


def selects(value: object, where: str, labels: Mapping[str, str]) -> bool:
    """A selector that is left out means no pod, an empty one every pod."""
    if value is None:
        return False
    given = take_mapping(value, where)
    LABEL_SELECTOR.check(given, where)
    wanted = read_labels(given.get("matchLabels"), f"{where}.matchLabels")
    sets = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
    expressions = _expressions(given.get("matchExpressions"), f"{where}.matchExpressions", sets)
    return all(labels.get(key) == text for key, text in wanted.items()) and all(
        one.holds(labels) for one in expressions
    )
