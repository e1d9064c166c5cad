"""Every example manifest on real kubelets, with its own program: the same tasks print the same as on one machine.

Only its images are others, because none can be pulled here, and files that it finds in its folder come in a volume.
Those of MPI are in test_mpi_on_kubernetes.py: two operators define MPIJobs, and a cluster has one of them.
"""

from __future__ import annotations

import pytest
import yaml

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

from .example_output import OUTPUT, expected
from .example_pods import PATIENCE_S, log_of, printed, submitted, succeeded, text_of
from .training import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

cluster = module_cluster(kubelets=2, gpus=4, operators=("jobset", "training"), images=("python", "torch"))
on_kubernetes = module_server()
PLACES = {
    "aichor/jax.yaml": {"master": "jax-worker-0-0.jax"},
    "aichor/xgboost.yaml": {"master": "xgboost-worker-0,xgboost-worker-1"},
    "kubernetes/trainjob.yaml": {"master": "hello-trainer-node-0-0.hello-trainer"},
    "kubernetes/pod.yaml": {"gpu": ""},
}


@pytest.fixture(scope="module", autouse=True)
def code(cluster: Cluster) -> None:
    """This source tree, in a claim that is there: examples and the in-job library."""
    make_volume(cluster, "code", str(EXAMPLES.parent), "ReadOnlyMany")
    cluster.api.apply(claim_of("code"))


def claim_of(volume: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def make_volume(cluster: Cluster, name: str, folder: str, mode: str) -> None:
    """A folder of both nodes, which are this machine."""
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": "",
            "hostPath": {"path": folder},
        },
    }
    cluster.api.apply(volume)


@pytest.mark.parametrize("example", [example for example in OUTPUT if not example.startswith("mpi/")])
def test_every_task_of_an_example_prints_in_its_pod_what_it_does_on_one_machine(
    on_kubernetes: Server, example: str
) -> None:
    tasks = expected(example, **{"master": "", **PLACES.get(example, {})})
    [job] = submitted(on_kubernetes, text_of(example))
    ended = succeeded(on_kubernetes, job)
    assert printed(on_kubernetes, job, len(tasks)) == list(tasks)
    assert (ended["tasks"]["total"], ended["tasks"]["succeeded"], ended["exit_code"]) == (len(tasks), len(tasks), 0)


def test_the_jobs_of_a_pipeline_run_one_after_the_other_in_pods(on_kubernetes: Server) -> None:
    jobs = submitted(on_kubernetes, text_of("native/pipeline.yaml"))
    for job in jobs:
        succeeded(on_kubernetes, job)
    assert [log_of(on_kubernetes, job) for job in jobs] == ["prepared\n", "trained\n"]


def test_an_exit_code_is_the_same_in_a_pod(on_kubernetes: Server) -> None:
    text = text_of("native/array.yaml").replace("echo task", "exit 7; echo task")
    [job] = submitted(on_kubernetes, text)
    assert on_kubernetes.until(job, "failed", patience_s=PATIENCE_S)["exit_code"] == 7


