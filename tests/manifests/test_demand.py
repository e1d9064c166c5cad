"""A pod takes what Kubernetes' own scheduler would count for it."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests.demand import Demand, read_demand

from .kubernetes import GPU


def of(requests: object = None, limits: object = None, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **fields}


def spec(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"containers": list(containers), **fields}


def sidecar(requests: object) -> dict[str, Any]:
    return of(requests, name="beside", restartPolicy="Always")


def cpus(amount: object) -> dict[str, Any]:
    return of({"cpu": amount})


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (spec({"name": "main"}), (0, 0)),
        (spec(of({"cpu": "500m", "memory": "1Gi"}, {"cpu": 4, "memory": "2Gi"})), (500, 1024)),
        (spec(of(None, {"cpu": "2", "memory": "512Mi"})), (2000, 512)),
        (spec(of({"cpu": 1}, {"memory": "1Gi"})), (1000, 1024)),
        (spec(cpus(1), cpus("250m"), cpus(0.5)), (1750, 0)),
        (spec(of({"memory": "1M"}), of({"memory": "1M"}), of({"memory": "1M"})), (0, 3)),
        (spec(cpus(1), initContainers=[cpus(3), cpus(2)]), (3000, 0)),
        (spec(cpus(1), cpus(1), initContainers=[cpus("1500m")]), (2000, 0)),
        (spec(cpus(1), initContainers=[sidecar({"cpu": 1})]), (2000, 0)),
        (spec(cpus(1), initContainers=[sidecar({"cpu": 1}), cpus(4)]), (5000, 0)),
        (spec(cpus(1), initContainers=[cpus(4), sidecar({"cpu": 1})]), (4000, 0)),
        (spec(cpus(1), overhead={"cpu": "100m", "memory": "64Mi"}), (1100, 64)),
        (spec(cpus(1), resources={"requests": {"cpu": 4}}), (4000, 0)),
        (spec(cpus(1), resources={"limits": {"cpu": 4, "memory": "1Gi"}}), (1000, 1024)),
        (spec(cpus(1), resources={"requests": {"cpu": 4}}, overhead={"cpu": "100m"}), (4100, 0)),
    ],
)
def test_cpus_and_memory_are_counted_as_the_scheduler_of_kubernetes_does(pod, expected):
    assert read_demand(pod, "spec") == Demand(*expected, None, tuple(one["name"] for one in pod["containers"]), ())


@pytest.mark.parametrize(
    ("pod", "gpus", "holders"),
    [
        (spec(of({GPU: 2}, {GPU: 2})), (2, 2), ("main",)),
        (spec(of(None, {GPU: 2})), (2, 2), ("main",)),
        (spec(of({GPU: 1}, {GPU: 4})), (1, 4), ("main",)),
        (spec(of({GPU: "1"}, name="a"), of({GPU: "2"}, name="b"), of(name="c")), (3, 3), ("a", "b")),
        (spec(of({GPU: 0})), (0, 0), ("main",)),
        (spec(of({GPU: 1}, {GPU: 4}), initContainers=[of({GPU: 2}, name="first")]), (2, 4), ("main",)),
        (spec(of(name="a"), of(name="b")), None, ("a", "b")),
    ],
)
def test_gpus_are_a_range_and_belong_to_the_containers_that_ask_for_them(pod, gpus, holders):
    assert read_demand(pod, "spec") == Demand(0, 0, gpus, holders, ())


def test_what_is_not_counted_is_named():
    pod = spec(
        of({"rdma/hca": 1, "cpu": 1}, {"hugepages-2Mi": "4Mi", "amd.com/gpu": "0"}),
        initContainers=[of({"ephemeral-storage": "1Gi"})],
    )
    assert read_demand(pod, "spec").uncounted == ("ephemeral-storage", "hugepages-2Mi", "rdma/hca")


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (
            spec(of({GPU: 1}, {GPU: 4}, name="a"), of({GPU: 1}, name="b")),
            (
                "spec.containers[0] asks for 1..4 GPUs and spec.containers[1] for GPUs too; only one container of a "
                "pod may have GPUs when one of them has a range"
            ),
        ),
        (
            spec(of({GPU: 1}, {GPU: 4}), initContainers=[sidecar({GPU: 1})]),
            (
                "spec.containers[0] asks for 1..4 GPUs and spec.initContainers[0] for GPUs too; only one container of "
                "a pod may have GPUs when one of them has a range"
            ),
        ),
        (
            spec(of(), initContainers=[of({GPU: 1}, {GPU: 2})]),
            (
                "spec.initContainers[0] asks for 1..2 GPUs: what runs before or beside a job has no width; give it one "
                "number"
            ),
        ),
        (
            spec(of({GPU: 0}, {GPU: 2})),
            (
                "spec.containers[0].resources: nvidia.com/gpu from 0 to 2: a range must start at 1 or more; write 1 "
                "under requests"
            ),
        ),
        (
            spec(of({"cpu": "2"}, {"cpu": "1500m"})),
            "spec.containers[0].resources: cpu: requests 2 is above limits 1500m; the request is the least",
        ),
        (
            spec(of({"cpu": "two"})),
            (
                "spec.containers[0].resources.requests: cpu: 'two' is not a quantity; Kubernetes writes 500m, 1.5, "
                "2Gi, 512M or 1e3"
            ),
        ),
        (
            spec(of({GPU: "500m"})),
            (
                "spec.containers[0].resources.requests: nvidia.com/gpu: '500m' is a part of a GPU; they are given "
                "whole: write 1"
            ),
        ),
        (
            spec({"name": "main", "resources": {"claims": [{"name": "gpu"}]}}),
            (
                "spec.containers[0].resources.claims asks for devices by claim, which only Kubernetes' own scheduler "
                "hands out, and Swell places this pod; ask for nvidia.com/gpu"
            ),
        ),
    ],
)
def test_what_cannot_be_planned_for_is_refused(pod, message):
    with pytest.raises(Rejected) as caught:
        read_demand(pod, "spec")
    assert str(caught.value) == message
