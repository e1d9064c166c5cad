"""Do reservations come and go as they should on a real control plane? Its nodes are simulated, so the test plays the
part of the pods: it says which GPU each has."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api import Object
from cluster.cluster import Cluster
from cluster.jobs import ON_KWOK, PODS, pod
from cluster.starting import started
from engines.kubernetes.driving import Drive
from swell.engines.kubernetes.client.resources import PODS as POD_RESOURCE
from swell.engines.kubernetes.client.resources import Resource
from swell.engines.kubernetes.sharing.reservation_pod import make_pod
from swell.engines.kubernetes.watch.observed_objects import DEVICE, RESERVATION
from swell.errors import Conflict
from swell.model.job import AttemptId

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE = "kwok-0"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("simulated"), kwok=1) as cluster:
        cluster.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"nvidia.com/gpu.memory": "16384"}}})
        yield cluster


@pytest.fixture
def emptied(simulated: Cluster) -> Iterator[Cluster]:
    yield simulated
    simulated.api.delete(PODS)
    simulated.api.until(PODS, lambda pods: not pods)


def pods(cluster: Cluster) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in cluster.api.get(PODS)["items"]}


def reservations(cluster: Cluster) -> dict[str, Object]:
    return {name: one for name, one in pods(cluster).items() if RESERVATION in (one["metadata"].get("labels") or {})}


def tell(cluster: Cluster) -> None:
    """Reservations that run say which GPU they have."""
    for name, item in reservations(cluster).items():
        if item["status"]["phase"] == "Running" and DEVICE not in item["metadata"]["annotations"]:
            uuid = f"GPU-{item['metadata']['uid']}"
            cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {DEVICE: uuid}}})


def share(drive: Drive, number: int, **options: Any) -> AttemptId:
    attempt = AttemptId(number, 1)
    manifest = pod(f"share-{number}", "true", on=ON_KWOK, gpus=1)
    drive.start(attempt, manifest, {0: (NODE, 1, 0)}, share_mib=6144, **options)
    return attempt


def test_a_namespace_that_allows_only_restricted_pods_allows_reservations(simulated: Cluster, tmp_path: Path) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    simulated.api.create("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}})
    made = make_pod((NODE, "gpu-0"), store="s", namespace="strict", image="busybox", runtime_class=None)
    with Drive(simulated.kubeconfig, tmp_path) as drive:
        accepted = drive.port.create(POD_RESOURCE, made, "strict", dry_run=True)
    assert accepted["metadata"]["name"] == made["metadata"]["name"]


def test_pods_have_the_runtime_class_where_the_cluster_has_it(emptied: Cluster, tmp_path: Path) -> None:
    emptied.api.create(CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    with Drive(emptied.kubeconfig, tmp_path) as drive:
        one = share(drive, 1)
        drive.until(lambda: tell(emptied) or drive.running(one) == [0])
        classes = {name: item["spec"].get("runtimeClassName") for name, item in pods(emptied).items()}
    emptied.api.delete(f"{CLASSES}/nvidia")
    assert classes == dict.fromkeys((*reservations(emptied), "share-1"), "nvidia")


def test_a_reservation_that_says_nothing_is_why_the_job_waits(emptied: Cluster, tmp_path: Path) -> None:
    """On simulated nodes there is no log to read."""
    with Drive(emptied.kubeconfig, tmp_path) as drive:
        one = share(drive, 2)
        drive.until(lambda: (one, NODE) in drive.runs and "get pods/log" in drive.runs[one, NODE].trouble)
        assert drive.runs[one, NODE].trouble.startswith(f"GPU 0 of node {NODE} is being reserved: get pods/log ")
        assert "nodeName" not in pods(emptied)["share-2"]["spec"]


def test_a_gpu_that_took_long_to_be_reserved_is_used_when_it_is_ready(emptied: Cluster, tmp_path: Path) -> None:
    """Longer than other pods may take, and not as long as a reservation may: its job was given up at that moment."""
    late = [0.0]
    with Drive(emptied.kubeconfig, tmp_path, monotonic=lambda: time.monotonic() + late[0]) as drive:
        one = share(drive, 3)
        drive.until(lambda: (one, NODE) in drive.runs and "is being reserved" in drive.runs[one, NODE].trouble)
        late[0] = 90.0
        drive.until(lambda: tell(emptied) or bool(drive.running(one) or drive.ends(one)))
        assert (drive.running(one), drive.ends(one)) == ([0], {})


def test_a_reservation_whose_deletion_was_refused_is_deleted_all_the_same(
    emptied: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for deleted, and its GPU for one that is being given back, for ever (faults 91)."""
    refusals = iter([Conflict("injected by the test")])
    with Drive(emptied.kubeconfig, tmp_path) as drive:
        delete = drive.port.delete

        def refuse(resource: Resource, name: str, *rest: Any, **options: Any) -> None:
            for refusal in refusals if name in reservations(emptied) else ():
                raise refusal
            delete(resource, name, *rest, **options)

        monkeypatch.setattr(drive.port, "delete", refuse)
        one = share(drive, 4)
        drive.until(lambda: tell(emptied) or drive.running(one) == [0])
        drive.engine.stop(one, 1.0, 2)
        drive.until(lambda: drive.is_finished(one))
        drive.engine.forget(one)
        drive.until(lambda: not pods(emptied))
    assert next(refusals, None) is None, "its deletion was never refused"


@pytest.mark.parametrize("seed", range(2))
def test_whenever_swell_ends_the_next_one_goes_on_and_nothing_is_left(
    emptied: Cluster, tmp_path: Path, seed: int
) -> None:
    """Ended after so many looks, at every step between a wish and a pod that runs; then taken up by another."""
    lots = random.Random(seed)
    print(f"seed {seed}")
    attempts = [AttemptId(10, 1), AttemptId(11, 1)]
    for live in range(5):
        with Drive(emptied.kubeconfig, tmp_path / str(live)) as drive:
            looks = iter(range(lots.randrange(1, 8)))
            for attempt in attempts:
                share(drive, attempt.job)
            drive.until(lambda looks=looks: tell(emptied) or next(looks, None) is None)  # type: ignore[misc]
    with Drive(emptied.kubeconfig, tmp_path / "last") as drive:
        for attempt in attempts:
            share(drive, attempt.job)
        drive.until(lambda: tell(emptied) or all(drive.running(attempt) == [0] for attempt in attempts))
        [reservation] = reservations(emptied).values()
        uuid = reservation["metadata"]["annotations"][DEVICE]
        there = pods(emptied)
        assert [there[f"share-{one.job}"]["metadata"]["annotations"][DEVICE] for one in attempts] == [uuid, uuid]
        for attempt in attempts:
            drive.engine.stop(attempt, 1.0, 2)
        drive.until(lambda: all(drive.is_finished(attempt) for attempt in attempts))
        for attempt in attempts:
            drive.engine.forget(attempt)
        drive.until(lambda: not pods(emptied))
