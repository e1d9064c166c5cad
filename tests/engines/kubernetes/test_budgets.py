"""What a PodDisruptionBudget says is kept for a whole job."""

from __future__ import annotations

import pytest

from swell.engines.kubernetes.watch.budgets import Budget, parse_budget, refusal_of


def budget(selector: object, **status: int) -> Budget:
    return parse_budget({"metadata": {"name": "b"}, "spec": {"selector": selector}, "status": status})


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        (None, None),
        ({}, ""),
        ({"matchLabels": {"app": "a", "tier": "b"}}, "app=a,tier=b"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, "app in (a,b)"),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, "app notin (a)"),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}, {"key": "y", "operator": "DoesNotExist"}]}, "x,!y"),
    ],
)
def test_a_selector_is_asked_for_in_the_words_of_the_api(selector, query):
    assert budget(selector, disruptionsAllowed=2) == Budget("b", query, 2)


def test_a_budget_that_nobody_has_counted_allows_nothing():
    assert budget({}).allowed == 0


def test_a_refusal_says_whose_it_is_and_what_follows():
    assert refusal_of(Budget("web", "", 1), 4) == (
        "PodDisruptionBudget 'web' allows 1 of its 4 pods to be evicted now, and a job is evicted whole or not at all; "
        "it is asked again until it does"
    )
