"""Do jobs share a GPU of a real node? Its GPUs are declared by a device plugin, which gives each away once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api import Object, condition
from cluster.cluster import Cluster
from cluster.images import name_of
from cluster.jobs import PODS, job, pod
from cluster.starting import started
from engines.kubernetes.driving import Drive
from swell.engines.kubernetes.watch.observed_objects import DEVICE, NUMBER, RESERVATION
from swell.model.cluster import Device
from swell.model.job import AttemptId

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE = "real-1"
SHOW = "trap 'exit 0' TERM; echo $NVIDIA_VISIBLE_DEVICES; sleep 1000 & wait"
TOTAL_MIB = 16384


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node with two GPUs."""
    with started(tmp_path_factory.mktemp("real"), kubelets=1, gpus=2) as cluster:
        labels = {"metadata": {"labels": {"nvidia.com/gpu.memory": str(TOTAL_MIB)}}}
        cluster.api.patch(f"/api/v1/nodes/{NODE}", labels)
        yield cluster


@pytest.fixture
def drive(real: Cluster, tmp_path: Path) -> Iterator[Drive]:
    with Drive(real.kubeconfig, tmp_path, reservation_image=name_of("busybox")) as drive:
        yield drive
    real.api.delete(PODS)
    real.api.until(PODS, lambda pods: not pods)


def share(drive: Drive, number: int, *, gpu: int = 0, tasks: int = 1, **options: Any) -> AttemptId:
    attempt = AttemptId(number, 1)
    places = dict.fromkeys(range(tasks), (NODE, 1, 0))
    drive.start(attempt, pod(f"share-{number}", SHOW), places, share_mib=6144, first_gpu=gpu, **options)
    return attempt


def whole(drive: Drive, number: int, *, gpu: int) -> AttemptId:
    attempt = AttemptId(number, 1)
    drive.start(attempt, pod(f"whole-{number}", SHOW, gpus=1), {0: (NODE, 1, 0)}, first_gpu=gpu)
    return attempt


def end(drive: Drive, attempt: AttemptId) -> None:
    drive.engine.stop(attempt, 1.0, 2)
    drive.until(lambda: drive.is_finished(attempt))
    drive.engine.forget(attempt)


def sees(cluster: Cluster, name: str) -> str:
    return cluster.api.kubectl("logs", name).strip()


def reservations(cluster: Cluster) -> dict[str, Object]:
    return {name: one for name, one in pods(cluster).items() if RESERVATION in (one["metadata"].get("labels") or {})}


def pods(cluster: Cluster) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in cluster.api.get(PODS)["items"]}


def devices(*, taken: tuple[int, ...] = ()) -> tuple[Device, ...]:
    sizes = [TOTAL_MIB if number in taken else 0 for number in range(2)]
    return tuple(Device(f"gpu-{n}", TOTAL_MIB, "GPU", outsiders_mib=mib) for n, mib in enumerate(sizes))


def test_two_jobs_share_a_gpu_and_a_third_has_the_other_one_whole(real: Cluster, drive: Drive) -> None:
    one, two, three = share(drive, 1), share(drive, 2), whole(drive, 3, gpu=1)
    drive.until(lambda: all(drive.running(attempt) == [0] for attempt in (one, two, three)))
    [reservation] = reservations(real)
    seen = [sees(real, name) for name in ("share-1", "share-2", "whole-3")]
    said = sees(real, reservation)
    assert seen[0] == seen[1]
    assert said == f"swell-gpu visible={seen[0]} driver="
    assert {seen[0], seen[2]} == {f"GPU-{NODE}-0", f"GPU-{NODE}-1"}
    notes = pods(real)["share-2"]["metadata"]["annotations"]
    assert (notes[DEVICE], notes[NUMBER]) == (seen[0], "gpu-0")
    assert real.api.kubectl("exec", "share-2", "--", "sh", "-c", "echo $RESERVED_MEM").strip() == "6144"
    assert drive.nodes[NODE].devices == devices()

    for attempt in (one, two, three):
        end(drive, attempt)
    drive.until(lambda: drive.nodes[NODE].devices == devices() and not reservations(real))


