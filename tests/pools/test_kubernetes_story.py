"""A pool of pods on real kubelets, with the rights of deploy/pools/kubernetes/role.yaml and nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.processes import free_port
from cluster.starting import module_cluster
from docs.blocks import ROOT
from e2e.training import SDK, TRAIN
from pools.contract import order
from remote_worker import make_token
from server import SWELL, Server
from swell.client.connection import path
from swell.client.remote import fetch_fingerprint
from swell.machine.worker_options import WorkerOptions
from swell.pools.backend import BackendWorker, WorkerOrder, WorkerState
from swell.pools.kinds import find_kind
from swell.pools.kubernetes.access import access_of
from swell.pools.kubernetes.backend import KubernetesPoolBackend

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

NAMESPACE = "swell-workers"
PATIENCE_S = 180.0  # for what takes ten seconds; two kubelets share two cores with everything else
CPUS = "1.5"  # of a job and of a pod: more than the server's own machine offers, and one pod for each node
HOSTNAME = "/proc/sys/kernel/hostname"

cluster = module_cluster(kubelets=2, images=("swell",))


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    server: Server
    url: str
    share: Path  #: at the same path here and in the pods
    options: dict[str, str]  #: of the pool, as flags' fields

    def backend(self, pool: str) -> KubernetesPoolBackend:
        kind = find_kind("kubernetes")
        given = {
            name: Path(text) if name in ("auth_token_file", "cert_path") else text
            for name, text in self.options.items()
        }
        options = kind.read(given)
        return KubernetesPoolBackend(pool, options, access_of(options))

    def order(self, pool: str) -> WorkerOrder:
        told = WorkerOptions(self.url, Path("/"), Path("/"), fingerprint=fetch_fingerprint(self.url), idle_s=600.0)
        token = make_token(self.server, self.server.folder, pool).read_text().strip()
        return order(pool, cpus_milli=1500, memory_mib=512, worker=told, token=token)

    def node(self, name: str) -> dict[str, Any] | None:
        nodes = self.server.client().connection.json("GET", path("nodes"))["nodes"]
        return next((node for node in nodes if node["name"] == name), None)

    def until_node(self, name: str, backend: KubernetesPoolBackend) -> dict[str, Any]:
        """Once it has joined."""
        end = time.monotonic() + PATIENCE_S
        while (node := self.node(name)) is None:
            assert time.monotonic() < end, b"".join(backend.logs(f"{NAMESPACE}/{name}")).decode()
            time.sleep(0.2)
        return node

    def shown(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.server.swell("show", str(job), "-o", "json").json
        return found

    def start_training(self, epochs: int) -> int:
        """Its checkpoints are on the disk that all pods have."""
        script = self.share / "train.py"
        script.write_text(TRAIN)
        words = ("--epochs", str(epochs), "--checkpoints", str(self.share / "checkpoints"))
        words = (*words, "--env", f"PYTHONPATH={self.share / 'sdk'}", "--", "/usr/bin/python3", str(script))
        return self.server.start("--cpus", CPUS, *words, cwd=self.share)

    def epochs(self, job: int, attempt: int) -> list[str]:
        found = self.server.swell("logs", "--attempt", str(attempt), str(job)).stdout.splitlines()
        return [line for line in found if line.startswith(("from", "epoch"))]

    def live_pods(self) -> int:
        found = json.loads(self.cluster.api.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in found)

    def pool(self, name: str) -> dict[str, Any]:
        """As `swell pool ps` shows it; empty: it is not there."""
        found = self.server.swell("pool", "ps", "-o", "json").json
        return next((pool for pool in found if pool["name"] == name), {})

    def most_at_once(self) -> int:
        """Workers of the pool, by its events: on a slow machine one may be gone before pods are first looked at."""
        events = self.server.client().connection.json("GET", path("events"))["events"]
        steps = {"PoolWorkerLaunched": 1, "PoolWorkerEnded": -1}
        return max(accumulate(steps.get(event["kind"], 0) for event in events if event["detail"].get("pool") == "lab"))

    def watch(self, is_true: Any, log: Path) -> set[int]:
        """Until that is true; how many pods there were at once meanwhile."""
        end, seen = time.monotonic() + PATIENCE_S, set[int]()
        while not is_true():
            assert time.monotonic() < end, log.read_text() + self.server.swell("ps", "-a").stdout
            seen.add(self.live_pods())
            time.sleep(0.2)
        return seen


def kill_in_pod(pod: str) -> None:
    """As the kernel does when memory is short: the first process of the container, from outside."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if pod.encode() in words and b"--name" in words:
            os.kill(int(process.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process of {pod} runs")


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("pool")
    share = folder / "share"
    (share / "checkpoints").mkdir(parents=True)
    for shared in (share, share / "checkpoints"):
        shared.chmod(0o777)  # the image's user is not ours
    shutil.copytree(SDK, share / "sdk")
    api = cluster.api
    api.kubectl("apply", "-f", str(ROOT / "deploy/pools/kubernetes/role.yaml"))
    api.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(volume(share)))
    options = {
        "image": name_of("swell"),
        "namespace": NAMESPACE,
        "cluster_host": json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"],
        "auth_token_file": str(from_secret(cluster, "token", folder / "kubernetes.token")),
        "cert_path": str(from_secret(cluster, "ca.crt", folder / "kubernetes.crt")),
        "nfs_volume_name": "share",
        "nfs_path": str(share),
    }
    assert cluster.network is not None
    address = f"{cluster.network.gateway}:{free_port()}"
    with Server(folder, "--listen", address, gpus=0, cpus=1) as server:
        yield Stage(cluster, server, f"https://{address}", share, options)


def from_secret(cluster: Cluster, key: str, file: Path) -> Path:
    """As docs/pools/kubernetes.md has it; a controller fills the Secret."""
    words = ("get", "secret", "swell-pool-token", "-n", NAMESPACE, "-o", "json")
    end = time.monotonic() + PATIENCE_S
    while key not in (data := json.loads(cluster.api.kubectl(*words)).get("data", {})):
        assert time.monotonic() < end, "the Secret stays empty"
        time.sleep(0.2)
    file.write_bytes(base64.b64decode(data[key]))
    return file


def volume(share: Path) -> list[dict[str, Any]]:
    """What stands for a network disk: both nodes are on this machine."""
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claim = {**spec, "volumeName": "share", "resources": {"requests": size}}
    disk = {**spec, "capacity": size, "hostPath": {"path": str(share)}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "share"}, "spec": disk},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "share-claim", "namespace": NAMESPACE},
            "spec": claim,
        },
    ]


