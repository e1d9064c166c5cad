"""Kubernetes' rules for nodes, held against its own definitions."""

from __future__ import annotations

import json

import pytest

from swell.model.codec import from_document, to_document
from swell.model.placement import (
    CORDON,
    GROUP_TAINT,
    NO_RULES,
    Company,
    Effect,
    Operator,
    PlacementRules,
    Requirement,
    Taint,
    Term,
    Toleration,
    objection,
)

LABELS = {"zone": "a", "cores": "16", "empty": ""}
NO_SCHEDULE, NO_EXECUTE, PREFER = Effect.NO_SCHEDULE, Effect.NO_EXECUTE, Effect.PREFER_NO_SCHEDULE


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("missing", "In", ("a",), False),
        ("missing", "In", ("",), False),
        ("empty", "In", ("",), True),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a", "b"), False),
        ("missing", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("empty", "Exists", (), True),
        ("missing", "Exists", (), False),
        ("zone", "DoesNotExist", (), False),
        ("missing", "DoesNotExist", (), True),
        ("cores", "Gt", ("15",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Gt", ("9",), True),
        ("cores", "Gt", ("-1",), True),
        ("cores", "Lt", ("17",), True),
        ("cores", "Lt", ("16",), False),
        ("cores", "Lt", ("+17",), True),
        ("missing", "Gt", ("0",), False),
        ("missing", "Lt", ("0",), False),
        ("zone", "Gt", ("0",), False),
        ("zone", "Lt", ("0",), False),
        ("empty", "Lt", ("1",), False),
        ("cores", "Gt", ("1e1",), False),
        ("cores", "Lt", (str(2**63),), False),
        ("cores", "Lt", (str(2**63 - 1),), True),
    ],
)
def test_a_requirement_holds_as_in_kubernetes(key, operator, values, holds):
    assert Requirement(key, Operator(operator), values).holds(LABELS) is holds


@pytest.mark.parametrize("text", ["1_6", " 16", "16.0", "0x10", "", "١٦"])
def test_a_label_that_is_no_whole_number_is_neither_above_nor_below(text):
    for operator in (Operator.GT, Operator.LT):
        assert not Requirement("cores", operator, ("0",)).holds({"cores": text})


ZONE_A = Requirement("zone", Operator.IN, ("a",))
ZONE_B = Requirement("zone", Operator.IN, ("b",))
HAS_CORES = Requirement("cores", Operator.EXISTS)
NAMED = Requirement("metadata.name", Operator.IN, ("n1",))


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ((), None),
        ((Term((ZONE_A,)),), None),
        ((Term((ZONE_A, HAS_CORES)),), None),
        ((Term((ZONE_B,)), Term((ZONE_A,))), None),
        ((Term((ZONE_A, ZONE_B)),), "it has not: zone In [a] and zone In [b]"),
        ((Term((ZONE_B,)), Term()), "it has not: zone In [b], nor: nothing"),
        ((Term(),), "it has not: nothing"),
        ((Term(fields=(NAMED,)),), None),
        ((Term((ZONE_B,), (NAMED,)),), "it has not: zone In [b] and metadata.name In [n1]"),
        (
            (Term(fields=(Requirement("metadata.name", Operator.NOT_IN, ("n1",)),)),),
            "it has not: metadata.name NotIn [n1]",
        ),
    ],
)
def test_one_term_is_enough_but_it_must_hold_as_a_whole(terms, said):
    assert objection(PlacementRules(terms=terms), LABELS, (), name="n1") == said


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ((("zone", "a"),), None),
        ((("empty", ""),), None),
        ((("cores", "16"), ("zone", "b")), "its label zone is a, not b"),
        ((("disk", "ssd"),), "its label disk is not there, not ssd"),
        ((("disk", ""),), "its label disk is not there, not "),
    ],
)
def test_every_label_of_a_selector_is_needed(selector, said):
    assert objection(PlacementRules(selector=selector), LABELS, ()) == said


GPU = Taint("gpu", "a100", NO_SCHEDULE)


@pytest.mark.parametrize(
    ("taint", "toleration", "is_tolerated"),
    [
        (GPU, None, False),
        (GPU, Toleration("gpu", "a100", NO_SCHEDULE), True),
        (GPU, Toleration("gpu", "a100"), True),
        (GPU, Toleration("gpu", None), True),
        (GPU, Toleration("", None), True),
        (GPU, Toleration("", None, NO_SCHEDULE), True),
        (GPU, Toleration("", None, NO_EXECUTE), False),
        (GPU, Toleration("gpu", "h100"), False),
        (GPU, Toleration("gpu"), False),
        (GPU, Toleration("cpu", None), False),
        (GPU, Toleration("gpu", "a100", PREFER), False),
        (Taint("gpu", "", NO_SCHEDULE), Toleration("gpu"), True),
        (Taint("gpu", "", NO_EXECUTE), None, False),
        (Taint("gpu", "", NO_EXECUTE), Toleration("gpu", "", NO_SCHEDULE), False),
        (Taint("gpu", "", NO_EXECUTE), Toleration("gpu", "", NO_EXECUTE), True),
        (Taint("gpu", "", PREFER), None, True),
    ],
)
def test_a_taint_keeps_off_who_does_not_tolerate_it(taint, toleration, is_tolerated):
    rules = PlacementRules(tolerations=() if toleration is None else (toleration,))
    said = None if is_tolerated else f"its taint {taint} is not tolerated"
    assert objection(rules, {}, (taint,)) == said


def test_every_taint_must_be_tolerated():
    taints = (GPU, Taint("spot", "", NO_EXECUTE))
    assert objection(PlacementRules(tolerations=(Toleration("gpu", None),)), {}, taints) == (
        "its taint spot:NoExecute is not tolerated"
    )
    assert objection(PlacementRules(tolerations=(Toleration("gpu", None), Toleration("spot"))), {}, taints) is None


def test_a_cordoned_node_takes_only_who_tolerates_that():
    assert objection(NO_RULES, {}, (), is_cordoned=True) == "it is cordoned"
    for toleration in (Toleration("", None), Toleration(CORDON.key, None, NO_SCHEDULE)):
        assert objection(PlacementRules(tolerations=(toleration,)), {}, (CORDON,), is_cordoned=True) is None


def test_a_node_for_a_group_takes_jobs_of_its_users_only_whatever_they_tolerate():
    taints = (Taint(GROUP_TAINT, "vision", NO_SCHEDULE),)
    everything = (Toleration("", None), Toleration(GROUP_TAINT, "vision", NO_SCHEDULE))
    for groups in ((), ("audio",)):
        rules = PlacementRules(tolerations=everything, groups=groups)
        assert objection(rules, {}, taints) == "it is for the group vision"
    assert objection(PlacementRules(groups=("audio", "vision")), {}, taints) is None


def test_rules_can_be_stored_and_compared():
    rules = PlacementRules(
        selector=(("a", "1"), ("b", "2")),
        terms=(Term((ZONE_A, HAS_CORES), (NAMED,)), Term()),
        tolerations=(Toleration("gpu", None, NO_EXECUTE), Toleration()),
        company=Company.APART,
        groups=("vision",),
    )
    again = from_document(PlacementRules, json.loads(json.dumps(to_document(rules))))
    assert (again, hash(again)) == (rules, hash(rules))
    assert from_document(PlacementRules, json.loads(json.dumps(to_document(NO_RULES)))) == NO_RULES
