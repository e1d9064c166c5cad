"""AIchor's manifests: written out as the object that their operator makes, and read as that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import Commit, Context, read_manifests
from swell.model.job import Container, JobSpec, Role

from .kubernetes import CONTEXT, read, refusal
from .kubernetes import told as said

EXAMPLES = Path(__file__).parents[2] / "examples" / "aichor"
CLUSTER = replace(CONTEXT, on_cluster=True)
ID = CONTEXT.new_id()
EMPTY = {
    *("AICHOR_CLUSTER_NAME", "AICHOR_EXPERIMENT_MESSAGE", "AICHOR_PROJECT_ID", "AICHOR_USER_EMAIL", "S3_ENDPOINT"),
    *("VCS_COMMIT_MESSAGE", "VCS_SHA", "VCS_TYPE"),
}
NAMES = ("JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX")


def manifest(types: Any = None, **spec: Any) -> dict[str, Any]:
    given = {"worker": {"count": 2, "resources": {"cpus": 1, "ramRatio": 2}}} if types is None else types
    found = {"operator": "jobset", "image": "i", "command": "python3 -u main.py", "types": given, **spec}
    return {"kind": "AIchorManifest", "apiVersion": "0.2.3", "name": "exp", "spec": found}


def typed(**fields: Any) -> dict[str, Any]:
    return {"worker": {"resources": {"cpus": 1}, **fields}}


SMALL = {"count": 2, "resources": {"cpus": 1}}


PAIR = {"master": {"resources": {"cpus": 1}}, "worker": SMALL}


def containers(value: Any) -> list[Any]:
    """Of every pod in a document."""
    if isinstance(value, list):
        return [one for entry in value for one in containers(entry)]
    if not isinstance(value, dict):
        return []
    return value.get("containers") or [one for entry in value.values() for one in containers(entry)]


def told(role: Role, tasks: int) -> dict[str, list[int]]:
    return {one.name: [one.of(task) for task in range(tasks)] for one in role.numbered if one.name in NAMES}


def scenario(number: int) -> JobSpec:
    text = (EXAMPLES / f"scenario-{number}.yaml").read_text()
    [found] = read_manifests(text, Context(workdir="/work"))
    return found.spec


def test_a_type_is_a_role_whose_command_is_a_line_for_a_shell():
    spec = read(manifest(timeout="6h", activeDeadlineSeconds=60, restartPolicy={"backoffLimit": 3}, env={"A": "$(B)"}))
    [role] = spec.roles
    assert (spec.name, spec.kind, role.name, role.count) == ("exp", "JobSet", "worker", 2)
    assert (role.command, role.resources.cpus_milli, role.resources.memory_mib) == (
        ("sh", "-c", "python3 -u main.py"),
        1000,
        1908,
    )
    assert (spec.time_limit_s, spec.retries, dict(role.env)["A"]) == (21600.0, 3, "$(B)")
    assert {name: text for name, text in role.env if name.startswith("AICHOR") and name not in EMPTY} == {
        "AICHOR_EXPERIMENT_ID": ID,
        "AICHOR_INPUT_PATH": "/home/ann/aichor/exp/input",
        "AICHOR_LOGS_PATH": f"/home/ann/aichor/exp/logs/{ID}",
        "AICHOR_OUTPUT_PATH": f"/home/ann/aichor/exp/output/{ID}",
        "AICHOR_TENSORBOARD_PATH": f"/home/ann/aichor/exp/tensorboard/{ID}",
        "AICHOR_USER_NAME": "ann",
    }


@pytest.mark.parametrize("context", [CONTEXT, CLUSTER])
@pytest.mark.parametrize("operator", ["jobset", "jax", "pytorch", "xgboost"])
def test_what_aichor_tells_and_nobody_here_knows_is_empty(operator, context):
    """A program that reads os.environ["VCS_SHA"] ended with a KeyError. What the manifest says wins."""
    [found] = read_manifests(manifest({"Worker": SMALL} if operator == "jax" else PAIR, operator=operator), context)
    pods = containers(found.document)
    for one in pods:
        env = {variable["name"]: variable.get("value") for variable in one["env"]}
        assert {name for name, text in env.items() if text == ""} == EMPTY
        assert (env["AICHOR_EXPERIMENT_ID"], env["AICHOR_USER_NAME"]) == (ID, "ann")
    spec = read(manifest(env={"VCS_SHA": "abc"}))
    assert dict(spec.roles[0].env)["VCS_SHA"] == "abc"


def test_what_the_caller_has_set_of_it_is_what_a_process_finds():
    known = replace(CONTEXT, variables=frozenset({"VCS_SHA", "S3_ENDPOINT", "AICHOR_EXPERIMENT_ID"}))
    env = dict(read(manifest(), known).roles[0].env)
    assert EMPTY - set(env) == {"VCS_SHA", "S3_ENDPOINT"}
    assert env["AICHOR_EXPERIMENT_ID"] == ID


@pytest.mark.parametrize("context", [CONTEXT, CLUSTER])
def test_tasks_are_told_the_commit_that_the_manifest_came_from(context):
    known = replace(context, commit=Commit("0123abcd", "Try $HOME\n\nin a second paragraph"))
    env = dict(read(manifest(), known).roles[0].env) if not context.on_cluster else variables_of(manifest(), known)
    message = "Try $HOME\n\nin a second paragraph".replace("$", "$$" if context.on_cluster else "$")
    assert {name: env[name] for name in ("VCS_TYPE", "VCS_SHA", "VCS_COMMIT_MESSAGE")} == {
        "VCS_TYPE": "git",
        "VCS_SHA": "0123abcd",
        "VCS_COMMIT_MESSAGE": message,
    }
    own = replace(known, variables=frozenset({"VCS_SHA"}))
    assert "VCS_SHA" not in dict(read(manifest(), replace(own, on_cluster=False)).roles[0].env), "the caller's stays"


def variables_of(document: dict[str, Any], context: Context) -> dict[str, Any]:
    [found] = read_manifests(document, context)
    [pod] = containers(found.document)
    return {one["name"]: one.get("value") for one in pod["env"]}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("registry.example:5000/team/My_Model:1.2", "my-model"),
        ("count@sha256:0123", "count"),
        ("i", "i"),
        ("x" * 300, "x" * 24),
        ("7up", "experiment"),
        ("//", "experiment"),
    ],
)
def test_without_a_name_it_has_that_of_its_image_and_every_submission_an_id_and_folders_of_its_own(image, name):
    document = {**manifest(image=image), "name": None}
    drawn = Context(workdir="/home/ann")
    first, second = read(document, drawn), read(document, drawn)
    assert (first.name, second.name) == (name, name)
    for part in ("EXPERIMENT_ID", "OUTPUT_PATH", "TENSORBOARD_PATH", "LOGS_PATH"):
        assert dict(first.roles[0].env)[f"AICHOR_{part}"] != dict(second.roles[0].env)[f"AICHOR_{part}"]
    assert read(document, CLUSTER).name == f"{name}-{ID[:8]}"
    assert read(document, replace(CONTEXT, name="given")).name == "given"


def test_rdma_devices_are_those_of_the_machine_and_are_refused_on_kubernetes():
    document = manifest(typed(resources={"cpus": 1, "rdma": {"devices": ["mlx5_0"]}}))
    where = "spec.types.worker.resources.rdma"
    assert f"{where} has no effect: processes have the RDMA devices of this machine" in read(document).notes
    assert refusal(document, CLUSTER) == (
        f"{where} asks for RDMA devices, which Swell does not count on Kubernetes; leave it out"
    )


def test_in_its_image_it_is_a_container_with_as_much_shared_memory_as_it_asks_for():
    built = replace(CONTEXT, in_images=True)
    resources = {"cpus": 1, "shmSizeGB": 2}
    document = {**manifest(typed(resources=resources), image="count:1"), "builder": {"image": "count:1"}}
    spec = read(document, built)
    assert spec.container == Container("count:1", shm_mib=1908)
    assert not [note for note in spec.notes if note.startswith("builder")]
    with pytest.raises(Rejected, match="an image that is built on this machine is not where a cluster looks for it"):
        read_manifests(manifest(), replace(CLUSTER, in_images=True))


def test_what_is_read_over_is_said():
    """`rayVersion`, `registry` and what skipBuild names were taken without a word."""
    builder = {"image": "i", "registry": "r", "skipBuild": {"experimentID": "7", "failIfNotFound": False}}
    document = {**manifest(rayVersion="2.9"), "builder": builder}
    ray = "spec.rayVersion has no effect: it is for the operator kuberay"
    assert ray in read(document).notes
    enabled = "has no effect: enabled takes the image of this name, whoever built it"
    assert list(said(read(document, replace(CONTEXT, in_images=True)))) == [
        "builder.registry has no effect: the image stays on this machine, and is pushed nowhere",
        f"builder.skipBuild.experimentID {enabled}",
        f"builder.skipBuild.failIfNotFound {enabled}",
        ray,
    ]


def test_a_gpu_of_the_plain_type_is_a_gpu():
    gpu = {"count": 2, "type": "gpu"}
    spec = read(manifest(typed(resources={"cpus": 1, "accelerators": {"gpu": gpu}})))
    assert spec.roles[0].resources.gpus == 2


def test_scenario_1_is_a_gang_of_five_jobs():
    spec = scenario(1)
    [role] = spec.roles
    assert (spec.array, role.count, dict(role.env)["GLOBAL_REPLICAS"]) == (None, 5, "5")
    assert told(role, 5) == {
        "JOB_INDEX": [0, 1, 2, 3, 4],
        "JOB_GLOBAL_INDEX": [0, 1, 2, 3, 4],
        "JOB_COMPLETION_INDEX": [0, 0, 0, 0, 0],
    }


def test_scenario_2_counts_all_jobs_in_the_order_of_their_types_names():
    """As AIchor does: worker-5 has 5 of 8, and worker-heavy-0 has 7, although it is written first."""
    worker, heavy = scenario(2).roles
    assert (worker.name, heavy.name) == ("worker", "worker-heavy")
    assert told(worker, 7)["JOB_GLOBAL_INDEX"] == [0, 1, 2, 3, 4, 5, 6]
    assert told(heavy, 1) == {"JOB_INDEX": [0], "JOB_GLOBAL_INDEX": [7], "JOB_COMPLETION_INDEX": [0]}
    for role in (worker, heavy):
        env = dict(role.env)
        assert (env["GLOBAL_REPLICAS"], env["REPLICATED_JOB_NAME"]) == ("8", role.name)
        assert env["SWELL_SHARDS"] == "worker-heavy:1x1:600,worker:7x1:200"


def test_scenario_3_is_a_gang_of_all_completions():
    [role] = scenario(3).roles
    assert role.count == 15
    assert told(role, 4) == {
        "JOB_INDEX": [0, 0, 0, 1],
        "JOB_GLOBAL_INDEX": [0, 0, 0, 1],
        "JOB_COMPLETION_INDEX": [0, 1, 2, 0],
    }


def test_scenario_4_is_an_array_of_which_one_of_each_job_runs_at_once():
    spec = scenario(4)
    assert spec.array is not None
    assert (len(spec.array.indices), spec.array.at_once) == (15, 5)
    assert told(spec.roles[0], 6) == {
        "JOB_INDEX": [0, 1, 2, 3, 4, 0],
        "JOB_GLOBAL_INDEX": [0, 1, 2, 3, 4, 0],
        "JOB_COMPLETION_INDEX": [0, 0, 0, 0, 0, 1],
    }


def test_the_pytorch_operator_makes_a_gang_of_a_master_and_workers():
    size = {"resources": {"cpus": 1, "accelerators": {"gpu": {"count": 1}}}}
    spec = read(manifest({"Worker": {"count": 3, **size}, "Master": size}, operator="pytorch"))
    assert spec.kind == "PyTorchJob"
    assert [(role.name, role.count) for role in spec.roles] == [("master", 1), ("worker", 3)]
    assert [role.resources.gpus for role in spec.roles] == [1, 1]


@pytest.mark.parametrize("name", ["Worker", "worker"])
def test_the_jax_operator_makes_numbered_processes_that_know_their_coordinator(name):
    spec = read(manifest({name: SMALL}, operator="jax"))
    [role] = spec.roles
    env = dict(role.env)
    assert (spec.kind, role.name, role.count, spec.array) == ("JobSet", "worker", 2, None)
    assert env["JAXOPERATOR_NUM_PROCESSES"] == "2"
    assert [[one.of(task) for task in range(2)] for one in role.numbered if one.name.startswith("JAX")] == [[0, 1]]
    assert role.command == (
        *("sh", "-c", 'export JAXOPERATOR_COORDINATOR_ADDRESS="$MASTER_ADDR:$MASTER_PORT"; exec "$@"'),
        *("sh", "sh", "-c", "python3 -u main.py"),
    )
    [there] = read_manifests(manifest({name: SMALL}, operator="jax"), CLUSTER)
    [entry] = there.document["spec"]["replicatedJobs"]
    [container] = entry["template"]["spec"]["template"]["spec"]["containers"]
    told_there = {one["name"]: one.get("value") for one in container["env"] if one["name"].startswith("JAX")}
    assert told_there == {
        "JAXOPERATOR_COORDINATOR_ADDRESS": "exp-worker-0-0.exp:23456",
        "JAXOPERATOR_NUM_PROCESSES": "2",
        "JAXOPERATOR_PROCESS_ID": None,
    }
    assert (entry["replicas"], entry["template"]["spec"]["completions"]) == (1, 2)


@pytest.mark.parametrize("write", [str.lower, str.upper, str.capitalize])
@pytest.mark.parametrize("operator", ["jobset", "jax", "pytorch", "xgboost"])
def test_a_type_may_be_written_in_any_case_with_every_operator(operator, write):
    names = ["worker"] if operator == "jax" else ["master", "worker"]
    count = {"master": 1, "worker": 2}
    types = {name: {"count": count[name], "resources": {"cpus": 1}} for name in names}
    written = {write(name): value for name, value in types.items()}
    spec = read(manifest(written, operator=operator))
    assert [(role.name, role.count) for role in spec.roles] == [(name, count[name]) for name in names]
    twice = {"Worker": SMALL, "WORKER": SMALL}
    assert refusal(manifest(twice, operator=operator)) == (
        f"spec.types has both Worker and WORKER, which are one type of operator {operator}; keep one"
    )


@pytest.mark.parametrize("size", [0, "0", "0.0", 0.0, None])
@pytest.mark.parametrize("version", ["0.2.1", "0.2.2", "0.2.3"])
@pytest.mark.parametrize("context", [CONTEXT, CLUSTER])
def test_no_shared_memory_may_be_asked_for_as_0(size, version, context):
    asked = {"cpus": 1, "shmSizeGB": size}
    with_it = {**manifest(typed(resources=asked)), "apiVersion": version}
    without = {**manifest(typed(resources={"cpus": 1})), "apiVersion": version}
    [found], [other] = read_manifests(with_it, context), read_manifests(without, context)
    assert (found.spec, found.document) == (other.spec, other.document)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        *[(name, 0, "above 0, as in 4 or 0.5, but is 0") for name in ("cpus", "ramRatio", "memory", "cpuLimitRatio")],
        ("cpus", "-0.5", "above 0, as in 4 or 0.5, but is -0.5"),
        ("shmSizeGB", -1, "of 0 (none) or more, as in 4 or 0.5, but is -1"),
        ("shmSizeGB", "1.00000", "of 0 (none) or more, as in 4 or 0.5, but is 1.00000"),
        ("shmSizeGB", "big", "of 0 (none) or more, as in 4 or 0.5, but is 'big'"),
        ("shmSizeGB", True, "of 0 (none) or more, as in 4 or 0.5, but is true/false: True"),
    ],
)
def test_a_number_that_cannot_be_is_not_called_text(field, value, said):
    resources = {"cpus": 1, field: value}
    assert (
        refusal(manifest(typed(resources=resources))) == f"spec.types.worker.resources.{field} must be a number {said}"
    )


def test_the_xgboost_operator_makes_a_gang_that_knows_the_addresses_of_its_workers():
    types = {"Master": {"resources": {"cpus": 1}}, "Worker": SMALL}
    spec = read(manifest(types, operator="xgboost"))
    assert (spec.kind, [(role.name, role.count) for role in spec.roles]) == (
        "PyTorchJob",
        [("master", 1), ("worker", 2)],
    )
    exports = 'export WORKER_PORT="$((MASTER_PORT + 1))"; export WORKER_ADDRS="$MASTER_ADDR,$MASTER_ADDR"; exec "$@"'
    assert {role.command[2] for role in spec.roles} == {exports}
    [there] = read_manifests(manifest(types, operator="xgboost"), CLUSTER)
    [container] = there.document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    told_there = {one["name"]: one["value"] for one in container["env"] if one["name"] not in EMPTY}
    assert told_there == {
        "AICHOR_EXPERIMENT_ID": ID,
        "AICHOR_USER_NAME": "ann",
        "WORKER_PORT": "23456",
        "WORKER_ADDRS": "exp-worker-0,exp-worker-1",
    }


def test_what_is_created_on_a_cluster_is_the_operators_object():
    resources = {
        "cpus": 4,
        "ramRatio": 4,
        "cpuLimitRatio": 1,
        "shmSizeGB": 2,
        "accelerators": {"gpu": {"count": 2, "product": "A100"}},
        "extraSelectors": {"zone": "a"},
        "extraTolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    storage = {"attachExistingPVCs": [{"name": "data", "mountPoint": "/data"}]}
    document = manifest({"worker": {"count": 2, "resources": resources}}, storage=storage, env={"A": "b"})
    [found] = read_manifests(document, CLUSTER)
    assert (found.document["kind"], found.document["metadata"]) == ("JobSet", {"name": "exp"})
    [entry] = found.document["spec"]["replicatedJobs"]
    pod = entry["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (entry["name"], entry["replicas"], pod["nodeSelector"]) == (
        "worker",
        2,
        {"zone": "a", "nvidia.com/gpu.product": "A100"},
    )
    asked = {"cpu": "4000m", "memory": "16000M", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert [volume["name"] for volume in pod["volumes"]] == ["pvc-0", "shm"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/dev/shm"]
    assert {one["name"] for one in container["env"]} >= {"A", "SWELL_SHARDS", "GLOBAL_REPLICAS", *NAMES}


@pytest.mark.parametrize(
    ("storage", "folder", "volumes"),
    [
        ({}, "/aichor/tensorboard", ["tensorboard"]),
        ({"sharedVolume": {"mountPoint": "/mnt", "sizeGB": 1}}, "/mnt/tensorboard", ["shared"]),
    ],
)
def test_on_kubernetes_tensorboard_is_a_sidecar_of_the_first_type(storage, folder, volumes):
    types = {"trainer": {"resources": {"cpus": 1}}, "helper": {"resources": {"cpus": 1}}}
    document = manifest(tensorboard={"enabled": True}, storage=storage, types=types)
    [made] = read_manifests(document, replace(CONTEXT, on_cluster=True))
    pods = {one["name"]: one["template"]["spec"]["template"]["spec"] for one in made.document["spec"]["replicatedJobs"]}
    assert "initContainers" not in pods["helper"]
    [sidecar], [container] = pods["trainer"]["initContainers"], pods["trainer"]["containers"]
    assert sidecar["command"][4:6] == ["--logdir", folder]
    assert sidecar["volumeMounts"] == container["volumeMounts"]
    assert [one["name"] for one in pods["trainer"]["volumes"]] == volumes
    told = [
        {one["name"]: one["value"] for one in pod["containers"][0]["env"] if one["name"].startswith("AICHOR")}
        for pod in pods.values()
    ]
    assert [one["AICHOR_TENSORBOARD_PATH"] for one in told] == [folder] * 2
    assert made.spec.tensorboard is None
    assert "tensorboard: look at it with kubectl port-forward, for pods of trainer, at port 6006" in made.spec.notes


def test_what_has_no_effect_is_said_and_tensorboard_reads_the_folder_that_the_job_is_told():
    shared = {"sharedVolume": {"mountPoint": "/mnt", "sizeGB": 1}}
    document = manifest(storage=shared, tensorboard={"enabled": True}, debug={"jupyter": False})
    spec = read({**document, "builder": {"image": "i"}, "clone": {"depth": 1}})
    assert spec.tensorboard == f"/home/ann/aichor/exp/tensorboard/{ID}"
    assert spec.notes[:3] == (
        (
            "builder has no effect: Swell does not build images; the command runs as a process here, or in its image "
            "with swell submit --build"
        ),
        "clone has no effect: Swell runs what is in the folder that it is submitted from",
        (
            "spec.storage.sharedVolume has no effect: processes of this machine share its folders, and /mnt is one of "
            "them or is not there"
        ),
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (manifest(operator="kuberay"), "spec.operator is kuberay, which needs a Ray cluster, which Swell"),
        (manifest({"Worker": SMALL, "worker": SMALL}, operator="jax"), "spec.types has both Worker and worker, which"),
        (
            manifest({"Driver": SMALL}, operator="xgboost"),
            "spec.types: 'Driver' is no type of operator xgboost: Master",
        ),
        (manifest(operator="batchjob"), "spec.operator is batchjob, which needs nothing but a jobset of one type"),
        (
            manifest(operator="jobsets"),
            "spec.operator must be one of jobset, pytorch, jax, xgboost, but is 'jobsets'; did you",
        ),
        (manifest({}), "spec.types is empty; give at least one"),
        (manifest({"a_b": {"resources": {"cpus": 1}}}), "spec.types: 'a_b' cannot be a type's name"),
        (manifest(typed(count=0)), "spec.types.worker.count is 0; it must be from 1 to"),
        (manifest(typed(count=10**9)), "spec.types.worker.count is 1000000000; it must be from 1 to"),
        (manifest(typed(parallelism=2)), "spec.types.worker has no field 'parallelism'; did you mean 'parallelisms'?"),
        (manifest(typed(resources={"cpus": -1})), "spec.types.worker.resources.cpus must be a number above 0, as in 4"),
        (manifest(typed(resources={"cpus": 1, "ramRatio": 1, "memory": 1})), "spec.types.worker.resources has both"),
        (
            manifest(typed(resources={"cpus": 1, "accelerators": {"tpu": {"type": "v4"}}})),
            "spec.types.worker.resources.accelerators.tpu asks for TPUs, which Swell does not know",
        ),
        (
            manifest(typed(resources={"cpus": 1, "accelerators": {"gpu": {"count": 1, "type": "mig-1g.5gb"}}})),
            "spec.types.worker.resources.accelerators.gpu.type is 'mig-1g.5gb', which is no whole GPU, and Swell ",
        ),
        (manifest(debug={"jupyter": True}), "spec.debug opens a notebook or an editor beside the job"),
        (manifest(env={"JOB_INDEX": "1"}), "spec.env: JOB_INDEX is told by the operator, and another value would"),
        (manifest(timeout="soon"), "spec.timeout: 'soon' is not a time; write 6h, 90m or 1d"),
        (manifest(command=""), "spec.command must be a list of words"),
        ({**manifest(), "builder": {"image": "other"}}, "spec.image is 'i', but builder.image is another"),
        ({**manifest(), "name": "../x"}, "name '../x' cannot be used"),
        (
            manifest({**typed(completions=4), "b": {"resources": {"cpus": 1}}}),
            "spec.types.worker runs 1 of 4 completions at once beside other types, which start together",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(document, said):
    assert refusal(document).startswith(said)


SHARED = {"mountPoint": "/mnt/shared", "sizeGB": 2.5, "storageClass": "fast", "accessMode": "ReadWriteOnce"}


@pytest.mark.parametrize("operator", ["jobset", "jax", "pytorch", "xgboost"])
def test_on_a_cluster_a_shared_volume_is_a_claim_that_the_object_asks_for_and_its_pods_mount(operator):
    types = (
        {"Master": {**SMALL, "count": 1}, "Worker": SMALL} if operator in ("pytorch", "xgboost") else {"worker": SMALL}
    )
    [found] = read_manifests(manifest(types, operator=operator, storage={"sharedVolume": SHARED}), CLUSTER)
    assert found.document["metadata"] == {
        "name": "exp",
        "annotations": {"swell.dev/shared-volume": "2500M ReadWriteOnce fast"},
    }
    spec = found.document["spec"]
    pods = (
        [one["template"]["spec"]["template"]["spec"] for one in spec["replicatedJobs"]]
        if "replicatedJobs" in spec
        else [one["template"]["spec"] for one in spec["pytorchReplicaSpecs"].values()]
    )
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": "exp-shared"}}
    mount = {"name": "shared", "mountPath": "/mnt/shared"}
    assert [(pod["volumes"], pod["containers"][0]["volumeMounts"]) for pod in pods] == [([volume], [mount])] * len(
        types
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mountPoint": None}, "spec.storage.sharedVolume.mountPoint must be text, but is empty"),
        ({"mountPoint": "data"}, "spec.storage.sharedVolume.mountPoint must be a path from / on, without a ':'"),
        ({"sizeGB": 0}, "spec.storage.sharedVolume.sizeGB must be a number above 0"),
        ({"sizeGB": None}, "spec.storage.sharedVolume.sizeGB must be a number above 0"),
        ({"accessMode": "RWX"}, "spec.storage.sharedVolume.accessMode must be one of ReadWriteMany, ReadWriteOnce"),
        ({"storageClass": "a b"}, "spec.storage.sharedVolume: '2500M ReadWriteOnce a b' is no volume"),
        ({"storageClass": 3}, "spec.storage.sharedVolume.storageClass must be text, but is a number: 3"),
        ({"size": 3}, "spec.storage.sharedVolume has no field 'size'; did you mean 'sizeGB'"),
    ],
)
def test_a_shared_volume_that_cannot_be_read_is_refused_wherever_it_would_run(changes, said):
    document = manifest(storage={"sharedVolume": {**SHARED, **changes}})
    assert [refusal(document)[: len(said)], refusal(document, CLUSTER)[: len(said)]] == [said, said]


def test_containers_of_this_machine_share_no_volume():
    document = {**manifest(storage={"sharedVolume": SHARED}), "builder": {"image": "i"}}
    said = refusal(document, replace(CONTEXT, in_images=True))
    assert said.startswith("spec.storage.sharedVolume with --build would be a folder that containers")