def test_a_job_of_our_own_has_its_claim_its_secret_its_memory_and_its_port(
    cluster: Cluster, on_kubernetes: Server
) -> None:
    """One role serves on its port what the other one asks it for."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hub"},
        "stringData": {"token": "hunter3"},
    }
    cluster.api.apply(secret)
    serve = (
        "ls /data/pyproject.toml; test -w /data || echo read-only; df -k /dev/shm | tail -n 1 | awk '{print $2}'; "
        'mkdir /tmp/www; cd /tmp/www; echo "$HF_TOKEN" > token; httpd -p 8080; '
        "until [ -e /tmp/www/cgi-bin/asked ]; do sleep 0.2; mkdir -p cgi-bin; done"
    )
    document = {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": "server"},
        "spec": {
            "command": ["sh", "-c", serve],
            "image": name_of("busybox"),
            "ports": ["8080:8080"],
            "shm": "96MiB",
            "secrets": [{"name": "HF_TOKEN", "secret": "hub", "key": "token"}],
            "volumes": [{"claim": "code", "folder": "/srv/code", "path": "/data", "readOnly": True}],
        },
    }
    [job] = submitted(on_kubernetes, yaml.safe_dump(document))
    on_kubernetes.until(job, "running", patience_s=PATIENCE_S)
    assert "hunter3" not in on_kubernetes.swell("show", str(job), "-o", "yaml").stdout
    [pod] = [
        one
        for one in cluster.api.get("/api/v1/namespaces/default/pods")["items"]
        if one["metadata"]["name"].startswith("server-")
    ]
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 8080, "protocol": "TCP"}]
    ask = {
        **document,
        "metadata": {"name": "client"},
        "spec": {
            "command": ["sh", "-c", f"until wget -qO- http://{pod['status']['podIP']}:8080/token; do sleep 0.2; done"],
            "image": name_of("busybox"),
        },
    }
    [asks] = submitted(on_kubernetes, yaml.safe_dump(ask))
    succeeded(on_kubernetes, asks)
    assert log_of(on_kubernetes, asks) == "hunter3\n"
    assert log_of(on_kubernetes, job).splitlines() == ["/data/pyproject.toml", "read-only", str(96 * 1024)]
    assert on_kubernetes.swell("cancel", str(job)).code == 0


def test_the_tasks_of_an_aichor_manifest_share_the_volume_that_is_made_for_them(
    cluster: Cluster, on_kubernetes: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each of two tasks waits for the file of the other; the claim is deleted when they have ended."""
    make_volume(cluster, "scratch", str(tmp_path_factory.mktemp("scratch")), "ReadWriteMany")
    document = yaml.safe_load((EXAMPLES / "aichor" / "scenario-1.yaml").read_text())
    document["name"] = "sharing"
    spec = document["spec"]
    document["builder"]["image"] = spec["image"] = name_of("busybox")
    spec["types"]["worker"]["count"] = 2
    spec["storage"] = {"sharedVolume": {"mountPoint": "/shared", "sizeGB": 1}}
    spec["command"] = (
        'echo "from $JOB_INDEX" > /shared/$JOB_INDEX; other=$((1 - JOB_INDEX)); '
        "until [ -s /shared/$other ]; do sleep 0.2; done; cat /shared/$other"
    )
    [job] = submitted(on_kubernetes, yaml.safe_dump(document))
    succeeded(on_kubernetes, job)
    cluster.api.until(
        "/api/v1/namespaces/default/persistentvolumeclaims", lambda claims: "sharing-shared" not in claims
    )
    assert [log_of(on_kubernetes, job, rank) for rank in range(2)] == ["from 1\n", "from 0\n"]


#: it says how it was called, and waits to be ended, as TensorBoard does
BOARD = '#!/bin/sh\necho "$@"\ntrap "exit 0" TERM\nwhile :; do sleep 1; done\n'


@pytest.mark.parametrize("has_program", [True, False])
def test_a_tensorboard_runs_beside_a_job_and_does_not_keep_it_from_ending(
    cluster: Cluster, on_kubernetes: Server, tmp_path_factory: pytest.TempPathFactory, has_program: bool
) -> None:
    """A stand-in for the program: none of the images has TensorBoard."""
    name = f"board-{has_program}".lower()
    folder = tmp_path_factory.mktemp(name)
    (folder / "tensorboard").write_text(BOARD)
    (folder / "tensorboard").chmod(0o755)
    folder.chmod(0o755)
    make_volume(cluster, name, str(folder), "ReadOnlyMany")
    cluster.api.apply(claim_of(name))
    spec = {
        "command": ["sh", "-c", "touch /logs/events; until [ -e /tmp/enough ]; do sleep 0.2; done"],
        "image": name_of("busybox"),
        "tensorboard": "/logs",
        "env": {"PATH": "/board:/usr/bin:/bin" if has_program else "/usr/bin:/bin"},
        "volumes": [{"claim": name, "path": "/board", "readOnly": True}],
    }
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    [job] = submitted(on_kubernetes, yaml.safe_dump(document))
    on_kubernetes.until(job, "running", patience_s=PATIENCE_S)
    pod = f"{name}-{job}-0"
    cluster.api.kubectl("wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=60s")
    said = cluster.api.kubectl("logs", pod, "-c", "tensorboard")
    said_so = "--logdir /logs --host 127.0.0.1 --port 6006\n"
    assert said == said_so if has_program else said.startswith("the program tensorboard is not in the image")
    assert cluster.api.kubectl("exec", pod, "-c", "tensorboard", "--", "ls", "/logs") == "events\n"
    cluster.api.kubectl("exec", pod, "-c", "main", "--", "touch", "/tmp/enough")
    succeeded(on_kubernetes, job)


def test_a_batch_script_is_refused_there_by_its_name(on_kubernetes: Server) -> None:
    done = on_kubernetes.swell("submit", str(EXAMPLES / "slurm" / "train.sh"))
    assert (done.code, "a batch script" in done.stderr) == (2, True), done
