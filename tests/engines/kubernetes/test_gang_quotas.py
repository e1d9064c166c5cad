"""A quota of a namespace counts for a gang as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.engines.kubernetes.watch.quotas import gang_demand, is_full_now, is_too_small, refusal_of_gang
from swell.model.kubernetes_quantity import ONE

GPUS = "requests.nvidia.com/gpu"


def pod(**requests: object) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in requests.items()}
    return {"containers": [{"name": "main", "resources": {"requests": amounts}}]}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, "used": used or {}}
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": status}


TWO_AND_ONE = [(pod(cpu="500m", memory="64Mi", gpu=1), 2), (pod(cpu=2, memory="100M"), 1)]


def test_what_a_gang_requests_is_added_up_exactly_by_every_name_of_a_quota():
    cpu, memory = 3 * ONE, (2 * 64 * 2**20 + 100_000_000) * ONE
    assert gang_demand(TWO_AND_ONE) == {
        "cpu": cpu,
        "requests.cpu": cpu,
        "memory": memory,
        "requests.memory": memory,
        GPUS: 2 * ONE,
        "pods": 3 * ONE,
        "count/pods": 3 * ONE,
    }


@pytest.mark.parametrize(
    ("hard", "used", "said"),
    [
        ({}, {}, ""),
        ({"pods": "3"}, {}, ""),
        ({"pods": "3"}, {"pods": "1"}, "requested: pods=3, used: pods=1, limited: pods=3"),
        ({"cpu": "2999m"}, {}, "requested: cpu=3, used: cpu=0, limited: cpu=2999m"),
        ({"memory": "1Gi"}, {"memory": "800Mi"}, ""),
        (
            {"requests.memory": "1Gi"},
            {"requests.memory": "801Mi"},
            "requested: requests.memory=223.367Mi, used: requests.memory=801Mi, limited: requests.memory=1Gi",
        ),
        (
            {GPUS: "8", "requests.cpu": "10"},
            {GPUS: "7", "requests.cpu": "9"},
            f"requested: requests.cpu=3,{GPUS}=2, used: requests.cpu=9,{GPUS}=7, limited: requests.cpu=10,{GPUS}=8",
        ),
        ({"services": "0"}, {}, ""),
    ],
)
def test_a_gang_that_does_not_fit_is_refused_in_the_words_of_the_api_server(hard, used, said):
    found = refusal_of_gang([quota({}), quota(hard, used)], gang_demand(TWO_AND_ONE))
    assert found == (said and f"exceeded quota: team, {said}")
    if found:
        assert is_full_now(found) is not is_too_small(found)


@pytest.mark.parametrize("scope", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}])
def test_a_quota_with_a_scope_is_left_to_the_api_server(scope):
    assert refusal_of_gang([quota({"pods": "0"}, **scope)], gang_demand(TWO_AND_ONE)) == ""


def test_what_a_quota_never_holds_is_known_before_anything_is_used():
    demand = gang_demand(TWO_AND_ONE)
    full = [quota({"pods": "3"}, {"pods": "3"})]
    assert refusal_of_gang(full, demand)
    assert refusal_of_gang(full, demand, is_empty=True) == ""
    assert is_too_small(refusal_of_gang([quota({"pods": "2"})], demand, is_empty=True))


def test_a_quota_that_cannot_be_read_refuses_nobody():
    assert refusal_of_gang([{"metadata": {"name": "odd", "uid": "u"}, "spec": 5}], gang_demand(TWO_AND_ONE)) == ""


AMOUNTS = st.integers(0, 20)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.integers(1, 4)), min_size=1, max_size=3), AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_gang_is_refused_exactly_if_its_sum_is_more_than_what_is_left(roles, hard_cpu, hard_gpu, used):
    demand = gang_demand([(pod(cpu=cpu, gpu=gpu), count) for cpu, gpu, count in roles])
    cpus, gpus = (sum(role[number] * role[2] for role in roles) for number in (0, 1))
    found = refusal_of_gang([quota({"cpu": str(hard_cpu), GPUS: str(hard_gpu)}, {"cpu": str(used)})], demand)
    fits = (not cpus or cpus + used <= hard_cpu) and gpus <= hard_gpu
    assert (found == "") is fits