def test_a_foreign_scheduler_that_is_faster_has_the_room_and_the_attempt_is_given_up(
    real: Cluster, tmp_path: Path
) -> None:
    """The API server accepts both; the kubelet refuses whoever comes second, and what the first has counts as taken."""
    rival = pod("rival", SHOW, gpus=2, schedulerName="somebody")

    def take() -> None:
        real.api.create(PODS, {**rival, "spec": {**rival["spec"], "nodeName": NODE}})
        real.api.until(PODS, lambda pods: condition(pods["rival"], "Ready") == "True")

    rivals = iter([lambda: None, lambda: None, take])  # the pod, its Secret, and then the bind

    def before_write() -> None:
        next(rivals, lambda: None)()

    with Drive(real.kubeconfig, tmp_path, before_write=before_write) as drive:
        late = whole(drive, 30, gpu=0)
        drive.until(lambda: drive.ends(late) == {0: (None, "not-placed")})
        assert drive.tasks[late, 0].problem.startswith("UnexpectedAdmissionError: ")
        end(drive, late)
        drive.until(lambda: drive.nodes[NODE].devices == devices(taken=(0, 1)))

        real.api.delete(f"{PODS}/rival")
        drive.until(lambda: drive.nodes[NODE].devices == devices())
        again = AttemptId(30, 2)
        drive.start(again, pod("whole-30", SHOW, gpus=1), {0: (NODE, 1, 0)})
        drive.until(lambda: drive.running(again) == [0])
        end(drive, again)
    real.api.delete(PODS)
    real.api.until(PODS, lambda pods: not pods)


def test_a_whole_gpu_is_given_only_after_its_reservation_is_gone(real: Cluster, drive: Drive) -> None:
    """Sent there earlier, the pod would be refused by its kubelet, and a job that says Never would have failed."""
    other, one = whole(drive, 10, gpu=1), share(drive, 11)
    drive.until(lambda: drive.running(one) == [0] and drive.running(other) == [0])
    shared = sees(real, "share-11")
    end(drive, one)
    following = whole(drive, 12, gpu=0)
    drive.until(lambda: drive.running(following) == [0])
    assert sees(real, "whole-12") == shared
    assert drive.ends(following) == {}
    assert reservations(real) == {}


def remade(drive: Drive, cluster: Cluster, before: str) -> None:
    """Until another reservation has told which GPU it has."""

    def is_another() -> bool:
        metadata = [one["metadata"] for one in reservations(cluster).values()]
        return any(one["uid"] != before and DEVICE in one["annotations"] for one in metadata)

    drive.until(is_another)


def test_a_reservation_that_is_lost_is_made_again_while_its_sharers_run_on(real: Cluster, drive: Drive) -> None:
    """The other GPU is taken, so it gets the one that it had."""
    one, other = share(drive, 20), whole(drive, 29, gpu=1)
    drive.until(lambda: drive.running(one) == [0] and drive.running(other) == [0])
    [(name, before)] = reservations(real).items()
    started_at = drive.tasks[one, 0].started_at
    real.api.delete(f"{PODS}/{name}")
    remade(drive, real, before["metadata"]["uid"])
    two = share(drive, 21)
    drive.until(lambda: drive.running(two) == [0])
    assert sees(real, "share-20") == sees(real, "share-21")
    assert (drive.running(one), drive.tasks[one, 0].started_at) == ([0], started_at)


def test_nobody_is_sent_to_a_gpu_that_was_handed_out_behind_our_back(
    real: Cluster, drive: Drive, tmp_path: Path
) -> None:
    """While we were away the reservation was deleted and somebody else got its GPU; the next one gets the other."""
    one = share(drive, 22)
    drive.until(lambda: drive.running(one) == [0])
    [(name, before)] = reservations(real).items()
    drive.engine.close()
    take(real, "first")
    real.api.delete(f"{PODS}/{name}")
    real.api.until(PODS, lambda pods: name not in pods)
    take(real, "second")
    real.api.delete(f"{PODS}/first")
    real.api.until(PODS, lambda pods: "first" not in pods)
    with Drive(real.kubeconfig, tmp_path / "again", reservation_image=name_of("busybox")) as again:
        same, two = share(again, 22, has_begun=True), share(again, 23)
        remade(again, real, before["metadata"]["uid"])
        again.until(lambda: "since its reservation was made anew" in again.runs[two, NODE].trouble)
        assert (again.running(same), again.running(two)) == ([0], [])
        end(again, same)
        again.until(lambda: again.running(two) == [0])
        assert sees(real, "share-23") != sees(real, "second")


