"""Our own notation where Kubernetes runs it: what a pod can do, and which objects a job becomes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import native_objects, object_name, read_document, read_manifests
from swell.model.job import JobSpec, Role
from swell.model.resources import Resources

from .kubernetes import CONTEXT, GPU

CLUSTER = replace(CONTEXT, on_cluster=True)
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def document(**spec: Any) -> dict[str, Any]:
    given = {"command": ["train"], "image": "python:3.12", **spec}
    return {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": given}


def read(**spec: Any) -> JobSpec:
    return read_document(document(**spec), CLUSTER)


def objects(spec: JobSpec, width: int, **options: Any) -> tuple[dict[str, Any], ...]:
    return native_objects(spec, name="own-7", namespace="lab", width=width, **{"run_as": 1000, **options})


def main(pod: dict[str, Any]) -> dict[str, Any]:
    [container] = pod["spec"]["containers"]
    return container


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_job_of_our_own_keeps_its_retries_and_has_no_folder_of_the_caller():
    spec = read(retries=3, env={"A": "b"})
    assert (spec.retries, spec.workdir, spec.env, spec.notes) == (3, "", (("A", "b"),), ())
    assert read(workdir="/app").workdir == "/app"
    [manifest] = read_manifests(document(), CLUSTER)
    assert manifest.document == document()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"image": None},
            "a job on Kubernetes runs in a container: give --image IMAGE, or image: IMAGE in the file",
        ),
        (
            {"mounts": ["/data:/data"]},
            (
                "mounts would mount folders of a node into the pod (hostPath), which Pod Security 'restricted' does "
                "not allow; name a volume instead, as in volumes: [{claim: data, folder: /srv/data, path: /data}]"
            ),
        ),
        (
            {"tensorboard": "runs"},
            "tensorboard: 'runs' must be a folder of the container, from / on, as in /logs",
        ),
        ({"tensorboard": "/"}, "tensorboard: '/' must be a folder of the container, from / on, as in /logs"),
        (
            {"tensorboard": "/a/../b"},
            "tensorboard: '/a/../b' must be a folder of the container, from / on, as in /logs",
        ),
        (
            {"tensorboard": "/logs", "array": "0-3"},
            "tensorboard of an array: on Kubernetes each task has a pod of its own; leave it out",
        ),
        (
            {"checkpoints": "/ckpt"},
            (
                "checkpoints is a folder that must outlive its pods, and a pod's own does not; write a Pod or "
                "PyTorchJob manifest that mounts a volume for it"
            ),
        ),
        (
            {"workdir": "runs"},
            (
                "workdir 'runs' is relative to your folder, which a pod does not have; write a path of the image, from "
                "/ on, or leave it out for the image's own"
            ),
        ),
        (
            {"array": "1-9:2"},
            (
                "array 1-9:2: on Kubernetes the tasks of an array are counted from 0; write 0-4, and let the command "
                "find its part by JOB_COMPLETION_INDEX"
            ),
        ),
        (
            {"array": "0-199999"},
            "array has 200000 tasks; Kubernetes runs at most 100000 in one Job: split it",
        ),
        (
            {"command": ["cat", "\udcff"]},
            "command: '\\udcff' is not UTF-8, which Kubernetes wants; put it into a file",
        ),
        (
            {"env": {"A": "\udcff"}},
            "env: '\\udcff' is not UTF-8, which Kubernetes wants; put it into a file",
        ),
    ],
)
def test_what_a_pod_cannot_do_is_refused(spec, message):
    with pytest.raises(Rejected) as caught:
        read(**spec)
    assert str(caught.value) == message


def test_on_a_machine_no_image_is_needed():
    assert read_document(document(image=None, workdir="runs"), CONTEXT).workdir == "/home/ann/runs"


def test_what_nobody_measures_there_is_said():
    given = {"gpuMemory": "6GiB", "onOverrun": "stop", "utilizationPolicy": {"minGpuUtilization": 5, "window": "1h"}}
    assert read(**given).notes == (
        "onOverrun has no effect: GPUs are not measured on Kubernetes",
        "utilizationPolicy has no effect: GPUs are not measured on Kubernetes",
    )


# -- objects -------------------------------------------------------------------------------------------------------

SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000}


def test_an_array_is_an_indexed_job():
    given = {"array": "0-99%8", "retries": 2, "time": "90s", "grace": "5s", "memory": "2GiB", "gpus": 1}
    [found] = objects(read(env={"A": "b"}, **given), 5)
    assert found == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "own-7", "namespace": "lab", "labels": {"swell.dev/of": "own-7"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": 100,
            "parallelism": 5,
            "backoffLimitPerIndex": 2,
            "template": {
                "metadata": {"labels": {"swell.dev/of": "own-7"}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "activeDeadlineSeconds": 90,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": SECURITY,
                    "containers": [
                        {
                            "name": "main",
                            "image": "python:3.12",
                            "command": ["train"],
                            "env": [
                                {"name": "A", "value": "b"},
                                {"name": "RANK", "value": "0"},
                                {
                                    "name": "SWELL_TASK_INDEX",
                                    "valueFrom": {
                                        "fieldRef": {
                                            "fieldPath": "metadata.annotations"
                                            "['batch.kubernetes.io/job-completion-index']"
                                        }
                                    },
                                },
                                {"name": "WORLD_SIZE", "value": "1"},
                            ],
                            "resources": {
                                "requests": {"cpu": "1000m", "memory": "2048Mi", GPU: "1"},
                                "limits": {GPU: "1"},
                            },
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                },
            },
        },
    }


def test_a_gang_is_pods_that_find_each_other_by_name():
    service, *pods = objects(read(tasks="2..4"), 3)
    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "own-7", "namespace": "lab", "labels": {"swell.dev/of": "own-7"}},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"swell.dev/of": "own-7"}},
    }
    assert [pod["metadata"] for pod in pods] == [
        {"name": f"own-7-{rank}", "namespace": "lab", "labels": {"swell.dev/of": "own-7"}} for rank in range(3)
    ]
    assert [(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in pods] == [
        (f"own-7-{rank}", "own-7") for rank in range(3)
    ]
    told = variables(main(pods[2]))
    assert json.loads(told.pop("TF_CONFIG")) == {
        "cluster": {"worker": [f"own-7-{rank}.own-7:23456" for rank in range(3)]},
        "task": {"type": "worker", "index": 2},
    }
    assert told == {
        "RANK": "2",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "2",
        "GROUP_RANK": "2",
        "NUM_NODES": "3",
        "NUM_GPUS": "0",
        "MASTER_ADDR": "own-7-0.own-7",
        "MASTER_PORT": "23456",
        "SWELL_TASK_INDEX": "2",
        "SWELL_TASK_COUNT": "3",
    }


def test_one_task_is_one_pod_as_wide_as_planned_and_needs_no_name():
    [pod] = objects(read(gpus="1..4", cpus="0.5"), 3)
    assert (pod["kind"], "hostname" in pod["spec"]) == ("Pod", False)
    assert main(pod)["resources"] == {"requests": {"cpu": "500m", GPU: "3"}, "limits": {GPU: "3"}}
    told = variables(main(pod))
    assert (told["MASTER_ADDR"], told["WORLD_SIZE"], told["NUM_GPUS"]) == ("127.0.0.1", "1", "3")


@pytest.mark.parametrize("spec", [{"gpus": "1..4"}, {"tasks": 2, "gpus": 2}, {"array": "0-3", "gpus": 2}])
def test_a_launcher_starts_the_command_in_its_pod(spec: dict[str, Any]):
    found = objects(read(launcher="torchrun", command=["train.py", "$(HOME)"], **spec), 1)[-1]
    pod = found["spec"]["template"] if found["kind"] == "Job" else found
    [shell, option, script, name, *words] = main(pod)["command"]
    assert (shell, option, name, words) == ("sh", "-c", "swell", ["", "train.py", "$$(HOME)"])
    assert 'exec "$$python" -m torch.distributed.run --nnodes="$$nodes"' in script, "Kubernetes makes $ of $$"


def test_roles_have_their_own_command_size_and_variables_in_the_order_of_ranks():
    first = Role("head", ("head",), Resources(1000), 1, (("ROLE", "head"),))
    second = Role("arm", ("arm",), Resources(0, 512, 2), 2, (("ROLE", "arm"),))
    spec = replace(read(tasks=1, env={"ROLE": "none", "RANK": "9"}), roles=(first, second))
    _, *pods = objects(spec, 1)
    found = [(main(pod)["command"], main(pod)["resources"].get("requests"), variables(main(pod))) for pod in pods]
    assert [(command, requests, told["ROLE"], told["RANK"]) for command, requests, told in found] == [
        (["head"], {"cpu": "1000m"}, "head", "0"),
        (["arm"], {"memory": "512Mi", GPU: "2"}, "arm", "1"),
        (["arm"], {"memory": "512Mi", GPU: "2"}, "arm", "2"),
    ]


def test_a_share_of_a_gpu_is_not_asked_of_the_device_plugin():
    [pod] = objects(read(gpuMemory="6GiB"), 1)
    assert main(pod)["resources"] == {"requests": {"cpu": "1000m"}}


def test_words_and_values_reach_the_program_as_they_were_written():
    """Kubernetes would replace $(HOME) and halve $$."""
    [pod] = objects(read(command=["sh", "-c", "echo $(HOME) $$ $x"], env={"A": "$(B)"}), 1)
    assert main(pod)["command"] == ["sh", "-c", "echo $$(HOME) $$$$ $$x"]
    assert variables(main(pod))["A"] == "$$(B)"


def test_only_a_folder_that_was_named_is_set_and_the_user_can_be_left_to_the_cluster():
    [plain], [named] = objects(read(), 1, run_as=None), objects(read(workdir="/app"), 1)
    assert ("workingDir" in main(plain), main(named)["workingDir"]) == (False, "/app")
    assert plain["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert named["spec"]["securityContext"] == SECURITY


def test_of_a_large_gang_nobody_is_told_all_addresses():
    _, *pods = objects(read(tasks=101), 101)
    assert "TF_CONFIG" not in variables(main(pods[0]))
    assert len(pods) == 101


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet", "resnet-7"),
        ("My_Job.v2", "my-job-v2-7"),
        ("3d-unet", "job-3d-unet-7"),
        ("___", "job-7"),
        ("a" * 63, "a" * 54 + "-7"),
        ("a" * 53 + "-b", "a" * 53 + "-7"),
    ],
)
def test_names_are_made_fit_for_pods_and_services_and_keep_the_jobs_id(name, expected):
    assert object_name(name, 7) == expected
    assert LABEL.fullmatch(f"{expected}-999999")


def test_volumes_shared_memory_ports_limits_and_nodes_are_the_pods():
    given = {
        "cpus": 2,
        "cpuLimit": 4,
        "shm": "2GiB",
        "ports": ["8888:80"],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [
            {"claim": "data", "path": "/data", "folder": "/srv/data"},
            {"nfs": "files.example.org:/export", "path": "/nfs", "readOnly": True},
        ],
    }
    spec = read(**given)
    [pod] = objects(spec, 1)
    [container] = pod["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2000m"}, "limits": {"cpu": "4000m"}}
    assert container["ports"] == [{"containerPort": 80}]
    assert (pod["spec"]["nodeSelector"], pod["spec"]["tolerations"]) == (
        {"zone": "a"},
        [{"operator": "Exists", "key": "gpu"}],
    )
    nfs = {"server": "files.example.org", "path": "/export", "readOnly": True}
    assert pod["spec"]["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2048Mi"}},
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "volume-1", "nfs": nfs},
    ]
    assert container["volumeMounts"] == [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "volume-0", "mountPath": "/data"},
        {"name": "volume-1", "mountPath": "/nfs", "readOnly": True},
    ]
    assert spec.notes == (
        "ports: the machine's port is not opened; reach the pod's with kubectl port-forward, or a Service",
    )


def test_a_tensorboard_is_a_sidecar_of_the_first_rank_that_reads_the_folder_of_the_job():
    spec = read(tensorboard="/logs", tasks=2, env={"PATH": "/opt/bin", "A": "b"})
    _, first, second = objects(spec, 2)
    assert "initContainers" not in second["spec"]
    [sidecar] = first["spec"]["initContainers"]
    mounts = [{"name": "tensorboard", "mountPath": "/logs"}]
    words = ["--logdir", "/logs", "--host", "127.0.0.1", "--port", "6006"]
    assert (sidecar.pop("command")[3:], main(first)["volumeMounts"]) == (["tensorboard", *words], mounts)
    assert sidecar == {
        "name": "tensorboard",
        "image": "python:3.12",
        "securityContext": main(first)["securityContext"],
        "restartPolicy": "Always",
        "env": [{"name": "PATH", "value": "/opt/bin"}],
        "volumeMounts": mounts,
    }
    assert first["spec"]["volumes"] == [{"name": "tensorboard", "emptyDir": {}}]
    assert spec.notes == ("tensorboard: look at it with kubectl port-forward, at port 6006 of the pod of rank 0",)


def test_a_tensorboard_reads_from_the_volume_that_the_job_writes_to():
    spec = read(tensorboard="/data/logs", volumes=[{"claim": "data", "path": "/data"}])
    [pod] = objects(spec, 1)
    assert [one["name"] for one in pod["spec"]["volumes"]] == ["volume-0"]
    assert pod["spec"]["initContainers"][0]["volumeMounts"] == [{"name": "volume-0", "mountPath": "/data"}]


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ({"path": "/data"}, "volumes[0] needs claim, the name of a PersistentVolumeClaim, or nfs, as in"),
        ({"claim": "a", "nfs": "b:/c", "path": "/data"}, "volumes[0] needs claim, the name of a Pers"),
        ({"claim": "../x", "path": "/data"}, "volumes[0].claim: '../x' is no name of a PersistentVolumeClaim"),
        ({"claim": "a", "path": "data"}, "volumes[0].path: 'data' must be an absolute path of the container"),
        ({"claim": "a", "path": "/a/../b"}, "volumes[0].path: '/a/../b' must be an absolute path of the container"),
        ({"claim": "a", "path": "/"}, "volumes[0].path: '/' cannot be a volume's place"),
        ({"nfs": "/data", "path": "/data"}, "volumes[0].nfs is no server and folder"),
        ({"hostPath": "/etc", "path": "/data"}, "volumes[0] has no field 'hostPath'"),
    ],
)
def test_a_volume_that_is_none_is_refused(volume, said):
    with pytest.raises(Rejected) as caught:
        read(volumes=[volume])
    assert str(caught.value).startswith(said)


def test_ranks_of_mpi_are_started_by_its_operator_there():
    with pytest.raises(Rejected, match="on Kubernetes the MPI operator starts the ranks; submit an MPIJob"):
        read(launcher="mpi", tasks=2, command=["mpirun", "./solve"])