def until(backend: KubernetesPoolBackend, is_true: Any) -> tuple[BackendWorker, ...]:
    end = time.monotonic() + PATIENCE_S
    while not is_true(found := backend.observe()):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def test_a_pod_joins_runs_a_job_and_is_gone_when_it_is_deleted(stage: Stage) -> None:
    backend, wanted = stage.backend("alone"), stage.order("alone")
    backend_id = backend.launch(wanted)
    assert backend_id == f"{NAMESPACE}/{wanted.id}"
    until(backend, lambda found: found[0].state is WorkerState.RUNNING)
    node = stage.until_node(wanted.id, backend)
    done = stage.server.swell("run", "--cpus", CPUS, "--", "cat", HOSTNAME, cwd=stage.share, timeout_s=PATIENCE_S)
    assert (done.code, done.stdout.strip()) == (0, wanted.id), done
    assert node["backend"]["id"] == backend_id
    assert wanted.id in b"".join(backend.logs(backend_id)).decode()
    backend.cancel(backend_id)
    until(backend, lambda found: found == ())
    assert stage.node(wanted.id) is None


@contextlib.contextmanager
def running(stage: Stage, name: str, **more: str) -> Iterator[Path]:
    """`swell pool start kubernetes`, as its own process; its log."""
    token = stage.server.folder / f"{name}.token"
    token.write_text(stage.server.swell("token", "create", name, "--scope", "pool").stdout)
    told = {**stage.options, "server": stage.url, "token_file": str(token), "name": name, "max_workers": "2", **more}
    told |= {"fingerprint": fetch_fingerprint(stage.url), "cpus": CPUS, "memory": "512MiB", "idle_seconds": "3"}
    told |= {"launch_seconds": "1", "sleep_seconds": "1", "folder": str(stage.server.folder / name)}
    words = [word for name, text in told.items() for word in (f"--{name.replace('_', '-')}", text)]
    log = stage.server.folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [SWELL, "pool", "start", "kubernetes", "--foreground", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=stage.server.environment(),
        )
    # before its first report nobody knows that such jobs can ever run
    stage.watch(lambda: stage.pool(name), log)
    yield log
    process.terminate()
    process.wait(60)


