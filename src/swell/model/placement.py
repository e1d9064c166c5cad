"""Which nodes may a task go to, by Kubernetes' rules?

A node has labels and taints; a task has requirements of the first and tolerates some of the second. The meaning is
Kubernetes' to the letter, also where it surprises: `NotIn` holds where the label is missing, a term without any
requirement holds nowhere, and a taint that only prefers others to stay away keeps nobody off. Wishes ("preferred")
are no rules and are not here. A machine of our own has no labels, so the rules do not apply there, with one exception:
a selector of a label under `swell.dev/`, which only a worker with a tag has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from swell.model.codec import Variables

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
class Domain:
    """Nodes with the same value of one label, which equal tasks have to themselves (JobSet's exclusive placement)."""

    key: str  #: the label, as in topology.kubernetes.io/zone
    tasks: int  #: so many in a row of a role are in one domain, the next ones in another


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """What one role asks of the nodes for its tasks."""

    selector: Variables = ()  #: labels, all of them
    terms: tuple[Term, ...] = ()  #: one of them must hold; empty: anywhere
    tolerations: tuple[Toleration, ...] = ()
    company: Company = Company.ANY
    groups: tuple[str, ...] = ()  #: of the user when the job was submitted; no manifest can name them
    domain: Domain | None = None  #: None: any nodes will do


NO_RULES = PlacementRules()
CORDON = Taint("node.kubernetes.io/unschedulable", "", Effect.NO_SCHEDULE)  # what a cordon is to who tolerates it
NODE_NAME = "metadata.name"
OWN_LABELS = "swell.dev/"  # the prefix of labels that Swell gives to nodes
#: The annotation of a JobSet, of its Jobs or of their pods that says which label its domains have.
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
GROUP_TAINT = "swell.dev/group"  # of a node whose worker is for the users of one group; no toleration covers it


def objection(
    rules: PlacementRules, labels: Labels, taints: Iterable[Taint], *, name: str = "", is_cordoned: bool = False
) -> str | None:
    """Why a task may not go to a node; None: it may. Company is not looked at: that takes all of the tasks."""
    if is_cordoned and not _is_tolerated(CORDON, rules):
        return "it is cordoned"
    for taint in taints:
        if taint.key == GROUP_TAINT:
            if taint.value not in rules.groups:
                return f"it is for the group {taint.value}"
        elif taint.effect is not Effect.PREFER_NO_SCHEDULE and not _is_tolerated(taint, rules):
            return f"its taint {taint} is not tolerated"
    for key, value in rules.selector:
        if labels.get(key) != value:
            return f"its label {key} is {labels.get(key, 'not there')}, not {value}"
    if rules.terms and not any(term.holds(labels, {NODE_NAME: name}) for term in rules.terms):
        return f"it has not: {', nor: '.join(map(str, rules.terms))}"
    return None


def unlabeled_objection(rules: PlacementRules | None) -> str | None:
    """Why a task may not go to a machine of our own that has no labels; None: it may."""
    wanted = rules.selector if rules is not None else ()
    own = ((key, value) for key, value in wanted if key.startswith(OWN_LABELS))
    return next((f"its label {key} is not there, not {value}" for key, value in own), None)


def _is_tolerated(taint: Taint, rules: PlacementRules) -> bool:
    return any(toleration.covers(taint) for toleration in rules.tolerations)


def parse_int64(text: str) -> int | None:
    """As Go reads a whole number; None: it is none."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
