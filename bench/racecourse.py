"""On what do schedulers race, and who takes away what a race leaves?

One real control plane with simulated nodes, for every contender the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bench.folders import subfolder
from bench.installation import swell
from bench.rows import Setting, progress
from swell.engines.kubernetes import ApiClient, find_access
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.engines.kubernetes.objects.amounts import GPU
from swell.machine.state_folder import StateFolder
from swell.model.placement_fields import POD_GROUP

GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NAMESPACE = "default"
Work = TypeVar("Work")
Outcome = TypeVar("Outcome")
GONE_S_MAX = 600.0
QUIET_S_MAX = 120.0
BUSY_MAX = 0.15  # of all cores: heartbeats of simulated nodes
NODE_GRACE_S = 600  # those come late while a race takes both cores, and no node is lost for that


def in_drawn_order(
    setting: Setting, label: str, contenders: Mapping[str, Callable[[Work], Outcome]], work: Work
) -> dict[str, Outcome]:
    """What each made of it."""
    order = sorted(contenders)
    setting.random().shuffle(order)
    results: dict[str, Outcome] = {}
    for name in order:
        results[name] = contenders[name](work)
        progress(f"{label}: {name} {results[name]}")
    return results


@contextmanager
def racecourse(setting: Setting, nodes: int, *, gpus: int = 8) -> Iterator[Path]:
    """The kubeconfig of a control plane with such nodes, the default scheduler and coscheduling."""
    from tests.cluster.cluster import Cluster

    folder = subfolder(setting.folder, "cluster")
    with Cluster(folder, kwok=nodes, kwok_gpus=gpus, operators=("coscheduling",), node_grace_s=NODE_GRACE_S) as cluster:
        yield cluster.kubeconfig


@contextmanager
def connected(kubeconfig: Path) -> Iterator[ApiClient]:
    port = ApiClient(find_access(kubeconfig), agent="bench")
    try:
        yield port
    finally:
        port.close()


@contextmanager
def serving(kubeconfig: Path, folder: Path) -> Iterator[int]:
    """A Swell of that control plane; the id of its process."""
    state = StateFolder(subfolder(folder, "state"))
    swell("up", "-d", "--engine", "kubernetes", "--kubeconfig", str(kubeconfig), state=state.root)
    try:
        pid = state.lock_holder("server")
        assert pid is not None
        yield pid
    finally:
        swell("down", state=state.root)


def pod(name: str, scheduler: str, group: str | None, *, gpus: int = 0) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "64Mi"}}
    if gpus:
        resources["limits"] = {GPU: str(gpus)}
    container = {"name": "main", "image": "none", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {POD_GROUP: group} if group else {}},
        "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
    }


def pod_group(name: str, size: int) -> dict[str, Any]:
    return {
        "apiVersion": GROUPS.api_version,
        "kind": GROUPS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": size},
    }


def clean(port: ApiClient) -> None:
    pods = [item["metadata"]["name"] for item in port.list(Selection(PODS, NAMESPACE)).items]
    port.gather([partial(port.delete, PODS, name, NAMESPACE, grace_s=0) for name in pods])
    groups = [item["metadata"]["name"] for item in port.list(Selection(GROUPS, NAMESPACE)).items]
    port.gather([partial(port.delete, GROUPS, name, NAMESPACE) for name in groups])
    until = time.monotonic() + GONE_S_MAX
    while port.list(Selection(PODS, NAMESPACE)).items:
        assert time.monotonic() < until, "pods of the last round do not go away"
        time.sleep(0.5)
    _await_quiet()


def _await_quiet() -> None:
    """What the last round left to do for the cluster's own parts is not the next contender's burden."""
    until = time.monotonic() + QUIET_S_MAX
    while time.monotonic() < until:
        busy, total = _ticks()
        time.sleep(1.0)
        now_busy, now_total = _ticks()
        if now_busy - busy < BUSY_MAX * (now_total - total):
            return
    progress("the machine does not become quiet; something else runs on it")


def _ticks() -> tuple[int, int]:
    """Of all cores since the start of the machine: busy, and all."""
    counted = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(counted) - counted[3] - counted[4], sum(counted)


def gather(port: ApiClient, calls: Sequence[Callable[[], Any]]) -> None:
    for result in port.gather(list(calls)):
        if isinstance(result, Exception):
            raise result
