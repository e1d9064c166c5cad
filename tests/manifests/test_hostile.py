"""Kubernetes documents that somebody broke on purpose: every place of a good one gets every kind of nonsense.

What comes of it is a job that can be stored, or a `Rejected` of a line or two; never another error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import Rejected
from swell.manifests import Context, object_ref, read_document, read_manifests
from swell.model.job import JobSpec

from .kubernetes import CONTEXT, container, gpus, job, jobset, pod, pytorchjob, replicas, replicated, template

CLUSTER = replace(CONTEXT, on_cluster=True)
MACHINE = replace(CONTEXT, variables=frozenset({"HF_TOKEN", "KEY"}))
FULL = container(
    args=["--x"],
    env=[{"name": "A", "value": "b"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    workingDir="/data",
    resources={"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}},
)
NOTED = {"request": "1", "limit": "2", "replicas": "1", "swell.dev/epochs": "3", "swell.dev/time": "1h"}
POLICY = {"backoffLimit": 1, "activeDeadlineSeconds": 5, "suspend": False}
EXPRESSIONS = [{"key": "zone", "operator": "In", "values": ["a"]}, {"key": "cores", "operator": "Gt", "values": ["4"]}]
OWN = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}, "matchExpressions": []}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = {"matchExpressions": EXPRESSIONS, "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
PLACED = pod(
    metadata={"name": "a", "labels": {"app": "x", "scheduling.x-k8s.io/pod-group": "g"}},
    nodeSelector={"gpu": "a100"},
    tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    affinity={
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODES]}},
        "podAntiAffinity": {REQUIRED: [OWN]},
    },
    priorityClassName="high",
)
GPUS = {"accelerators": {"gpu": {"count": 1, "type": "gpu", "product": "A100"}}}


def aichor(operator: str, *types: str) -> dict[str, Any]:
    """With all that is around the types."""
    return {
        "apiVersion": "0.2.2",
        "kind": "AIchorManifest",
        "name": "exp",
        "builder": {
            "image": "i",
            "dockerfile": "Dockerfile",
            "context": ".",
            "buildArgs": {"A": "b"},
            "registry": "r",
            "target": "run",
            "skipBuild": {"enabled": False, "experimentID": "7", "failIfNotFound": False},
        },
        "clone": {"depth": 1, "includeDotGit": False, "submodules": "true"},
        "spec": {
            "operator": operator,
            "image": "i",
            "command": ["a", "b"],
            "env": {"A": "$(B)"},
            "timeout": "90m",
            "restartPolicy": {"backoffLimit": 1},
            "rayVersion": "2.9",
            "tensorboard": {"enabled": True},
            "storage": {
                "sharedVolume": {
                    "mountPoint": "/mnt/shared",
                    "sizeGB": 2.5,
                    "storageClass": "fast",
                    "accessMode": "ReadWriteOnce",
                }
            },
            "types": {name: {"count": 1, "resources": {"cpus": 0.5, "memory": 2, **GPUS}} for name in types},
        },
    }


DOCUMENTS = {
    "AIchor pytorch": aichor("pytorch", "Master", "worker"),
    "AIchor jax": aichor("jax", "Worker"),
    "AIchor xgboost": aichor("xgboost", "master", "Worker"),
    "Placed": PLACED,
    "Pod": pod(FULL, metadata={"name": "a", "annotations": NOTED}, restartPolicy="Never", priority=1),
    "Job": job(FULL, annotations=NOTED, completions=1, parallelism=1, completionMode="Indexed", backoffLimit=2),
    "Ring": job(
        pod={"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, **template()},
        annotations={"swell.dev/tasks": "1..4"},
        completions=2,
        parallelism=2,
    ),
    "Array": job(container(**gpus(1)), completions=10, parallelism=2),
    "PyTorchJob": pytorchjob(replicas(1, FULL), annotations=NOTED, runPolicy=POLICY, nprocPerNode="2"),
    "JobSet": jobset(
        replicated("a", 1, template(FULL), completions=1, parallelism=1, completionMode="Indexed", backoffLimit=2),
        annotations=NOTED,
        successPolicy={"operator": "All", "targetReplicatedJobs": ["a"]},
        failurePolicy={"maxRestarts": 1},
        startupPolicy={"startupPolicyOrder": "AnyOrder"},
        network={"enableDNSHostnames": True},
        coordinator={"replicatedJob": "a", "jobIndex": 0, "podIndex": 0},
        suspend=False,
    ),
    "MPIJob": {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi", "annotations": {"replicas": "2"}},
        "spec": {
            "slotsPerWorker": 2,
            "runLauncherAsWorker": False,
            "mpiImplementation": "OpenMPI",
            "runPolicy": POLICY,
            "mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(1, container(**gpus(1)))},
        },
    },
    "MiniCluster": {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "flux"},
        "spec": {
            "size": 2,
            "minSize": 1,
            "maxSize": 4,
            "tasks": 4,
            "deadlineSeconds": 60,
            "containers": [
                {
                    "name": "a",
                    "command": "a 'b c'",
                    "environment": {"A": "b"},
                    "workingDir": "/data",
                    "launcher": False,
                    "image": "i",
                    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
                }
            ],
        },
    },
    "TrainJob": {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
            "suspend": False,
            "trainer": {
                "image": "i",
                "command": ["torchrun"],
                "args": ["train.py"],
                "env": [{"name": "A", "value": "b"}],
                "numNodes": 2,
                "numProcPerNode": 1,
                "resourcesPerNode": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}},
            },
        },
    },
    "AIchor": {
        "apiVersion": "0.2.3",
        "kind": "AIchorManifest",
        "name": "exp",
        "builder": {"image": "i"},
        "spec": {
            "operator": "jobset",
            "image": "i",
            "command": "a b",
            "env": {"A": "b"},
            "timeout": "6h",
            "activeDeadlineSeconds": 60,
            "restartPolicy": {"backoffLimit": 1},
            "tensorboard": {"enabled": False},
            "storage": {"attachExistingPVCs": [{"name": "data", "mountPoint": "/data"}]},
            "types": {
                "worker": {
                    "count": 2,
                    "completions": 2,
                    "parallelisms": 2,
                    "resources": {
                        "cpus": 1,
                        "ramRatio": "2",
                        "cpuLimitRatio": 2,
                        "shmSizeGB": 1,
                        "accelerators": {"gpu": {"count": 1, "type": "gpu", "product": "A100"}},
                        "extraSelectors": {"zone": "a"},
                        "extraTolerations": [{"key": "gpu", "operator": "Exists"}],
                    },
                }
            },
        },
    },
    "Elastic": pytorchjob(worker=replicas(2), elasticPolicy={"minReplicas": 1, "maxReplicas": 4}),
}
SHARED = {"name": "a", "annotations": {"swell.dev/gpu-memory": "6GiB"}}
ON_CLUSTER = {
    **DOCUMENTS,
    "Shared": pod(container(**gpus(1)), metadata=SHARED, schedulerName="swell"),
    "Whole": pod(
        {"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}], "restartPolicyRules": []},
        {"name": "b", "resources": {"limits": {"rdma/hca": "1", "memory": "1Gi"}, "claims": []}},
        initContainers=[{"name": "c", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        resources={"requests": {"cpu": "4"}, "limits": {"memory": "4Gi"}},
        overhead={"cpu": "100m"},
        topologySpreadConstraints=[{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    ),
    "Flux": {
        **DOCUMENTS["MiniCluster"],
        "spec": {
            "pod": {"nodeSelector": {"zone": "a"}, "labels": {"a": "b"}},
            "containers": [
                {
                    "command": "a",
                    "image": "i",
                    "volumes": {"data": {"path": "/data", "claimName": "data"}},
                    "ports": [80],
                }
            ],
        },
    },
    "Native": {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": "own"},
        "spec": {
            "command": ["a", "b"],
            "image": "i",
            "array": "0-9%2",
            "env": {"A": "b"},
            "workdir": "/w",
            "mounts": [],
        },
    },
}


def own(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": spec}


ROLES = [
    {"name": "reader", "command": ["read"], "cpus": "0.5", "cpuLimit": 2, "memory": "1GiB", "env": {"A": "b"}},
    {
        "name": "trainer",
        "command": ["train", "$(A)"],
        "tasks": 2,
        "gpus": "1..4",
        "gpuMemory": "6GiB",
        "exclusive": True,
    },
]
VOLUMES = [
    {"claim": "data", "folder": "/srv/data", "path": "/data", "readOnly": True},
    {"nfs": "files:/export", "folder": "/mnt/files", "path": "/nfs"},
]
#: in our own notation, and with fields that a cluster refuses
ON_A_MACHINE = {
    "Own roles": own(
        roles=ROLES,
        priority=3,
        time="2-0",
        grace="45",
        epochs=10,
        hours=2.5,
        resize="either",
        retries=2,
        after=[12, {"job": "13", "on": "end"}, "14:end"],
        notify="mail -s done ann",
        notifyOn="error",
        utilizationPolicy={"minGpuUtilization": 10, "window": "30m"},
        nodeSelector={"swell.dev/pool": "a"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        secrets=["HF_TOKEN"],
        tensorboard="runs",
        checkpoints="/c",
    ),
    "Own range": own(command=["python", "a"], launcher="torchrun", tasks="2..8", gpus=1, after="12:end", workdir="w"),
    "Own share": own(command=["a"], gpuMemory="6GiB", onOverrun="yield", notify="https://example.org/hook"),
    "Own image": own(
        command=["a"],
        image="i",
        mounts=["/data:/in:ro"],
        ports=["8888:80"],
        shm="1GiB",
        volumes=VOLUMES,
        secrets=[{"name": "KEY", "secret": "hub", "key": "token"}],
    ),
    "Own files": own(
        command=["a"],
        array="0-9%2",
        uploaded="0" * 64,
        inputs=[{"url": "https://example.org/a.csv", "to": "data/a.csv", "sha256": "1" * 64}, "https://example.org/b"],
        outputs=["results/", "*.txt"],
        workdir="src",
    ),
}
ALL = {**ON_CLUSTER, **ON_A_MACHINE}
LOCAL = (*DOCUMENTS, *ON_A_MACHINE)
PLACES = [(kind, MACHINE) for kind in LOCAL] + [(kind, CLUSTER) for kind in ON_CLUSTER]
NONSENSE: list[Any] = [
    *[None, True, False, 0, 1, -1, 1.5, 10**40, -(10**40), float("inf"), float("nan")],
    *["", " ", "0", "-1", "0.5", "1e400", "9" * 400, "\0", "\ud800", "$(A)", "x" * 10_000, "../../etc/passwd"],
    *[[], [None], [[]], ["a"], [{}], {}, {"a": None}, {"": ""}, {5: 5}, {"name": {}}],
]
MESSAGE_MAX = 1500


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def with_nonsense(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    broken = copy.deepcopy(document)
    parent: Any = broken
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return broken


def what_is_wrong(document: dict[str, Any], context: Context) -> str:
    """With the answer to a document; nothing where it was read into a sound job, or refused in bounded words."""
    try:
        [found] = read_manifests(document, context)
        kind = object_ref(found.document).kind
    except Rejected as problem:
        said = str(problem)
        return "" if 0 < len(said) < MESSAGE_MAX else f"refused with {len(said)} characters: {said}"
    spec = found.spec
    is_sound = (
        bool(kind)
        and JobSpec.from_document(spec.to_document()) == spec
        and 1 <= spec.width_min <= spec.width_max
        and all(role.count >= 1 and role.resources.gpus >= 0 for role in spec.roles)
    )
    return "" if is_sound else f"read as {spec}"


@pytest.mark.parametrize(("kind", "context"), PLACES)
def test_the_documents_are_good_as_long_as_nobody_breaks_them(kind, context):
    assert what_is_wrong(ALL[kind], context) == ""
    assert read_document(ALL[kind], context).roles


@pytest.mark.parametrize(("kind", "context"), PLACES)
def test_nonsense_in_any_place_is_read_or_refused(kind, context):
    for path in places(ALL[kind]):
        for value in NONSENSE:
            assert what_is_wrong(with_nonsense(ALL[kind], path, value), context) == ""


@pytest.mark.parametrize("kind", LOCAL)
def test_a_field_nobody_knows_is_refused_in_any_place_that_is_looked_at(kind):
    free = {
        "annotations",
        "labels",
        "matchLabels",
        "nodeSelector",
        "env",
        "environment",
        "extraSelectors",
        "buildArgs",
    }  # anybody's names are good there
    for path in places(ALL[kind]):
        inner: Any = ALL[kind]
        for key in path:
            inner = inner[key]
        if isinstance(inner, dict) and path[-1] not in free:
            with pytest.raises(Rejected):
                read_document(with_nonsense(ALL[kind], path, {**inner, "frobnicate": 1}), MACHINE)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(PLACES), st.data())
def test_random_values_in_random_places_are_read_or_refused(place, data):
    kind, context = place
    document = ALL[kind]
    for path in data.draw(st.lists(st.sampled_from(list(places(document))), min_size=1, max_size=3)):
        try:
            document = with_nonsense(document, path, data.draw(ANY))
        except (KeyError, IndexError, TypeError):  # an earlier one took its place away
            continue
    assert what_is_wrong(document, context) == ""
