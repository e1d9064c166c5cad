"""What may be changed of a suspended object, and when another must take its place?"""

from __future__ import annotations

from typing import Any

import pytest

from engines.kubernetes.pieces import make_object, make_pod
from swell.engines.kubernetes.kinds import KINDS
from swell.engines.kubernetes.objects import Filling, Group, RoleSize
from swell.engines.kubernetes.picture import INDEX
from swell.model.job import AttemptId

JOB = KINDS["Job"]


def job(count: int, *, attempt: str, gpus: int = 1, succeeded: int = 0) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"annotations": {"swell.dev/attempt": attempt}},
        "spec": {
            "completions": count,
            "parallelism": count,
            "template": {"spec": {"containers": [{"name": "main", "resources": resources}]}},
        },
        "status": {"succeeded": succeeded},
    }


def test_an_array_that_has_done_some_goes_on_in_its_job() -> None:
    """A round of faults lost an array: its Job, all at once, was taken for a gang and removed with what it had done."""
    patch = JOB.change(job(6, attempt="7.1", succeeded=1), job(6, attempt="7.2"), is_array=True)
    assert patch == {"metadata": {"annotations": {"swell.dev/attempt": "7.2"}}, "spec": {}}


def test_a_gang_of_which_some_have_ended_is_made_anew() -> None:
    assert JOB.change(job(6, attempt="7.1", succeeded=1), job(6, attempt="7.2"), is_array=False) is None


def test_other_gpus_are_another_job() -> None:
    assert JOB.change(job(6, attempt="7.1"), job(6, attempt="7.2", gpus=2), is_array=True) is None


def test_a_gang_that_has_done_nothing_gets_another_size() -> None:
    patch = JOB.change(job(6, attempt="7.1"), job(4, attempt="7.2"), is_array=False)
    assert patch == {
        "metadata": {"annotations": {"swell.dev/attempt": "7.2"}},
        "spec": {"completions": 4, "parallelism": 4},
    }


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("PyTorchJob", {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "x"}),
        ("JobSet", {"jobset.sigs.k8s.io/replicatedjob-name": "worker", INDEX: "0"}),
        (
            "JobSet",
            {"jobset.sigs.k8s.io/replicatedjob-name": "worker", INDEX: "0", "jobset.sigs.k8s.io/job-index": "-"},
        ),
    ],
)
def test_a_pod_whose_labels_somebody_has_changed_has_no_rank(kind: str, labels: dict[str, str]) -> None:
    """One such label kept the jobs of everybody from being planned."""
    assert KINDS[kind].rank(make_pod(labels=labels), make_object(kind)) is None


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob"])
def test_what_is_filled_says_which_attempt_is_on_its_pods(kind: str) -> None:
    pod = {"spec": {"containers": [{"name": "main"}]}}
    spec = {
        "Job": {"completions": 1, "template": pod},
        "JobSet": {"replicatedJobs": [{"name": "main", "template": {"spec": {"template": pod}}}]},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"template": pod}}},
    }[kind]
    metadata = {"name": "train", "namespace": "team", "uid": "1", "resourceVersion": "1"}
    document = {"kind": kind, "metadata": metadata, "spec": spec}
    filling = Filling(7, "store", AttemptId(7, 2), (RoleSize(1, 0),), "secret")
    assert KINDS[kind].read(document).pods_attempt is None
    assert KINDS[kind].read(KINDS[kind].fill(document, filling)).pods_attempt == AttemptId(7, 2)


def test_a_pytorchjob_without_a_template_can_be_read() -> None:
    """The API server takes it, only its operator's webhook does not; one such object blinded us for all others."""
    document = {
        "kind": "PyTorchJob",
        "metadata": {"name": "odd", "namespace": "team", "uid": "1", "resourceVersion": "1"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}},
    }
    assert KINDS["PyTorchJob"].read(document).groups == (Group("master", 1, 0),)