@pytest.fixture
def pool(stage: Stage) -> Iterator[Path]:
    with running(stage, "lab") as log:
        yield log


def test_pods_that_no_node_takes_are_a_reason_and_not_a_flood(stage: Stage) -> None:
    with running(stage, "nowhere", node_selector="disk=no-such", max_workers="9") as log:
        jobs = [stage.server.start("--cpus", CPUS, "--", "true", cwd=stage.share) for _ in range(2)]
        seen = stage.watch(lambda: "node affinity" in stage.server.swell("why", str(jobs[0])).stdout, log)
        silences = [0.0]
        for _ in range(5):  # times that the pool has looked: with each the time since its last report begins anew

            def has_looked() -> bool:
                silences.append(stage.pool("nowhere")["silent_s"])
                return silences[-1] < silences[-2]

            seen |= stage.watch(has_looked, log)
        pool = stage.pool("nowhere")
        assert (max(seen), pool["launched"], pool["state"]) == (2, 2, "running")
        assert "Unschedulable" in stage.server.swell("why", str(jobs[1])).stdout
        for job in jobs:
            stage.server.swell("cancel", str(job))
        assert stage.server.swell("pool", "stop", "nowhere").code == 0
        stage.watch(lambda: not stage.live_pods(), log)  # what waits is taken back


def test_a_queue_drains_with_two_workers_goes_back_to_none_and_a_killed_one_costs_no_epoch(
    stage: Stage, pool: Path
) -> None:
    training = stage.start_training(100_000)
    short = [stage.server.start("--cpus", CPUS, "--", "cat", HOSTNAME, cwd=stage.share) for _ in range(5)]

    def epochs(attempt: int) -> list[str]:
        return stage.epochs(training, attempt)

    def holds(job: int, state: str) -> bool:
        return bool(stage.shown(job)["state"] == state)

    seen = stage.watch(lambda: len(epochs(1)) > 3, pool)
    kill_in_pod(stage.shown(training)["attempts"][-1]["tasks"][0]["node"])
    seen |= stage.watch(lambda: len(epochs(2)) > 3, pool)
    done = int(epochs(2)[0].removeprefix("from "))
    assert epochs(2)[1] == f"epoch {done}"
    assert (
        done >= len(epochs(1)) - 2
    )  # of what was logged, the last epoch may not have been saved; `from` is a line, too
    stage.server.swell("cancel", str(training))
    seen |= stage.watch(lambda: all(holds(job, "succeeded") for job in short), pool)
    seen |= stage.watch(lambda: not stage.live_pods(), pool)
    assert max(seen) <= 2
    assert stage.most_at_once() == 2
    assert stage.node("lab") is None


def test_a_pod_that_is_deleted_gives_its_job_back_and_the_next_one_resumes_it(stage: Stage) -> None:
    """As `kubectl drain` and a spot machine's end do it."""
    with running(stage, "drained") as log:
        training = stage.start_training(40)
        stage.watch(lambda: len(stage.epochs(training, 1)) > 5, log)
        pod = stage.shown(training)["attempts"][-1]["tasks"][0]["node"]
        stage.cluster.api.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")
        stage.watch(lambda: bool(stage.shown(training)["state"] == "succeeded"), log)
        document = stage.shown(training)
        assert (document["failures"], document["exit_code"], len(document["attempts"])) == (0, 0, 2), document
        first, second = (stage.epochs(training, number) for number in (1, 2))
        assert int(second[0].removeprefix("from ")) >= len(first) - 2 > 3
        assert second[-1] == "epoch 39"
        stage.watch(lambda: not stage.live_pods(), log)


def test_a_worker_that_was_killed_is_seen_to_have_ended(stage: Stage) -> None:
    """With proof: another copy of its tasks may start at once. The last test: only a pool tells the server of it."""
    backend, wanted = stage.backend("killed"), stage.order("killed")
    backend_id = backend.launch(wanted)
    stage.until_node(wanted.id, backend)
    kill_in_pod(wanted.id)
    (found,) = until(backend, lambda found: not found[0].is_live)
    assert (found.state, found.word, found.exit_code, found.is_proof) == (WorkerState.ENDED, "Failed", 137, True)
    assert wanted.id in b"".join(backend.logs(backend_id)).decode()
    backend.cancel(backend_id)
