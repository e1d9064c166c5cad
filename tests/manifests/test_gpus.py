"""Whole GPUs and shares of one, as manifests ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.model.job import Dimension, JobSpec, Overrun
from swell.model.resources import Resources


def read(**spec: Any) -> JobSpec:
    document = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["true"], **spec}}
    return read_document(document, Context(workdir="/w", umask=0o022, find_job=lambda _: 0))


SHARE = Resources(1000, 0, 0, 6144)
TWO_GPUS = (
    "gpuMemory 6GiB with gpus 2: a share is of one GPU; "
    "leave gpus out, or add exclusive for whole GPUs that each have at least that much"
)


@pytest.mark.parametrize(
    ("spec", "resources", "width"),
    [
        ({"gpuMemory": "6GiB"}, SHARE, (Dimension.TASKS, 1, 1)),
        ({"gpuMemory": "6GiB", "gpus": 1}, SHARE, (Dimension.TASKS, 1, 1)),
        ({"gpuMemory": "6GiB", "tasks": 3}, SHARE, (Dimension.TASKS, 3, 3)),
        ({"gpuMemory": "6GiB", "array": "0-9%4"}, SHARE, (Dimension.TASKS, 1, 4)),
        ({"gpuMemory": "6GiB", "exclusive": True}, Resources(1000, 0, 1, 6144), (Dimension.GPUS, 1, 1)),
        ({"gpuMemory": "6GiB", "exclusive": True, "gpus": "2..4"}, Resources(1000, 0, 2, 6144), (Dimension.GPUS, 2, 4)),
        ({"exclusive": False, "gpus": 2}, Resources(1000, 0, 2, 0), (Dimension.GPUS, 2, 2)),
    ],
)
def test_what_a_task_gets(spec: dict[str, Any], resources: Resources, width: tuple[Dimension, int, int]) -> None:
    job = read(**spec)
    assert job.roles[0].resources == resources
    assert (job.dimension, job.width_min, job.width_max) == width
    assert JobSpec.from_document(job.to_document()) == job


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"gpuMemory": "6GiB", "gpus": 2}, TWO_GPUS),
        (
            {"gpuMemory": "6GiB", "tasks": "1..4"},
            "gpuMemory 6GiB with tasks 1..4: a job that shares GPUs has a fixed number of tasks; give one number",
        ),
        ({"exclusive": "yes"}, "exclusive must be true or false, but is 'yes'"),
        (
            {"exclusive": True},
            "exclusive is of GPUs, not of nodes; say which with gpus or gpuMemory, or leave it out",
        ),
        ({"exclusive": True, "gpus": 0}, "exclusive with gpus 0: exclusive needs at least 1 GPU"),
        ({"onOverrun": "stop"}, "onOverrun is for jobs that share a GPU; give gpuMemory, or leave onOverrun out"),
        (
            {"gpuMemory": "6GiB", "onOverrun": "explode"},
            "onOverrun must be one of warn, yield, stop, but is 'explode'",
        ),
    ],
)
def test_what_is_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(Rejected) as refusal:
        read(**spec)
    assert str(refusal.value) == problem


@pytest.mark.parametrize("policy", list(Overrun))
def test_what_becomes_of_one_that_uses_more(policy: Overrun) -> None:
    assert read(gpuMemory="1GiB", onOverrun=str(policy)).on_overrun is policy
    assert read(gpuMemory="1GiB").on_overrun is Overrun.WARN
