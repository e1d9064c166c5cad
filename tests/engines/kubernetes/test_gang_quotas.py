"""A quota of a namespace counts for a gang as a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.engines.kubernetes.attempt.gang_quotas import STARTING_S, GangQuotas
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.watch.quotas import gang_demand, is_full_now, is_too_small, refusal_of_gang
from swell.errors import Rejected
from swell.model.job import AttemptId
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
    found = refusal_of_gang([quota({}), quota(hard, used)], TWO_AND_ONE)
    assert found == (said and f"exceeded quota: team, {said}")
    if found:
        assert is_full_now(found) is not is_too_small(found)


def selector(operator: str, *values: str, scope: str = "PriorityClass") -> dict[str, Any]:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": [*values]}]}}


HIGH = {**pod(cpu=1), "priorityClassName": "high"}
NAMELESS = {"containers": [{"name": "main"}]}


@pytest.mark.parametrize(
    ("scopes", "spec", "counts"),
    [
        (selector("In", "high"), HIGH, True),
        (selector("In", "low", "high"), HIGH, True),
        (selector("In", "low"), HIGH, False),
        (selector("NotIn", "low"), HIGH, True),
        (selector("NotIn", "high"), HIGH, False),
        (selector("Exists"), HIGH, True),
        (selector("DoesNotExist"), HIGH, False),
        ({"scopes": ["PriorityClass"]}, HIGH, True),
        (selector("NotIn", "low"), pod(cpu=1), False),  # the cluster's default may be a class
        (selector("DoesNotExist"), pod(cpu=1), False),
        ({"scopes": ["Terminating"]}, {**pod(), "activeDeadlineSeconds": 5}, True),
        ({"scopes": ["Terminating"]}, pod(), False),
        ({"scopes": ["NotTerminating"]}, {**pod(), "activeDeadlineSeconds": 5}, False),
        ({"scopes": ["NotTerminating"]}, pod(), True),
        ({"scopes": ["NotBestEffort"]}, pod(memory="1Mi"), True),
        ({"scopes": ["NotBestEffort"]}, pod(gpu=1), False),
        ({"scopes": ["NotBestEffort"]}, pod(cpu=0), False),
        ({"scopes": ["NotBestEffort"]}, {**NAMELESS, "resources": {"limits": {"cpu": "1"}}}, True),
        ({"scopes": ["BestEffort"]}, pod(cpu=1), False),
        ({"scopes": ["BestEffort"]}, NAMELESS, False),  # a LimitRange may give it amounts
        ({"scopes": ["NotBestEffort", "Terminating"]}, {**pod(cpu=1), "activeDeadlineSeconds": 5}, True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod(cpu=1), False),
        ({"scopes": ["NotBestEffort"], **selector("In", "low")}, HIGH, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, HIGH, False),
        (selector("In", "fast", scope="VolumeAttributesClass"), HIGH, False),
    ],
)
def test_a_quota_with_scopes_counts_the_pods_that_it_surely_means(scopes, spec, counts):
    """Those were left to the API server, which refused some pods of a gang, after others had been made."""
    said = refusal_of_gang([quota({"pods": "2"}, **scopes)], [(spec, 3)])
    assert said == ("exceeded quota: team, requested: pods=3, used: pods=0, limited: pods=2" if counts else "")


def test_of_a_gang_those_pods_are_counted_that_a_quota_means():
    roles = [(HIGH, 2), (pod(cpu=1), 5)]
    assert refusal_of_gang([quota({"pods": "2"}, **selector("In", "high"))], roles) == ""
    assert refusal_of_gang([quota({"pods": "1"}, **selector("In", "high"))], roles)


def test_what_a_quota_never_holds_is_known_before_anything_is_used():
    full = [quota({"pods": "3"}, {"pods": "3"})]
    assert refusal_of_gang(full, TWO_AND_ONE)
    assert refusal_of_gang(full, TWO_AND_ONE, is_empty=True) == ""
    assert is_too_small(refusal_of_gang([quota({"pods": "2"})], TWO_AND_ONE, is_empty=True))


def test_a_quota_that_cannot_be_read_refuses_nobody():
    assert refusal_of_gang([{"metadata": {"name": "odd", "uid": "u"}, "spec": 5}], TWO_AND_ONE) == ""


# -- gangs that start at one moment ---------------------------------------------------------------------------------


class Quotas:
    """One namespace's, as an API server would list them."""

    def __init__(self, *quotas: dict[str, Any]) -> None:
        self.quotas = quotas
        self.time = 0.0
        port: Any = self
        self.checks = GangQuotas(port, lambda: self.time)

    def list(self, wanted: Selection) -> Any:
        return SimpleNamespace(items=self.quotas if wanted.namespace == "team" else ())

    def start(self, job: int, pods: int, namespace: str = "team") -> str:
        """What is said of a gang; empty: it may start."""
        try:
            self.checks.check(AttemptId(job, 1), namespace, lambda: [(pod(cpu=1), pods)])
        except Rejected as error:
            return str(error)
        return ""


SECOND_REFUSED = (
    "its 2 pods start together or not at all, and together they exceeded quota: team, requested: pods=2, used: pods=0, "
    "limited: pods=3 (gangs that start at the same moment request pods=2)"
)


def test_of_two_gangs_that_start_at_one_moment_the_first_is_counted_for_the_second():
    """Each found room for itself, and the API server refused a pod of both."""
    there = Quotas(quota({"pods": "3"}))
    assert [there.start(1, 2), there.start(2, 2)] == ["", SECOND_REFUSED]
    assert there.start(1, 2) == ""  # asked again, it is still the first
    there.checks.end(AttemptId(1, 1))
    there.quotas = (quota({"pods": "3"}, {"pods": "1"}),)
    assert there.start(2, 2) == ""


def test_who_is_refused_stands_in_nobodys_way():
    there = Quotas(quota({"pods": "3"}))
    assert there.start(1, 4) != ""
    assert there.start(2, 3) == ""


def test_a_gang_whose_pods_never_came_stands_in_the_way_for_a_minute():
    there = Quotas(quota({"pods": "3"}))
    assert there.start(1, 2) == ""
    there.time = STARTING_S - 1
    assert there.start(2, 2) != ""
    there.time = STARTING_S
    assert there.start(2, 2) == ""


def test_gangs_of_other_namespaces_are_not_counted():
    there = Quotas(quota({"pods": "3"}))
    assert [there.start(1, 2, namespace="other"), there.start(2, 2)] == ["", ""]


def test_the_message_of_who_stands_beside_others_is_of_a_quota_that_is_full_now():
    assert is_full_now(SECOND_REFUSED)


AMOUNTS = st.integers(0, 20)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.integers(1, 4)), min_size=1, max_size=3), AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_gang_is_refused_exactly_if_its_sum_is_more_than_what_is_left(roles, hard_cpu, hard_gpu, used):
    pods = [(pod(cpu=cpu, gpu=gpu), count) for cpu, gpu, count in roles]
    cpus, gpus = (sum(role[number] * role[2] for role in roles) for number in (0, 1))
    found = refusal_of_gang([quota({"cpu": str(hard_cpu), GPUS: str(hard_gpu)}, {"cpu": str(used)})], pods)
    fits = (not cpus or cpus + used <= hard_cpu) and gpus <= hard_gpu
    assert (found == "") is fits
