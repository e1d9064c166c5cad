"""TrainJobs of Kubeflow's Trainer: a gang of nodes for torchrun."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.manifests import read_manifests

from .kubernetes import CONTEXT, read, refusal


def trainjob(runtime: str = "torch-distributed", trainer: Any = None, **spec: Any) -> dict[str, Any]:
    given = {"command": ["torchrun", "train.py"], "numNodes": 2} if trainer is None else trainer
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune"},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": given, **spec},
    }


def test_a_trainjob_is_a_gang_that_torchrun_finds_its_way_in():
    resources = {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 4}}
    trainer = {"command": ["torchrun"], "args": ["a.py"], "numNodes": 3, "numProcPerNode": 4}
    spec = read(trainjob(trainer={**trainer, "resourcesPerNode": resources, "env": [{"name": "A", "value": "b"}]}))
    [role] = spec.roles
    assert (spec.name, spec.retries, role.count, role.command[4:]) == ("tune", 0, 3, ("torchrun", "a.py"))
    assert role.command[:2] == ("sh", "-c")
    assert (role.resources.cpus_milli, role.resources.gpus) == (2000, 4)
    assert {"A": "b", "PET_NPROC_PER_NODE": "4"}.items() <= dict(role.env).items()


def test_a_runtime_of_the_cluster_is_said_to_have_no_effect():
    said = "spec.runtimeRef 'ours' is the cluster's; here its job is as with torch-distributed"
    assert read(trainjob("ours", suspend=True)).notes == (said,)
    assert read(trainjob(suspend=True)).is_held


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            trainjob("deepspeed-distributed"),
            "spec.runtimeRef.name is 'deepspeed-distributed', whose ranks torchrun does",
        ),
        (trainjob(trainer={"numNodes": 2}), "spec.trainer.command is not given: that of the runtime is the cluster's"),
        (trainjob(trainer={"command": ["a"], "numNodes": 0}), "spec.trainer.numNodes is 0; it must be from 1 to"),
        (
            trainjob(trainer={"command": ["a"], "nodes": 1}),
            "spec.trainer has no field 'nodes'; did you mean 'numNodes'",
        ),
        (trainjob(initializer={"model": {}}), "spec.initializer downloads a dataset or a model before training"),
    ],
)
def test_what_cannot_be_run_is_refused(document, said):
    assert refusal(document).startswith(said)


CLUSTER = replace(CONTEXT, on_cluster=True)
TRAINER = {"image": "torch:2", "command": ["torchrun"], "args": ["a.py"], "numNodes": 3, "numProcPerNode": 4}


def test_on_kubernetes_it_is_the_jobset_that_the_runtime_makes():
    resources = {"limits": {"nvidia.com/gpu": 4}}
    trainer = {**TRAINER, "resourcesPerNode": resources, "env": [{"name": "A", "value": "b"}]}
    document = trainjob(trainer=trainer, suspend=True, labels={"team": "ml"}, annotations={"swell.dev/time": "2h"})
    [found] = read_manifests(document, CLUSTER)
    spec, made = found.spec, found.document
    assert (spec.kind, spec.tasks_total, spec.is_held, spec.time_limit_s) == ("JobSet", 3, True, 7200.0)
    assert spec.roles[0].resources.gpus == 4
    assert spec.notes[0].startswith("it is created as the JobSet that the runtime torch-distributed makes")
    assert (made["kind"], made["metadata"]) == (
        "JobSet",
        {"name": "tune", "labels": {"team": "ml"}, "annotations": {"swell.dev/time": "2h"}},
    )
    [entry] = made["spec"]["replicatedJobs"]
    job = entry["template"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    assert (entry["name"], job["completions"], job["parallelism"], job["backoffLimit"]) == ("node", 3, 3, 0)
    assert {name: container[name] for name in ("name", "image", "command", "args", "resources")} == {
        "name": "node",
        "image": "torch:2",
        "command": ["torchrun"],
        "args": ["a.py"],
        "resources": resources,
    }
    assert [(one["name"], one.get("value")) for one in container["env"]] == [
        ("PET_NNODES", "3"),
        ("PET_NPROC_PER_NODE", "4"),
        ("PET_MASTER_ADDR", "tune-node-0-0.tune"),
        ("PET_MASTER_PORT", "29500"),
        ("PET_NODE_RANK", None),
        ("A", "b"),
    ]


def test_on_kubernetes_the_image_knows_what_to_run():
    [found] = read_manifests(trainjob(trainer={"image": "torch:2"}), CLUSTER)
    [container] = found.document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert "command" not in container
    assert {"name": "PET_NPROC_PER_NODE", "value": "auto"} in container["env"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            trainjob("ours", trainer=TRAINER),
            "spec.runtimeRef.name is 'ours', and what it makes is the cluster's to say",
        ),
        (trainjob("mpi", trainer=TRAINER), "spec.runtimeRef.name is 'mpi', whose ranks torchrun does not start"),
        (trainjob(), "spec.trainer.image is not given: that of the runtime is the cluster's"),
        (trainjob(trainer=TRAINER, podSpecOverrides=[{}]), "spec.podSpecOverrides changes the pods of a runtime"),
        (trainjob(trainer={**TRAINER, "numProcPerNode": "many"}), "spec.trainer.numProcPerNode must be a whole number"),
        (trainjob(trainer={**TRAINER, "nodes": 1}), "spec.trainer has no field 'nodes'; did you mean 'numNodes'"),
        ({**trainjob(trainer=TRAINER), "metadata": {}}, "metadata.name is not given, and its pods meet at an address"),
    ],
)
def test_what_only_the_runtime_of_a_cluster_knows_is_refused_there(document, said):
    assert refusal(document, CLUSTER).startswith(said)
