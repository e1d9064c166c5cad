"""Two servers on one cluster: one acts in a namespace, one takes in what kubectl applies, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.jobs import ON_KWOK, PODS, pod
from cluster.starting import module_cluster
from onitscluster import server_on
from server import Server

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
SHORT = {"sim/run-for": "1s"}
Document = dict[str, Any]

cluster = module_cluster(kwok=1)


def apply(cluster: Cluster, name: str, *, namespace: str = "default", **options: Any) -> None:
    """A pod that is to be placed by us."""
    made = pod(name, "true", on=ON_KWOK, schedulerName="swell", **options)
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", made)


def until(is_true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def names(server: Server) -> dict[str, str]:
    """Of its jobs that kubectl brought, with their states."""
    return {one["name"]: one["state"] for one in server.jobs() if one["user"] in ("default", "one", "other")}


def kubectl(server: Server) -> str:
    """Who takes in what kubectl applies, as `swell doctor` says it."""
    lines = server.swell("doctor").stdout.splitlines()
    return next(line for line in lines if "kubectl apply" in line)


@contextmanager
def paused(server: Server) -> Iterator[None]:
    pid = server.state.lock_holder("server")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_server_that_was_paused_until_another_took_over_writes_nothing_and_goes_on_when_it_may(
    cluster: Cluster, tmp_path: Path
) -> None:
    with server_on(cluster, tmp_path / "first") as first, ThreadPoolExecutor() as threads:
        apply(cluster, "runs", gpus=8)
        first.until_named("runs", "running", patience_s=PATIENCE_S)
        apply(cluster, "waits", gpus=8)
        first.until_named("waits", "queued", patience_s=PATIENCE_S)

        second = server_on(cluster, tmp_path / "second")
        starting = threads.submit(second.__enter__)
        said = f"{first.store[:8]}' holds the Lease 'swell' in namespace 'default'; it does nothing until it gets it"
        until(lambda: second.state.server_log.exists() and said in second.state.server_log.read_text(), said)
        with paused(first):
            starting.result()
        try:
            given_up = carry_on_beside(cluster, first, second)
            there = sorted(one["metadata"]["name"] for one in cluster.api.get(PODS)["items"])
            known = names(first), names(second)
        finally:
            second.__exit__()

        assert given_up["reason"]["evidence"] == {"by": "another scheduler"}
        assert known == ({"runs": "succeeded", "waits": "cancelled"}, {"waits": "running"})
        assert there == ["runs", "waits"]  # nothing of the job that was submitted to the deposed one
        job = max(one["id"] for one in first.jobs())
        first.until(job, "running", patience_s=PATIENCE_S)  # it has its Lease back


def carry_on_beside(cluster: Cluster, deposed: Server, acting: Server) -> dict[str, Any]:
    """Until the deposed one has given up what the other has taken in; that job, as it knows it."""
    acting.until_named("waits", "queued", patience_s=PATIENCE_S)
    job = deposed.start("--image", "busybox", "--", "sleep", "1000")
    lost = f"this server lost the Lease 'swell' in namespace 'default' to '{os.uname().nodename}-{acting.store[:8]}'"
    until(lambda: lost in deposed.swell("why", str(job)).stdout, lost)

    cluster.api.patch(f"{PODS}/runs", {"metadata": {"annotations": SHORT}})
    acting.until_named("waits", "running", patience_s=PATIENCE_S)
    deposed.until_named("runs", "succeeded", patience_s=PATIENCE_S)  # it may look
    return deposed.until_named("waits", "cancelled", patience_s=PATIENCE_S)


def test_of_two_servers_in_two_namespaces_the_oldest_takes_in_and_the_other_follows_when_it_ends(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    in_other = server_on(cluster, tmp_path / "other", "--namespace", "other")
    in_one = server_on(cluster, tmp_path / "one", "--namespace", "one")
    with in_other as other, in_one as one:
        who = f"{other.store[:8]}', whose Lease is other/swell, takes in what kubectl applies"
        assert "this server takes in what kubectl applies in all namespaces" in kubectl(other)
        assert who in kubectl(one)
        apply(cluster, "in-one", namespace="one", annotations=SHORT)
        other.until_named("in-one", "succeeded", patience_s=PATIENCE_S)
        own = one.start("--image", "busybox", "--", "sleep", "1000")
        one.until(own, "running", patience_s=PATIENCE_S)

        apply(cluster, "late", namespace="other", gpus=9)
        other.until_named("late", "queued", patience_s=PATIENCE_S)
        assert names(one) == {}
        assert other.down().code == 0
        one.until_named("late", "queued", patience_s=PATIENCE_S)
        assert "this server takes in what kubectl applies in all namespaces" in kubectl(one)
