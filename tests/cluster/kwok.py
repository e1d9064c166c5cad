"""How are simulated nodes made, and how long do their pods run? kwok plays the kubelet, annotations are its script.

A pod runs until `sim/run-for` ("5s") is over and succeeds, or until `sim/fail-after` is over and fails with code 1.
Without either it runs for ever, unless its command is `sleep 5s`; a running pod may be given one later. One that is
deleted is gone at once, or after the time that `sim/linger` says. One with `sim/refuse` is refused by its node, as a
kubelet refuses what it has no GPU left for. What `sim/last-words` says is the termination message of its containers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .api import Api, Object, condition
from .binaries import module_file, program
from .controlplane import LOOPBACK
from .processes import Process, Word, free_port

LEASE_S = 40  # must stay below the controller manager's grace for nodes: with 200 every node is lost after 50 s
MARK = {"kwok.x-k8s.io/node": "fake"}
SUCCEED, FAIL, LINGER, REFUSE = "sim/run-for", "sim/fail-after", "sim/linger", "sim/refuse"
LAST_WORDS = "sim/last-words"
NO_GPU = "phase: Failed\nreason: OutOfnvidia.com/gpu\nmessage: Node didn't have enough resource\n"
SAYING = f"""\
reason: Completed
{{{{ with $root.metadata.annotations }}}}{{{{ with index . "{LAST_WORDS}" }}}}
      message: {{{{ . | Quote }}}}
{{{{ end }}}}{{{{ end }}}}
"""
COMMAND = ".spec.containers.[0].command"
KEPT_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-delete",
)


class Kwok:
    """The one process that plays every simulated node."""

    def __init__(self, folder: Path, api: Api) -> None:
        self._api = api
        config = folder / "kwok.yaml"
        config.write_text(yaml.safe_dump_all(render_stages()))
        self._port = free_port()
        words: list[Word] = [
            program("kwok"),
            f"--kubeconfig={api.kubeconfig}",
            f"--config={config}",
            "--manage-all-nodes=false",  # real nodes in the same cluster write their own status
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--node-lease-duration-seconds={LEASE_S}",
            f"--server-address={LOOPBACK}:{self._port}",
        ]
        self.process = Process("kwok", words, folder)

    def start(self) -> None:
        """Leases of a kwok that was killed are removed: a new one would wait for them to run out."""
        self._api.delete("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        self.process.start()

    def stop(self) -> None:
        self.process.stop()


def add_nodes(api: Api, nodes: Sequence[Object]) -> None:
    """Create nodes, and wait until each is ready."""
    api.create_all("/api/v1/nodes", nodes)
    names = {node["metadata"]["name"] for node in nodes}
    api.until(
        "/api/v1/nodes",
        lambda items: all(name in items and condition(items[name], "Ready") == "True" for name in names),
        patience_s=60 + len(nodes) / 20,
    )


def render_nodes(
    count: int,
    *,
    prefix: str = "kwok",
    cpus: int = 64,
    memory_gib: int = 512,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
) -> list[Object]:
    """Nodes that are all alike, named prefix-0 and so on."""
    size = {"cpu": str(cpus), "memory": f"{memory_gib}Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    if not gpus:
        del size["nvidia.com/gpu"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{prefix}-{index}",
                "annotations": MARK,
                "labels": {"kubernetes.io/hostname": f"{prefix}-{index}", "type": "kwok", **(labels or {})},
            },
            "spec": {"taints": list(taints)},
            "status": {"capacity": size, "allocatable": size},
        }
        for index in range(count)
    ]


def render_stages() -> list[Any]:
    """kwok's own stages, but a pod ends when its annotation says so instead of at once."""
    folder = module_file("kwok", "kustomize/stage")
    stages = [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in KEPT_STAGES]
    complete = yaml.safe_load((folder / "pod/fast/pod-complete.yaml").read_text())
    ready = next(stage for stage in stages if stage["metadata"]["name"] == "pod-ready")
    refusal = copy.deepcopy(ready)
    refusal["metadata"]["name"] = "pod-refuse"
    refusal["spec"]["selector"]["matchExpressions"].append(_exists(REFUSE))
    refusal["spec"]["next"]["statusTemplate"] = NO_GPU
    ready["spec"]["selector"]["matchExpressions"].append({**_exists(REFUSE), "operator": "DoesNotExist"})
    deletion = next(stage for stage in stages if stage["metadata"]["name"] == "pod-delete")
    deletion["spec"]["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": _annotation(LINGER)}}
    sleeps = {"key": f"{COMMAND}.[0]", "operator": "In", "values": ["sleep"]}
    return [
        *stages,
        refusal,
        _ending(complete, "pod-complete", _exists(SUCCEED), _annotation(SUCCEED)),
        _ending(complete, "pod-fail", _exists(FAIL), _annotation(FAIL), failed=True),
        _ending(complete, "pod-sleep", sleeps, f"{COMMAND}.[1]"),
    ]


def _annotation(name: str) -> str:
    return f'.metadata.annotations["{name}"]'


def _exists(annotation: str) -> Object:
    return {"key": _annotation(annotation), "operator": "Exists"}


def _ending(stage: Any, name: str, which: Object, duration: str, *, failed: bool = False) -> Any:
    made = copy.deepcopy(stage)
    made["metadata"]["name"] = name
    spec = made["spec"]
    owned = spec["selector"]["matchExpressions"]
    owned[:] = [entry for entry in owned if "ownerReferences" not in entry["key"]]
    owned.append(which)
    spec["delay"] = {"durationMilliseconds": 1000, "durationFrom": {"expressionFrom": duration}}
    spec["next"]["statusTemplate"] = spec["next"]["statusTemplate"].replace("reason: Completed", SAYING)
    if failed:
        template = spec["next"]["statusTemplate"]
        template = template.replace("exitCode: 0", "exitCode: 1").replace("reason: Completed", "reason: Error")
        spec["next"]["statusTemplate"] = template.replace("phase: Succeeded", "phase: Failed")
    return made
