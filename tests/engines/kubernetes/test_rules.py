"""Rules that are written into a pod are read from it as the same rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swell.manifests.affinity import read_rules
from swell.model.placement import (
    NO_RULES,
    NODE_NAME,
    Company,
    Effect,
    Operator,
    PlacementRules,
    Requirement,
    Term,
    Toleration,
)
from swell.model.placement_fields import render_rules

LABELS = {"swell.dev/stand-in": "7", "swell.dev/stand-in-role": "0"}
KEYS = st.sampled_from(["zone", "example.com/pool", "gpu"])
VALUES = st.sampled_from(["", "a", "b", "a100"])
SETS = st.builds(
    Requirement,
    KEYS,
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.lists(VALUES, min_size=1, max_size=3).map(tuple),
)
EXISTENCES = st.builds(Requirement, KEYS, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST]))
BOUNDS = st.builds(Requirement, KEYS, st.sampled_from([Operator.GT, Operator.LT]), st.sampled_from([("0",), ("16",)]))
FIELDS = st.builds(
    Requirement,
    st.just(NODE_NAME),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sampled_from([("n1",), ("n2",)]),
)
TERMS = st.builds(
    Term,
    st.lists(SETS | EXISTENCES | BOUNDS, max_size=3).map(tuple),
    st.lists(FIELDS, max_size=2).map(tuple),
)
EFFECTS = st.none() | st.sampled_from(list(Effect))
TOLERATIONS = st.builds(Toleration, KEYS, st.none() | VALUES, EFFECTS) | st.builds(
    Toleration, st.just(""), st.none(), EFFECTS
)
RULES = st.builds(
    PlacementRules,
    st.dictionaries(KEYS, VALUES).map(lambda labels: tuple(sorted(labels.items()))),
    st.lists(TERMS, max_size=3).map(tuple),
    st.lists(TOLERATIONS, max_size=3).map(tuple),
    st.sampled_from(list(Company)),
)


@given(RULES)
def test_what_is_written_is_read_as_the_same_rules(rules: PlacementRules) -> None:
    found, notes = read_rules(render_rules(rules, LABELS), "spec", LABELS)
    assert (found or NO_RULES, notes) == (rules, ())


def test_without_rules_nothing_is_written() -> None:
    assert render_rules(None, LABELS) == render_rules(NO_RULES, LABELS) == {}


def test_each_rule_has_its_place_in_a_pod() -> None:
    rules = PlacementRules(
        selector=(("pool", "spot"),),
        terms=(Term((Requirement("zone", Operator.IN, ("a", "b")), Requirement("old", Operator.DOES_NOT_EXIST))),),
        tolerations=(Toleration("gpu", "yes", Effect.NO_SCHEDULE), Toleration("", None)),
        company=Company.APART,
    )
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    zone = [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"}]
    others = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
    assert render_rules(rules, LABELS) == {
        "nodeSelector": {"pool": "spot"},
        "affinity": {
            "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": zone}]}},
            "podAntiAffinity": {required: [others]},
        },
        "tolerations": [
            {"operator": "Equal", "value": "yes", "key": "gpu", "effect": "NoSchedule"},
            {"operator": "Exists"},
        ],
    }
