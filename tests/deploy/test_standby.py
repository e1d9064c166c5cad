"""Two pods of one installation on a real kubelet: one serves, the other takes over within seconds, nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.starting import module_cluster

from .chart import JOBS_NAMESPACE, NAMESPACE
from .installed import SERVERS, Installed, is_ready
from .test_installed import ASK, HOST

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TAKES_OVER_S = 10.0  # what docs/kubernetes.md promises
PATIENCE_S = 60.0
SERVES = "swell.dev/serves"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
JOB_PODS = f"/api/v1/namespaces/{JOBS_NAMESPACE}/pods"
ENDPOINTS = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}

cluster = module_cluster(kubelets=1, images=("swell", "busybox"))


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Installed]:
    made = Installed(cluster, {"replicas": 2, "resources": SMALL}, uid=10001)
    try:
        made.install()
        yield made
    finally:
        made.remove()
        shutil.rmtree(made.volume)


def pods(installed: Installed) -> dict[str, Object]:
    """Both, when both are ready and one of them serves."""

    def are_settled(items: dict[str, Object]) -> bool:
        return len(items) == 2 and all(map(is_ready, items.values())) and len(serving(items)) == 1

    return installed.api.until(SERVERS, are_settled, patience_s=PATIENCE_S)


def serving(items: dict[str, Object]) -> list[str]:
    return [name for name, one in items.items() if one["metadata"]["labels"].get(SERVES) == "true"]


def named(installed: Installed) -> tuple[str, str]:
    """The pod that serves, and the one that stands by."""
    found = pods(installed)
    [leader] = serving(found)
    return leader, next(name for name in found if name != leader)


def inside(installed: Installed, pod: str, *words: str) -> str:
    return installed.api.kubectl("exec", "--namespace", NAMESPACE, pod, "--", *words)


def ask(installed: Installed, pod: str, path: str) -> tuple[int, Object]:
    status, _, answer = inside(installed, pod, "python", "-c", ASK, "8080", "GET", path, HOST, "", "").partition(" ")
    return int(status), json.loads(answer)


def kill_server_of(pod: str) -> None:
    """From the machine: inside its container it is the first process, which hears no SIGKILL."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"swell.server" in words and f"POD_NAME={pod}".encode() in variables:
            os.kill(int(path.parent.name), signal.SIGKILL)
            return
    raise AssertionError(f"no server runs in pod {pod}")


def addresses(items: dict[str, Object]) -> set[str]:
    """Behind the Service, where the cluster sends requests."""
    slices = [one for one in items.values() if one["metadata"]["labels"]["kubernetes.io/service-name"] == "swell"]
    return {address for one in slices for end in one.get("endpoints") or () for address in end["addresses"]}


def test_the_second_stands_by_is_ready_and_gets_no_requests(installed: Installed) -> None:
    leader, standby = named(installed)
    found = pods(installed)
    assert ask(installed, leader, "/readyz") == (200, {"status": "ok"})
    assert ask(installed, standby, "/readyz") == (200, {"status": "standby"})
    answers = [ask(installed, server, "/api/v1/jobs") for server in (leader, standby)]
    assert answers[0] == answers[1], "a standby passes reads on, and nobody is told more there than by the leader"
    assert answers[0][0] == 401
    installed.api.until(ENDPOINTS, lambda items: addresses(items) == {found[leader]["status"]["podIP"]})
    assert json.loads(inside(installed, standby, "swell", "ps", "-o", "json")) == []  # through the folder's socket


def test_when_the_server_is_killed_the_standby_serves_within_seconds_and_jobs_go_on(installed: Installed) -> None:
    leader, standby = named(installed)
    words = ("--image", name_of("busybox"), "--cpus", "0.01", "--", "sleep", "1000")
    job = inside(installed, leader, "swell", "run", "-d", *words).strip()
    running = installed.api.until(
        JOB_PODS, lambda items: [one["status"].get("phase") for one in items.values()] == ["Running"]
    )

    kill_server_of(leader)
    began = time.monotonic()
    while ask(installed, standby, "/readyz") != (200, {"status": "ok"}):
        assert time.monotonic() < began + TAKES_OVER_S
    took_s = time.monotonic() - began
    print(f"took over after {took_s:.1f} s")

    shown = json.loads(inside(installed, standby, "swell", "show", "-o", "json", job))
    assert (shown["state"], len(shown["attempts"])) == ("running", 1)
    assert named(installed) == (standby, leader)  # whose container was started again, and stands by
    installed.api.until(
        LEASE, lambda items: items["swell"]["spec"]["holderIdentity"].startswith(standby), patience_s=PATIENCE_S
    )
    assert set(installed.api.get(JOB_PODS)["items"][0]["metadata"]["uid"].split()) == {
        one["metadata"]["uid"] for one in running.values()
    }
    inside(installed, leader, "swell", "cancel", job)


def test_an_upgrade_replaces_both_and_a_drain_never_takes_both_at_once(installed: Installed) -> None:
    before = set(pods(installed))
    job = installed.inside("swell", "run", "-d", "--image", "none", "--gpus", "99", "--", "true").strip()
    installed.upgrade_all(podAnnotations={"note": "the second"})
    leader, standby = named(installed)
    assert not {leader, standby} & before
    assert job in [str(one["id"]) for one in json.loads(inside(installed, standby, "swell", "ps", "-o", "json"))]

    [budget] = installed.api.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets")["items"]
    installed.api.until(
        f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
        lambda items: items[budget["metadata"]["name"]]["status"]["disruptionsAllowed"] == 1,
        patience_s=PATIENCE_S,
    )
