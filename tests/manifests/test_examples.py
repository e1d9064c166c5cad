"""The examples are read as their comments say, and docs/manifests.md names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swell.manifests import Context, aichor, exit_rules, image_build, minicluster, mpijob, read_manifests, trainjob
from swell.manifests.affinity import (
    AFFINITY,
    EXPRESSION,
    KIND,
    LABEL_SELECTOR,
    NODE_SELECTOR,
    NODE_TERM,
    POD_TERM,
    TOLERATION,
)
from swell.manifests.container import AMOUNTS, CONTAINER, FIELD_REF, KEY_REF, RESOURCES, VALUE_FROM, VARIABLE
from swell.manifests.fields import Fields
from swell.manifests.job import JOB
from swell.manifests.jobset import COORDINATOR, DEPENDENCY, FAILURE, JOBSET, NETWORK, REPLICATED_JOB, STARTUP, SUCCESS
from swell.manifests.metadata import METADATA, OBJECT, OWN
from swell.manifests.native import SPEC
from swell.manifests.podspec import POD
from swell.manifests.pytorchjob import ELASTIC, PYTORCHJOB, REPLICA, REPLICA_TYPES, RUN_POLICY
from swell.model.job import JobSpec

from .kubernetes import width

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"


def read(name: str) -> JobSpec:
    [manifest] = read_manifests((EXAMPLES / name).read_text(), Context(workdir="/home/ann"))
    return manifest.spec


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_demo_jobs_ask_for_two_gpus_and_three_of_them_can_use_four(number):
    spec = read(f"genai-job{number}.yaml")
    assert (spec.name, width(spec)) == (f"genai-job{number}", ("gpus", 2, 2 if number == 4 else 4))
    assert (spec.epochs, spec.retries, spec.rewrites_width, dict(spec.roles[0].env)["NGPU"]) == (3, 6, True, "2")
    assert spec.roles[0].command[-2:] == (f"genai-job{number}", "--num_processes=2")


def test_the_master_and_its_two_workers_are_one_gang():
    spec = read("pytorchjob.yaml")
    assert [(role.name, role.count) for role in spec.roles] == [("master", 1), ("worker", 2)]
    assert (spec.time_limit_s, spec.retries) == (60.0, 0)


def test_the_pod_has_one_gpu_and_the_job_ten_tasks():
    assert width(read("pod.yaml")) == ("gpus", 1, 1)
    array = read("job.yaml").array
    assert array is not None
    assert (str(array.indices), array.at_once) == ("0-9", 2)


def test_the_jobset_is_a_gang_of_a_driver_and_two_jobs_of_two_workers():
    spec = read("jobset.yaml")
    assert [(role.name, role.count) for role in spec.roles] == [("driver", 1), ("workers", 4)]
    assert (spec.retries, spec.is_held) == (1, False)


TABLES = {
    "The object": OBJECT,
    "metadata": METADATA,
    "Pod": POD,
    "Pod: affinity": AFFINITY,
    "Pod: each kind of affinity": KIND,
    "Pod: required nodeAffinity": NODE_SELECTOR,
    "Pod: one of nodeSelectorTerms": NODE_TERM,
    "Pod: one of matchExpressions": EXPRESSION,
    "Pod: required podAffinity": POD_TERM,
    "Pod: labelSelector": LABEL_SELECTOR,
    "Pod: one of tolerations": TOLERATION,
    "Container": CONTAINER,
    "Container: resources": RESOURCES,
    "Container: requests and limits": AMOUNTS,
    "Container: env": VARIABLE,
    "Container: env, valueFrom": VALUE_FROM,
    "Container: env, valueFrom.fieldRef": FIELD_REF,
    "Container: env, valueFrom.secretKeyRef and configMapKeyRef": KEY_REF,
    "Job": JOB,
    "Job: podFailurePolicy": exit_rules.POD_FAILURE_POLICY,
    "Job: one of podFailurePolicy.rules": exit_rules.POD_RULE,
    "Job: onExitCodes": exit_rules.EXIT_CODES,
    "PyTorchJob": PYTORCHJOB,
    "PyTorchJob: pytorchReplicaSpecs": REPLICA_TYPES,
    "PyTorchJob: a replica": REPLICA,
    "PyTorchJob: runPolicy": RUN_POLICY,
    "PyTorchJob: elasticPolicy": ELASTIC,
    "JobSet": JOBSET,
    "JobSet: one of replicatedJobs": REPLICATED_JOB,
    "JobSet: one of dependsOn": DEPENDENCY,
    "JobSet: successPolicy": SUCCESS,
    "JobSet: failurePolicy": FAILURE,
    "JobSet: one of failurePolicy.rules": exit_rules.SET_RULE,
    "JobSet: startupPolicy": STARTUP,
    "JobSet: coordinator": COORDINATOR,
    "JobSet: network": NETWORK,
    "MPIJob": mpijob.MPIJOB,
    "MPIJob: mpiReplicaSpecs": mpijob.REPLICA_TYPES,
    "MPIJob: a replica": mpijob.REPLICA,
    "MPIJob: runPolicy": mpijob.RUN_POLICY,
    "TrainJob": trainjob.TRAINJOB,
    "TrainJob: runtimeRef": trainjob.RUNTIME,
    "TrainJob: trainer": trainjob.TRAINER,
    "MiniCluster": minicluster.MINICLUSTER,
    "MiniCluster: its container": minicluster.CONTAINER,
    "AIchorManifest": aichor.MANIFEST,
    "AIchorManifest: builder": image_build.BUILDER,
    "AIchorManifest: builder.skipBuild": image_build.SKIP,
    "AIchorManifest: clone": aichor.CLONE,
    "AIchorManifest: spec": aichor.SPEC,
    "AIchorManifest: one of types": aichor.TYPE,
    "AIchorManifest: resources": aichor.RESOURCES,
    "AIchorManifest: accelerators": aichor.ACCELERATORS,
    "AIchorManifest: gpu": aichor.GPUS,
    "AIchorManifest: storage": aichor.STORAGE,
    "AIchorManifest: sharedVolume": aichor.SHARED,
    "AIchorManifest: one of attachExistingPVCs": aichor.PVC,
    "AIchorManifest: restartPolicy": aichor.RESTART,
    "AIchorManifest: tensorboard": aichor.TENSORBOARD,
}


def listed(line: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", line))


@pytest.mark.parametrize("part", TABLES)
def test_the_documentation_says_of_every_field_what_becomes_of_it(part):
    fields: Fields = TABLES[part]
    [row] = [
        line.split("|")
        for line in (ROOT / "docs" / "manifests.md").read_text().splitlines()
        if line.startswith(f"| {part} |")
    ]
    used, idle, refused = (listed(cell) for cell in row[2:5])
    assert (used, idle, refused) == (set(fields.used), set(fields.idle), set(fields.refused))


def test_the_documentation_names_every_field_of_our_own_and_every_annotation():
    text = (ROOT / "docs" / "manifests.md").read_text()
    for name in (*SPEC, *OWN, "request", "limit", "replicas"):
        assert f"`{name}`" in text, name
