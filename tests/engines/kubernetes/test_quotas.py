"""What a quota of a namespace leaves, and which of its refusals are final."""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.watch.quotas import is_full_now, is_too_small, tightest

GPUS = "requests.nvidia.com/gpu"
Document = dict[str, Any]


def exceeded(requested: str, used: str, limited: str) -> str:
    return (
        "create pods 'x' in namespace 'ml': pods \"x\" is forbidden: exceeded quota: small, "
        f"requested: {requested}, used: {used}, limited: {limited}"
    )


@pytest.mark.parametrize(
    ("what", "refusal", "full", "small"),
    [
        ("others use it", exceeded(f"{GPUS}=2", f"{GPUS}=3", f"{GPUS}=4"), True, False),
        ("it could have all of it", exceeded(f"{GPUS}=4", f"{GPUS}=1", f"{GPUS}=4"), True, False),
        ("more than there is at all", exceeded(f"{GPUS}=5", f"{GPUS}=0", f"{GPUS}=4"), False, True),
        ("in units", exceeded("limits.memory=1Gi", "limits.memory=0", "limits.memory=1000Mi"), False, True),
        ("one of two is too much", exceeded("cpu=500m,pods=1", "cpu=1,pods=1", "cpu=1200m,pods=0"), False, True),
        ("both would do", exceeded("cpu=500m,pods=1", "cpu=1,pods=1", "cpu=1200m,pods=1"), True, False),
        ("not its words", "failed quota: small: must specify requests.cpu for: main", False, False),
    ],
)
def test_a_refusal_is_final_where_it_would_not_fit_alone(what: str, refusal: str, full: bool, small: bool) -> None:
    assert (is_full_now(refusal), is_too_small(refusal)) == (full, small), what


def quota(hard: dict[str, str], used: dict[str, str] | None = None) -> Document:
    return {"spec": {"hard": hard}, "status": {"hard": hard, "used": used or {}}}


@pytest.mark.parametrize(
    ("what", "quotas", "found"),
    [
        ("none", [], None),
        ("none of GPUs", [quota({"pods": "4"}, {"pods": "1"})], None),
        ("one", [quota({"pods": "4"}), quota({GPUS: "8"}, {GPUS: "5"})], ("8", "5")),
        ("the one that leaves least", [quota({GPUS: "8"}, {GPUS: "1"}), quota({GPUS: "4"}, {GPUS: "1"})], ("4", "1")),
        ("nobody has counted it yet", [{"spec": {"hard": {GPUS: "8"}}}], ("0", "0")),
    ],
)
def test_how_many_gpus_a_namespace_may_use(what: str, quotas: list[Document], found: tuple[str, str] | None) -> None:
    assert tightest(quotas) == found, what
