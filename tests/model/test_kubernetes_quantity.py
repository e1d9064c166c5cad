"""A quantity of Kubernetes has one meaning, wherever it is read."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.engines.kubernetes.objects.amounts import pod_resources
from swell.manifests.demand import read_demand
from swell.model.kubernetes_quantity import GPU, ONE, parse_quantity
from swell.model.quantity import BadQuantity
from swell.model.resources import Resources

EXACT = Context(prec=200)


@pytest.mark.parametrize(
    ("text", "billionths"),
    [
        ("0", 0),
        ("1", ONE),
        (4, 4 * ONE),
        (0.25, ONE // 4),
        ("+1.5", 3 * ONE // 2),
        ("-1.5", -3 * ONE // 2),
        (".5", ONE // 2),
        ("2.", 2 * ONE),
        ("007", 7 * ONE),
        ("1n", 1),
        ("1u", 1000),
        ("500m", ONE // 2),
        ("1k", 1000 * ONE),
        ("1M", 10**6 * ONE),
        ("1G", 10**9 * ONE),
        ("1T", 10**12 * ONE),
        ("1P", 10**15 * ONE),
        ("1E", 10**18 * ONE),
        ("1Ki", 2**10 * ONE),
        ("1Mi", 2**20 * ONE),
        ("1Gi", 2**30 * ONE),
        ("1Ti", 2**40 * ONE),
        ("1Pi", 2**50 * ONE),
        ("1Ei", 2**60 * ONE),
        ("1.5Gi", 3 * 2**29 * ONE),
        ("1e3", 1000 * ONE),
        ("1E3", 1000 * ONE),
        ("1e+3", 1000 * ONE),
        ("5e-1", ONE // 2),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1e-99", 1),
        ("1.0000000001", ONE + 1),
        ("8Ei", (2**63 - 1) * ONE),
        ("1e99", (2**63 - 1) * ONE),
    ],
)
def test_a_quantity_is_read_as_its_grammar_says(text, billionths):
    assert parse_quantity(text) == billionths


@pytest.mark.parametrize(
    "text", ["", ".", "-", "Ki", " 1", "1 ", "1K", "1ki", "1KI", "1mi", "0x1", "1e", "1e3Gi", "１"]
)
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(BadQuantity, match="is not a quantity; Kubernetes writes 500m"):
        parse_quantity(text)


UNITS = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
UNITS |= {f"{letter}i": str(1024**power) for power, letter in enumerate("KMGT", 1)}
numbers = st.decimals(0, 10**6, places=12, allow_nan=False).map(lambda number: f"{number:f}")


@given(numbers, st.sampled_from(sorted(UNITS)))
def test_a_quantity_is_its_number_times_its_unit_rounded_up_to_a_billionth(number, unit):
    exact = EXACT.multiply(EXACT.multiply(Decimal(number), Decimal(UNITS[unit])), Decimal(ONE))
    assert parse_quantity(number + unit) == int(exact.to_integral_value(ROUND_CEILING))


def memory(*amounts: str) -> dict[str, object]:
    containers = [{"name": f"c{n}", "resources": {"requests": {"memory": one}}} for n, one in enumerate(amounts)]
    return {"containers": containers}


def test_two_containers_of_1500_ki_are_three_mebibytes_in_a_manifest_and_in_a_cluster():
    """Each was rounded up to 2 MiB where pods of a cluster were counted, and only their sum where a manifest was."""
    pod = memory("1500Ki", "1500Ki")
    assert (read_demand(pod, "spec").memory_mib, pod_resources(pod).memory_mib) == (3, 3)


cpus = st.sampled_from(["0", "1n", "100u", "333m", "0.5", "1", "1.0005", "2e0", "3"])
memories = st.sampled_from(["0", "1", "1500Ki", "1M", "999999999", "1Mi", "1.5Mi", "0.1Gi", "1G", "128974848000m"])
amounts = st.fixed_dictionaries({}, optional={"cpu": cpus, "memory": memories})
gpus = st.sampled_from([0, 1, "2", "3e0"])
requests = st.fixed_dictionaries({}, optional={"cpu": cpus, "memory": memories, GPU: gpus})
containers = st.one_of(
    requests.map(lambda asked: {"resources": {"requests": asked}}),
    requests.map(lambda asked: {"resources": {"limits": asked}}),
    st.just({}),
)
init_containers = st.builds(
    lambda one, extra: {**one, **extra}, containers, st.sampled_from([{}, {"restartPolicy": "Always"}])
)
sides = st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts})
pods = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=4)},
    optional={"initContainers": st.lists(init_containers, max_size=4), "resources": sides, "overhead": amounts},
)


@given(pods)
def test_a_pod_takes_as_much_in_a_cluster_as_its_manifest_was_planned_with(pod):
    asked = read_demand(pod, "spec")
    planned = Resources(asked.cpus_milli, asked.memory_mib, asked.gpus[1] if asked.gpus else 0)
    assert pod_resources(pod) == planned
