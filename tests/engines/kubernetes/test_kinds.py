"""What may be changed of a suspended object, and when another must take its place?"""

from __future__ import annotations

from typing import Any

import pytest

from engines.kubernetes.pieces import make_object, make_pod
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import Filling, PodTemplateGroup, RoleSize
from swell.engines.kubernetes.watch.observed_objects import INDEX
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


def of_a_jobset(job: int, index: int) -> dict[str, str]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": str(job)}
    return {**labels, INDEX: str(index)}


@pytest.mark.parametrize(("parallelism", "ranks"), [(3, [0, 1, 2, 3, 4, 5]), (1, [0, 2, 4, 1, 3, 5])])
def test_the_tasks_of_a_jobset_are_counted_job_by_job_or_as_they_begin(parallelism: int, ranks: list[int]) -> None:
    """As on one machine: an array begins with the first pod of each Job."""
    job = {"completions": 3, "parallelism": parallelism, "template": {"spec": {"containers": [{"name": "main"}]}}}
    entry = {"name": "worker", "replicas": 2, "template": {"spec": job}}
    metadata = {"name": "set", "namespace": "team", "uid": "1", "resourceVersion": "1"}
    seen = KINDS["JobSet"].read({"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": [entry]}})
    found = [
        KINDS["JobSet"].rank(make_pod(labels=of_a_jobset(job, index)), seen) for job in range(2) for index in range(3)
    ]
    assert found == ranks


MPI = {
    "Launcher": {"template": {"spec": {"containers": [{"name": "main"}]}}},
    "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main"}]}}},
}


def test_the_launcher_of_an_mpijob_is_rank_0() -> None:
    metadata = {"name": "pi", "namespace": "team", "uid": "1", "resourceVersion": "1"}
    seen = KINDS["MPIJob"].read({"kind": "MPIJob", "metadata": metadata, "spec": {"mpiReplicaSpecs": MPI}})
    role, index = "training.kubeflow.org/job-role", "training.kubeflow.org/replica-index"
    labels = [{role: "launcher"}, {role: "worker", index: "0"}, {role: "worker", index: "1"}, {role: "worker"}, {}]
    assert [KINDS["MPIJob"].rank(make_pod(labels=one), seen) for one in labels] == [0, 1, 2, None, None]


def test_an_mpijob_that_is_begun_again_keeps_its_templates() -> None:
    """The operator writes its launcher's Job once: pods of another attempt's workers would differ from it."""
    metadata = {"name": "pi", "namespace": "team", "annotations": {}}
    document = {"kind": "MPIJob", "metadata": metadata, "spec": {"mpiReplicaSpecs": MPI}}
    first, second = (
        KINDS["MPIJob"].fill(document, Filling(7, "s", AttemptId(7, n), (RoleSize(1, 0), RoleSize(2, 0)), "secret"))
        for n in (1, 2)
    )
    patch = KINDS["MPIJob"].change(first, second, is_array=False)
    assert patch == {"metadata": {"annotations": {"swell.dev/attempt": "7.2"}}}
    assert second["spec"]["runPolicy"] == {"suspend": True}


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}


@pytest.mark.parametrize("place", ["set", "Job", "pod"])
def test_pods_of_a_jobset_with_exclusive_placement_come_after_the_first_of_their_job(place: str) -> None:
    marks = {one: {"annotations": EXCLUSIVE} if one == place else {} for one in ("set", "Job", "pod")}
    pod = {"metadata": marks["pod"], "spec": {"containers": []}}
    job = {"completions": 3, "parallelism": 3, "template": pod}
    workers = {"name": "workers", "replicas": 2, "template": {"metadata": marks["Job"], "spec": job}}
    driver = {"name": "driver", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    metadata = {"namespace": "ml", "name": "s", "uid": "u", "resourceVersion": "1", **marks["set"]}
    seen = KINDS["JobSet"].read({"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": [driver, workers]}})
    assert seen.leaders == {0, 1, 4}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob", "MPIJob"])
def test_what_is_filled_says_which_attempt_is_on_its_pods(kind: str) -> None:
    pod = {"spec": {"containers": [{"name": "main"}]}}
    spec = {
        "Job": {"completions": 1, "template": pod},
        "JobSet": {"replicatedJobs": [{"name": "main", "template": {"spec": {"template": pod}}}]},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"template": pod}}},
        "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"template": pod}}},
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
    assert KINDS["PyTorchJob"].read(document).groups == (PodTemplateGroup("master", 1, 0),)