def test_a_gpu_that_others_were_faster_to_take_is_asked_for_again(real: Cluster, drive: Drive) -> None:
    """Between a plan and the reservation somebody else got it: its kubelet would refuse, and is not asked."""
    take(real, "first")
    take(real, "second")
    one = share(drive, 25)
    refused = re.compile(
        r"GPU 0 of node real-1 is being reserved: "
        r"node real-1 has no room left for pod default/swell-gpu-real-1-\w+-0: others have taken it"
    )
    drive.until(lambda: (one, NODE) in drive.runs and bool(refused.fullmatch(drive.runs[one, NODE].trouble)))
    assert (drive.running(one), drive.ends(one)) == ([], {})
    real.api.delete(f"{PODS}/first")
    drive.until(lambda: drive.running(one) == [0])
    assert sees(real, "share-25") != sees(real, "second")


def take(cluster: Cluster, name: str) -> None:
    """A GPU for somebody else."""
    cluster.api.create(PODS, pod(name, SHOW, gpus=1))
    cluster.api.until(PODS, lambda pods: pods[name]["status"]["phase"] == "Running")


def test_what_was_reserved_is_found_again_after_a_restart_and_given_back(
    real: Cluster, drive: Drive, tmp_path: Path
) -> None:
    """Nobody says what is there: it is read from the cluster. What nobody shares any more goes."""
    one, two = share(drive, 30, gpu=0), share(drive, 31, gpu=1)
    drive.until(lambda: drive.running(one) == [0] and drive.running(two) == [0])
    before = {name: item["metadata"]["uid"] for name, item in reservations(real).items()}
    drive.engine.close()
    real.api.delete(f"{PODS}/share-31")
    with Drive(real.kubeconfig, tmp_path / "again", reservation_image=name_of("busybox")) as again:
        same = share(again, 30, has_begun=True)
        third = share(again, 32)
        again.until(lambda: again.running(same) == [0] and again.running(third) == [0])
        assert sees(real, "share-30") == sees(real, "share-32")
        again.until(lambda: len(reservations(real)) == 1)
        [(name, left)] = reservations(real).items()
        assert left["metadata"]["uid"] == before[name]


def test_an_array_shares_two_gpus_and_never_puts_more_on_one_than_it_has_lanes(real: Cluster, drive: Drive) -> None:
    """Two lanes, one on each GPU; six indices of different length pass through them."""
    attempt = AttemptId(40, 1)
    script = "echo $NVIDIA_VISIBLE_DEVICES; sleep $((JOB_COMPLETION_INDEX % 2 + 1))"
    places = {0: (NODE, 1, 0), 1: (NODE, 1, 0)}
    drive.start(attempt, job("cases", script, count=6), places, share_mib=12288, array="0-5", spread=True)
    most: dict[str, int] = {}

    def watch() -> bool:
        on: dict[str, int] = {}
        for item in pods(real).values():
            labels, notes = item["metadata"].get("labels") or {}, item["metadata"].get("annotations") or {}
            if labels.get("job-name") == "cases" and "nodeName" in item["spec"]:
                is_alive = item["status"]["phase"] in ("Pending", "Running")
                on[notes[DEVICE]] = on.get(notes[DEVICE], 0) + is_alive
        most.update({uuid: max(count, most.get(uuid, 0)) for uuid, count in on.items()})
        return drive.is_finished(attempt)

    drive.until(watch)
    assert most == {f"GPU-{NODE}-0": 1, f"GPU-{NODE}-1": 1}
    assert drive.ends(attempt) == dict.fromkeys(range(6), (0, ""))
    drive.engine.forget(attempt)
    drive.until(lambda: not reservations(real))
