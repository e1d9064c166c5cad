"""A share of one GPU, asked for by an annotation of a Kubernetes object, wherever it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.errors import Rejected
from swell.manifests import read_document
from swell.model.job import JobSpec
from swell.model.resources import Resources

from .kubernetes import CONTEXT, container, gpus, job, jobset, pod, pytorchjob, refusal, replicas, replicated, width

SHARE = {"swell.dev/gpu-memory": "6GiB"}
POD = {"name": "small", "annotations": SHARE}
PLACES = [CONTEXT, replace(CONTEXT, on_cluster=True)]


def shares(spec: JobSpec) -> list[tuple[str, int, int]]:
    return [(role.name, role.resources.gpus, role.resources.gpu_memory_mib) for role in spec.roles]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pod(metadata=POD), [("main", 0, 6144)]),
        (pod(container(**gpus(1, 1)), metadata=POD), [("main", 0, 6144)]),
        (pod(container(**gpus(0)), metadata=POD), [("main", 0, 6144)]),
        (job(annotations=SHARE, completions=3), [("main", 0, 6144)]),
        (pytorchjob(replicas(1), replicas(2), SHARE), [("master", 0, 6144), ("worker", 0, 6144)]),
        (
            pytorchjob(replicas(1), replicas(2, container(**gpus(1, 1))), SHARE),
            [("master", 0, 0), ("worker", 0, 6144)],
        ),
        (jobset(replicated("a"), replicated("b", 2), annotations=SHARE), [("a", 0, 6144), ("b", 0, 6144)]),
    ],
)
def test_every_pod_that_asks_for_a_gpu_has_a_share_of_one_or_every_pod_when_none_asks(place, document, expected):
    spec = read_document(document, place)
    assert (shares(spec), str(spec.dimension), spec.rewrites_width) == (expected, "tasks", False)


def test_of_several_containers_the_one_that_asks_for_a_gpu_has_the_share():
    spec = read_document(pod(container(name="a"), container(name="b", **gpus(1)), metadata=POD), CONTEXT)
    assert shares(spec) == [("a", 0, 0), ("b", 0, 6144)]
    assert [role.resources for role in spec.roles] == [Resources(1000), Resources(1000, gpu_memory_mib=6144)]
    assert width(spec) == ("tasks", 1, 1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            pod(container(**gpus(2, 2)), metadata=POD),
            (
                "metadata.annotations: swell.dev/gpu-memory is a share of one GPU, but spec.containers ask for 2 whole "
                "ones; leave nvidia.com/gpu out, or write 1"
            ),
        ),
        (pod(container(**gpus(1, 2)), metadata=POD), "ask for 1..2 whole ones"),
        (
            pod(container(name="a"), container(name="b"), metadata=POD),
            (
                "metadata.annotations: swell.dev/gpu-memory does not say which of the containers 'a', 'b' has the "
                "share; write nvidia.com/gpu: 1 under the limits of that one"
            ),
        ),
        (
            pod(metadata={"name": "x", "annotations": {**SHARE, "request": "1", "limit": "2"}}),
            (
                "metadata.annotations has 'swell.dev/gpu-memory', a share of one GPU, and 'request', a number of GPUs; "
                "keep one"
            ),
        ),
        (
            pod(metadata={"name": "x", "annotations": {"swell.dev/gpu-memory": "0GiB"}}),
            "metadata.annotations: swell.dev/gpu-memory is nothing; write how much of one GPU's memory, as in 6GiB",
        ),
        (
            pod(metadata={"name": "x", "annotations": {"swell.dev/gpu-memory": "6"}}),
            "metadata.annotations: swell.dev/gpu-memory: '6' has no unit, so it would be bytes; write 6GiB or 6MiB",
        ),
        (
            pytorchjob(None, replicas(1), SHARE, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}),
            (
                "spec.elasticPolicy with 1..4 Workers that share GPUs: a job that shares GPUs has a fixed number of "
                "tasks; make minReplicas and maxReplicas the same, or leave the annotation swell.dev/gpu-memory out"
            ),
        ),
    ],
)
def test_a_share_that_is_not_of_one_gpu_or_not_of_one_container_is_refused(place, document, message):
    with pytest.raises(Rejected) as caught:
        read_document(document, place)
    assert message in str(caught.value)


def test_a_misspelt_annotation_of_ours_names_the_right_one():
    document = pod(metadata={"name": "x", "annotations": {"swell.dev/gpu-mem": "6GiB"}})
    assert "did you mean 'swell.dev/gpu-memory'?" in refusal(document)
