"""Which nodes may a task go to, by Kubernetes' rules?

A node has labels and taints; a task has requirements of the first and tolerates some of the second. The meaning is
Kubernetes' to the letter, also where it surprises: `NotIn` holds where the label is missing, a term without any
requirement holds nowhere, and a taint that only prefers others to stay away keeps nobody off. Wishes ("preferred")
are no rules and are not here. On a machine of our own nobody labels anything and the rules do not apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

Labels = Mapping[str, str]


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"  # as whole numbers
    LT = "Lt"


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Company(StrEnum):
    """Where the tasks of one role want each other."""

    ANY = "any"
    APART = "apart"  # no two on one node
    TOGETHER = "together"  # all on one node


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()  #: none for Exists and DoesNotExist, one for Gt and Lt

    def holds(self, labels: Labels) -> bool:
        found = labels.get(self.key)
        if self.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST):
            return found is None or (self.operator is Operator.NOT_IN and found not in self.values)
        if found is None or self.operator is Operator.EXISTS:
            return found is not None
        if self.operator is Operator.IN:
            return found in self.values
        number, bound = parse_int64(found), parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound

    def __str__(self) -> str:
        return " ".join((self.key, self.operator, *((f"[{', '.join(self.values)}]",) if self.values else ())))


@dataclass(frozen=True, slots=True)
class Term:
    """Holds where all its requirements do; nowhere if it has none."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()  #: of the only field there is, metadata.name

    def holds(self, labels: Labels, fields: Labels) -> bool:
        if not self.labels and not self.fields:
            return False
        return all(one.holds(labels) for one in self.labels) and all(one.holds(fields) for one in self.fields)

    def __str__(self) -> str:
        return " and ".join(map(str, (*self.labels, *self.fields))) or "nothing"


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps tasks off a node, unless they tolerate it."""

    key: str
    value: str
    effect: Effect

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""  #: empty: every key
    value: str | None = ""  #: None: whatever it is
    effect: Effect | None = None  #: None: every effect

    def covers(self, taint: Taint) -> bool:
        return (
            self.effect in (None, taint.effect)
            and self.key in ("", taint.key)
            and (self.value is None or self.value == taint.value)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """What one role asks of the nodes for its tasks."""

    selector: tuple[tuple[str, str], ...] = ()  #: labels, all of them
    terms: tuple[Term, ...] = ()  #: one of them must hold; empty: anywhere
    tolerations: tuple[Toleration, ...] = ()
    company: Company = Company.ANY

    def to_document(self) -> dict[str, Any]:
        return {
            "selector": dict(self.selector),
            "terms": [asdict(term) for term in self.terms],
            # Every pod has two of them; `asdict` is slow.
            "tolerations": [{"key": one.key, "value": one.value, "effect": one.effect} for one in self.tolerations],
            "company": self.company,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Rules:
        return cls(
            selector=tuple(sorted(document["selector"].items())),
            terms=tuple(
                Term(_parse_requirements(term["labels"]), _parse_requirements(term["fields"]))
                for term in document["terms"]
            ),
            tolerations=tuple(
                Toleration(one["key"], one["value"], None if one["effect"] is None else Effect(one["effect"]))
                for one in document["tolerations"]
            ),
            company=Company(document["company"]),
        )


NO_RULES = Rules()
CORDON = Taint("node.kubernetes.io/unschedulable", "", Effect.NO_SCHEDULE)  # what a cordon is to who tolerates it
NODE_NAME = "metadata.name"


def objection(
    rules: Rules, labels: Labels, taints: Iterable[Taint], *, name: str = "", is_cordoned: bool = False
) -> str | None:
    """Why a task may not go to a node; None: it may. Company is not looked at: that takes all of the tasks."""
    if is_cordoned and not _is_tolerated(CORDON, rules):
        return "it is cordoned"
    for taint in taints:
        if taint.effect is not Effect.PREFER_NO_SCHEDULE and not _is_tolerated(taint, rules):
            return f"its taint {taint} is not tolerated"
    for key, value in rules.selector:
        if labels.get(key) != value:
            return f"its label {key} is {labels.get(key, 'not there')}, not {value}"
    if rules.terms and not any(term.holds(labels, {NODE_NAME: name}) for term in rules.terms):
        return f"it has not: {', nor: '.join(map(str, rules.terms))}"
    return None


def _is_tolerated(taint: Taint, rules: Rules) -> bool:
    return any(toleration.covers(taint) for toleration in rules.tolerations)


def parse_int64(text: str) -> int | None:
    """As Go reads a whole number; None: it is none."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _parse_requirements(documents: list[dict[str, Any]]) -> tuple[Requirement, ...]:
    return tuple(Requirement(one["key"], Operator(one["operator"]), tuple(one["values"])) for one in documents)
