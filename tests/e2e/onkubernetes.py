"""A server whose tasks are pods on real kubelets, and what a person does with it: `swell`, and kubectl.

Both nodes are on this machine, so a folder of it is a volume that outlives pods: `stage.share` is their /checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.binaries import program
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.processes import free_port
from cluster.starting import started
from e2e.training import SDK
from server import Result, Server

PATIENCE_S = 120.0  # for what takes ten seconds; two kubelets share two cores with everything else
EPOCHS = 100_000  # more than anybody waits for: a test says when it is enough
SCRIPT = Path(__file__).with_name("pod_training.py").read_text()
GPUS = 4  # of each node
GPU_MIB = 16384  # of each GPU, as a node's label says
OPERATORS = ("jobset", "training")
Document = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    server: Server
    share: Path  #: /checkpoints of pods that mount it

    def submit(self, *documents: Document) -> list[int]:
        done = self.server.swell("submit", "-f", "-", stdin=yaml.safe_dump_all(documents))
        assert done.code == 0, done
        return [int(word) for word in done.stdout.split()]

    def said(self, *words: str) -> Result:
        """What a command that goes well leaves."""
        done = self.server.swell(*words)
        assert done.code == 0, done
        return done

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.api.kubectl(*words, stdin=stdin)

    def say_enough(self, name: str) -> None:
        (self.share / f"{name}.enough").touch()

    def until(self, job: int, *states: str) -> Document:
        return self.server.until(job, *states, patience_s=PATIENCE_S)

    def ledger(self, job: int) -> list[tuple[int, int, int]]:
        """Epoch, width and GPUs seen, of every epoch in the order they were done."""
        lines = (self.share / str(job) / "ledger").read_text().splitlines()
        return [tuple(map(int, line.split())) for line in lines]  # type: ignore[misc]


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    share = folder / "share"
    share.mkdir()
    (folder / "server").mkdir()
    with started(folder / "cluster", kubelets=2, gpus=GPUS, operators=OPERATORS, images=("python",)) as cluster:
        assert cluster.network is not None
        address = f"{cluster.network.gateway}:{free_port()}"
        options = ["--engine", "kubernetes", "--kubeconfig", str(cluster.kubeconfig)]
        options += ["--listen", address, "--advertise", f"http://{address}"]
        options += ["--reservation-image", name_of("busybox")]
        cluster.api.kubectl("label", "nodes", "--all", f"nvidia.com/gpu.memory={GPU_MIB}")
        found = {"PATH": f"{program('kubectl').parent}:/usr/bin:/bin"}
        server = Server(folder / "server", *options, gpus=None, env=found)
        server.state.prepare()
        server.state.write_json(server.state.config, {"node_rights": True})  # `stage.share` is a folder of the nodes
        with server:
            yield Stage(cluster, server, share)


def elastic(name: str, stage: Stage, *, crash_at: int = 0, **annotations: str) -> Document:
    """A PyTorchJob that trains on 1 to 4 GPUs; `crash_at`: the epoch in which it fails, once."""
    volumes = {"sdk": str(SDK), "checkpoints": str(stage.share)}
    container = {
        "name": "pytorch",
        "image": name_of("python"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SCRIPT],
        "env": [{"name": "PYTHONPATH", "value": "/sdk"}, {"name": "CRASH_AT", "value": str(crash_at)}],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi", "nvidia.com/gpu": 1},
            "limits": {"memory": "64Mi", "nvidia.com/gpu": GPUS},
        },
        "volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in volumes],
    }
    pod = {
        "terminationGracePeriodSeconds": 20,
        "containers": [container],
        "volumes": [{"name": volume, "hostPath": {"path": path}} for volume, path in volumes.items()],
    }
    master = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": {"swell.dev/epochs": str(EPOCHS), **annotations}},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }
