"""When a job's GPUs count as idle: two spellings, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.model.job import IdlePolicy, JobSpec

GOOD = {"minGpuUtilization": 10, "window": "30m"}


def read(**spec: Any) -> JobSpec:
    document = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["true"], **spec}}
    return read_document(document, Context(workdir="/home/ann", umask=0o027))


@pytest.mark.parametrize(
    "spec",
    [
        {"utilizationPolicy": GOOD},
        {"utilizationPolicy": {"minGpuUtilization": "10", "window": 1800}},
        {"utilization_policy": {"min_gpu_utilization": 10, "time_window": "30m"}},
    ],
)
def test_both_spellings_are_understood(spec: dict[str, Any]) -> None:
    found = read(gpus=1, **spec)
    assert found.idle == IdlePolicy(10, 1800.0)
    assert JobSpec.from_document(found.to_document()) == found


def test_without_one_gpus_may_idle() -> None:
    assert read(gpus=1, utilizationPolicy=None).idle is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"gpus": 0, "utilizationPolicy": GOOD},
            "utilizationPolicy is about idle GPUs, but the job asks for none; ask for some, or leave it out",
        ),
        (
            {"utilizationPolicy": {"minGpuUtilization": 10}},
            "utilizationPolicy needs window, too; give both, as in {minGpuUtilization: 10, window: 30m}",
        ),
        (
            {"utilization_policy": {"time_window": 600}},
            ("utilization_policy needs minGpuUtilization, too; give both, as in {minGpuUtilization: 10, window: 30m}"),
        ),
        (
            {"utilizationPolicy": {**GOOD, "window": "5s"}},
            "utilizationPolicy.window is 5 s, too short to tell; give at least 10 s",
        ),
        (
            {"utilizationPolicy": {**GOOD, "minGpuUtilization": 0}},
            "utilizationPolicy.minGpuUtilization is 0; it must be from 1 to 100",
        ),
        (
            {"utilizationPolicy": {**GOOD, "minGpuUtilization": "a lot"}},
            "utilizationPolicy.minGpuUtilization must be a whole number from 1 to 100, but is 'a lot'",
        ),
        (
            {"utilizationPolicy": {**GOOD, "time_window": "1h"}},
            "utilizationPolicy has both window and time_window, which mean the same; write one of them",
        ),
        (
            {"utilizationPolicy": GOOD, "utilization_policy": GOOD},
            "spec has both utilizationPolicy and utilization_policy, which mean the same; write one of them",
        ),
        (
            {"utilizationPolicy": {**GOOD, "windo": 1}},
            (
                "utilizationPolicy has no field 'windo'; did you mean 'window'? "
                "(known: minGpuUtilization, min_gpu_utilization, time_window, window)"
            ),
        ),
        (
            {"utilizationPolicy": "10%"},
            "utilizationPolicy must be a mapping of names to values, but is '10%'",
        ),
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, Any], expected: str) -> None:
    with pytest.raises(Rejected) as refused:
        read(**{"gpus": 1, **spec})
    assert str(refused.value) == expected
