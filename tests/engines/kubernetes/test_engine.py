"""The engine against a real control plane: its own controllers make the pods, kwok plays the kubelets."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.api import Refused, condition
from cluster.cluster import Cluster
from cluster.jobs import JOBS, JOBSETS, ON_KWOK, PODS, PYTORCHJOBS, job, jobset, pod, pytorchjob
from cluster.starting import module_cluster
from swell.model.job import AttemptId

from .driving import Drive

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SECRETS = "/api/v1/namespaces/default/secrets"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

cluster = module_cluster(kwok=4, operators=("jobset", "training"))


@pytest.fixture
def drive(cluster: Cluster, tmp_path: Path) -> Iterator[Drive]:
    with Drive(cluster.kubeconfig, tmp_path, store=uuid.uuid4().hex) as drive:
        yield drive
    clear(cluster)


@pytest.fixture
def hasty(cluster: Cluster, tmp_path: Path) -> Iterator[Drive]:
    """Its clock is ten times as fast, so its patience is over in seconds."""
    fast = {"monotonic": lambda: 10 * time.monotonic()}
    with Drive(cluster.kubeconfig, tmp_path, store=uuid.uuid4().hex, **fast) as drive:
        yield drive
    clear(cluster)


def clear(cluster: Cluster) -> None:
    for path in (PYTORCHJOBS, JOBSETS, JOBS, PODS):
        for one in cluster.api.get(path)["items"]:
            with contextlib.suppress(Refused):  # its owner may be faster; the wait below tells
                cluster.api.delete(f"{path}/{one['metadata']['name']}?propagationPolicy=Background")
    cluster.api.until(PODS, lambda pods: not pods)


def placed(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Pod → its node and its GPUs."""
    return {
        one["metadata"]["name"]: (
            one["spec"].get("nodeName", ""),
            one["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", "0"),
        )
        for one in cluster.api.get(PODS)["items"]
    }


def training(**changes: Any) -> dict[str, Any]:
    document = pytorchjob("train", "true", "true", workers=2, on=ON_KWOK, gpus=1, **changes)
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
    return document


FIRST, SECOND = AttemptId(1, 1), AttemptId(1, 2)
SHORT = {"sim/run-for": "0s"}
BOTH = {0: ("kwok-1", 2, 0), 1: ("kwok-1", 2, 1)}
TWO = {0: ("kwok-2", 2, 0), 1: ("kwok-2", 2, 0)}


def test_a_pytorchjob_starts_where_it_was_placed_and_comes_back_at_another_size(cluster: Cluster, drive: Drive) -> None:
    drive.start(FIRST, training(), {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}, roles=2)
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    assert placed(cluster) == {
        "train-master-0": ("kwok-0", "1"),
        "train-worker-0": ("kwok-0", "1"),
        "train-worker-1": ("kwok-1", "1"),
    }

    drive.engine.stop(FIRST, 5.0, 2)
    drive.until(lambda: drive.is_finished(FIRST))
    assert drive.ends(FIRST) == dict.fromkeys((0, 1, 2), (None, "stopped"))
    assert placed(cluster) == {}
    drive.engine.forget(FIRST)

    drive.start(SECOND, training(), {0: ("kwok-2", 4, 0), 1: ("kwok-3", 4, 1)}, roles=2)
    drive.until(lambda: drive.running(SECOND) == [0, 1])
    assert placed(cluster) == {"train-master-0": ("kwok-2", "4"), "train-worker-0": ("kwok-3", "4")}

    cluster.api.patch(f"{PODS}/train-master-0", {"metadata": {"annotations": SHORT}})
    drive.until(lambda: drive.is_finished(SECOND))
    assert drive.ends(SECOND) == {0: (0, ""), 1: (0, "")}


def test_what_an_attempt_is_told_is_in_a_secret_that_goes_with_its_object(cluster: Cluster, drive: Drive) -> None:
    places = {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}
    drive.start(FIRST, training(), places, roles=2, own={"SWELL_URL": "http://here"})
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    secrets = cluster.api.get(f"{SECRETS}?labelSelector=swell.dev/store={drive.store}")["items"]
    [secret] = secrets
    assert {"SWELL_URL", "SWELL_ATTEMPT", "NUM_GPUS", "JOB_RESTARTED"} <= secret["data"].keys()
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PyTorchJob", "train")

    drive.engine.stop(FIRST, 5.0, 2)
    drive.until(lambda: drive.is_finished(FIRST))
    drive.engine.forget(FIRST)
    drive.engine.erase(FIRST)
    cluster.api.until(SECRETS, lambda secrets: secret["metadata"]["name"] not in secrets)


def test_a_pod_that_is_deleted_is_made_again_and_bound_to_its_place(cluster: Cluster, drive: Drive) -> None:
    drive.start(FIRST, training(), {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}, roles=2)
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    before = cluster.api.get(f"{PODS}/train-worker-1")["metadata"]["uid"]

    cluster.api.delete(f"{PODS}/train-worker-1")

    def is_back(pods: dict[str, Any]) -> bool:
        found = pods.get("train-worker-1")
        return found is not None and found["metadata"]["uid"] != before and condition(found, "Ready") == "True"

    cluster.api.until(PODS, is_back)
    assert placed(cluster)["train-worker-1"] == ("kwok-1", "1")
    drive.look()
    assert drive.ends(FIRST) == {}


def test_an_object_that_is_deleted_is_the_end_of_its_job(cluster: Cluster, drive: Drive) -> None:
    drive.start(FIRST, training(), {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}, roles=2)
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    cluster.api.delete(f"{PYTORCHJOBS}/train")
    drive.until(lambda: drive.is_finished(FIRST))
    assert {task.problem for task in drive.tasks.values()} == {"PyTorchJob default/train"}
    assert drive.ends(FIRST) == dict.fromkeys((0, 1, 2), (None, "deleted"))


def test_an_object_that_somebody_suspends_is_told_and_its_next_attempt_resumes_it(
    cluster: Cluster, drive: Drive
) -> None:
    places = {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}
    drive.start(FIRST, training(), places, roles=2)
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    cluster.api.patch(f"{PYTORCHJOBS}/train", {"spec": {"runPolicy": {"suspend": True}}})
    drive.until(lambda: {run.suspended for run in drive.runs.values()} == {"PyTorchJob default/train"})
    assert drive.ends(FIRST) == {}
    drive.engine.stop(FIRST, 5.0, 2)
    drive.until(lambda: drive.is_finished(FIRST))
    assert drive.ends(FIRST) == dict.fromkeys((0, 1, 2), (None, "stopped"))
    drive.engine.forget(FIRST)

    drive.start(SECOND, training(), places, roles=2)
    drive.until(lambda: drive.running(SECOND) == [0, 1, 2])
    assert {run.suspended for (attempt, _), run in drive.runs.items() if attempt == SECOND} <= {""}


def test_what_was_made_for_a_job_goes_when_it_is_cancelled_and_not_what_came_by_kubectl(
    cluster: Cluster, tmp_path: Path
) -> None:
    places = {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}
    theirs = cluster.api.create(PYTORCHJOBS, {**training(), "metadata": {"name": "theirs"}})
    other = AttemptId(2, 1)
    with Drive(cluster.kubeconfig, tmp_path, store=uuid.uuid4().hex, cancelled_kept_s=0.0) as drive:
        drive.start(FIRST, training(), places, roles=2)
        drive.start(other, theirs, {0: ("kwok-2", 1, 0), 1: ("kwok-2", 1, 1), 2: ("kwok-3", 1, 1)}, roles=2)
        drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
        for attempt in (FIRST, other):
            drive.engine.stop(attempt, 5.0, 2)
            drive.until(lambda one=attempt: drive.is_finished(one))  # type: ignore[misc]
            drive.engine.forget(attempt)
            drive.engine.discard(attempt.job)
        left = cluster.api.until(PYTORCHJOBS, lambda found: "train" not in found)
    assert left.keys() == {"theirs"}
    cluster.api.delete(f"{PYTORCHJOBS}/theirs")


def test_the_indices_of_a_job_run_in_the_lanes_it_has(cluster: Cluster, drive: Drive) -> None:
    document = job("array", "true", count=6, on=ON_KWOK, gpus=1, annotations={"sim/run-for": "1s"})
    drive.start(FIRST, document, {0: ("kwok-0", 1, 0), 1: ("kwok-1", 1, 0)}, array="0-5")
    drive.until(lambda: drive.is_finished(FIRST))
    assert drive.ends(FIRST) == dict.fromkeys(range(6), (0, ""))
    assert {node for node, _ in placed(cluster).values()} == {"kwok-0", "kwok-1"}


def test_the_ranks_of_a_jobset_are_bound_together_and_its_next_attempt_is_another_object(
    cluster: Cluster, drive: Drive
) -> None:
    document = jobset("set", "true", count=3, on=ON_KWOK, gpus=1)
    drive.start(FIRST, document, {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 0), 2: ("kwok-1", 1, 0)})
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    before = cluster.api.get(f"{JOBSETS}/set")["metadata"]["uid"]
    drive.engine.stop(FIRST, 5.0, 2)
    drive.until(lambda: drive.is_finished(FIRST))
    drive.engine.forget(FIRST)

    drive.start(SECOND, document, {0: ("kwok-0", 2, 0), 1: ("kwok-2", 2, 0), 2: ("kwok-3", 2, 0)})
    drive.until(lambda: drive.running(SECOND) == [0, 1, 2])
    assert cluster.api.get(f"{JOBSETS}/set")["metadata"]["uid"] != before
    assert sorted(placed(cluster).values()) == [("kwok-0", "2"), ("kwok-2", "2"), ("kwok-3", "2")]


def test_a_gang_of_a_job_has_another_size_in_the_same_object_until_a_rank_has_succeeded(
    cluster: Cluster, drive: Drive
) -> None:
    document = job("ring", "true", count=2, on=ON_KWOK, gpus=1)
    places = {rank: (f"kwok-{rank}", 1, 0) for rank in range(4)}
    made = {}
    for number, tasks in enumerate((2, 4, 3), start=1):
        attempt = AttemptId(1, number)
        drive.start(attempt, document, {rank: places[rank] for rank in range(tasks)})
        drive.until(lambda: drive.running(attempt) == list(range(tasks)))  # noqa: B023
        live = cluster.api.get(f"{JOBS}/ring")
        made[tasks] = live["metadata"]["uid"]
        assert (live["spec"]["completions"], live["spec"]["parallelism"]) == (tasks, tasks)
        assert sorted(placed(cluster).values()) == [(f"kwok-{rank}", "1") for rank in range(tasks)]
        if tasks == 4:
            end_one(cluster)
        drive.engine.stop(attempt, 5.0, number + 1)
        drive.until(lambda: drive.is_finished(attempt))  # noqa: B023
        drive.engine.forget(attempt)
    assert made[2] == made[4] != made[3]


def end_one(cluster: Cluster) -> None:
    """Rank 0 succeeds, and its Job has counted it."""
    [name] = [name for name in placed(cluster) if name.startswith("ring-0-")]
    cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": SHORT}})
    cluster.api.until(JOBS, lambda jobs: jobs["ring"]["status"].get("succeeded") == 1)


def test_pods_of_ours_that_are_deleted_are_lost_and_come_back_with_the_next_attempt(
    cluster: Cluster, drive: Drive
) -> None:
    document = pod("solo", "true", on=ON_KWOK)
    drive.start(FIRST, document, {0: ("kwok-0", 0, 0)})
    drive.until(lambda: drive.running(FIRST) == [0])
    cluster.api.delete(f"{PODS}/solo?gracePeriodSeconds=0")  # kwok deletes by name, and may be late
    drive.until(lambda: drive.is_finished(FIRST))
    assert drive.ends(FIRST) == {0: (None, "pod-lost")}
    drive.engine.forget(FIRST)

    drive.start(SECOND, document, {0: ("kwok-1", 0, 0)})
    drive.until(lambda: drive.running(SECOND) == [0])
    assert placed(cluster) == {"solo": ("kwok-1", "0")}


def test_an_object_of_that_name_that_is_not_ours_is_left_alone_and_waited_for(cluster: Cluster, drive: Drive) -> None:
    """Ours was made under another name, which nobody had asked for, and what was in it went by the first."""
    cluster.api.create(PODS, pod("solo", "true", on=ON_KWOK))
    drive.start(FIRST, pod("solo", "true", on=ON_KWOK), {0: ("kwok-0", 0, 0)})
    said = 'pods "solo" already exists in namespace "default"; '
    drive.until(lambda: any(run.trouble.startswith(said) for run in drive.runs.values()))
    assert placed(cluster).keys() == {"solo"}


@contextlib.contextmanager
def small_quota(cluster: Cluster) -> Iterator[None]:
    """One GPU for all."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    cluster.api.apply(quota)
    try:
        cluster.api.until("/api/v1/namespaces/default/resourcequotas", lambda found: "status" in found["small"])
        yield
    finally:
        cluster.api.delete("/api/v1/namespaces/default/resourcequotas/small")


def test_a_quota_that_is_too_small_is_said_in_the_words_of_the_api_server(cluster: Cluster, drive: Drive) -> None:
    with small_quota(cluster):
        drive.start(FIRST, pod("greedy", "true", on=ON_KWOK, gpus=2), {0: ("kwok-0", 2, 0)})
        drive.until(lambda: drive.is_finished(FIRST) or bool(drive.ends(FIRST)))
        [task] = drive.tasks.values()
        assert (task.cause, "exceeded quota: small" in task.problem) == ("not-placed", True)


def test_objects_whose_pods_a_quota_refuses_say_so_and_are_given_up(cluster: Cluster, hasty: Drive) -> None:
    """Their controllers hear the refusal, not we; an array waited for ever, and nobody said for what."""
    array, torch, jobs = (AttemptId(number, 1) for number in (1, 2, 3))
    with small_quota(cluster):
        hasty.start(array, job("array", "true", count=3, on=ON_KWOK, gpus=2), {0: ("kwok-0", 2, 0)}, array="0-2")
        hasty.start(torch, pytorchjob("torch", "true", "true", workers=1, on=ON_KWOK, gpus=2), BOTH, roles=2)
        hasty.start(jobs, jobset("jobs", "true", count=2, on=ON_KWOK, gpus=2), TWO)
        told = {array: "Job default/array", torch: "PyTorchJob default/torch", jobs: "JobSet default/jobs"}
        troubles: dict[AttemptId, str] = {}

        def are_given_up() -> bool:
            troubles.update({run.attempt: run.trouble for run in hasty.runs.values() if run.trouble})
            return {task.attempt for task in hasty.tasks.values()} == told.keys()

        hasty.until(are_given_up)
        for attempt, what in told.items():
            [task] = [one for one in hasty.tasks.values() if one.attempt == attempt]
            if attempt == array:
                assert troubles[attempt].startswith(f"{what} cannot make its pods: "), what
                assert "exceeded quota: small, requested: requests.nvidia.com/gpu=2, used: " in troubles[attempt], what
                assert task.problem.startswith("0 of 1 pods were there after 60 s; Job"), what
            else:  # of a gang none is made
                whole = "its 2 pods start together or not at all, and together they exceeded quota: small, requested: "
                assert troubles[attempt].startswith(f"{whole}requests.nvidia.com/gpu=4, used: "), what
                assert task.problem.startswith(whole), what
            assert task.cause == "not-placed"
            hasty.engine.stop(attempt, 5.0, 2)
            hasty.until(lambda one=attempt: hasty.is_finished(one))  # type: ignore[misc]


def test_what_others_hold_is_not_offered(cluster: Cluster, drive: Drive) -> None:
    cluster.api.create(PODS, pod("foreign", "true", on={"kubernetes.io/hostname": "kwok-3"}, gpus=3))
    cluster.api.until(PODS, lambda pods: condition(pods["foreign"], "Ready") == "True")
    drive.until(lambda: sum(device.outsiders_mib > 0 for device in drive.nodes["kwok-3"].devices) == 3)
    offered = drive.nodes["kwok-3"]
    assert (offered.cpus_milli, offered.memory_mib) == (64_000 - 10, 512 * 1024 - 64)
    assert [device.outsiders_mib for device in offered.devices] == [0] * 5 + [1] * 3


def test_a_pod_that_is_made_again_is_not_bound_to_room_that_another_has_taken(cluster: Cluster, drive: Drive) -> None:
    """It was: a node that had refused the last one got the next one at once."""
    drive.start(FIRST, training(), {0: ("kwok-0", 1, 0), 1: ("kwok-0", 1, 1), 2: ("kwok-1", 1, 1)}, roles=2)
    drive.until(lambda: drive.running(FIRST) == [0, 1, 2])
    cluster.api.create(PODS, pod("rival", "true", on=ON_KWOK, gpus=8, nodeName="kwok-1"))
    drive.until(lambda: not any(device.outsiders_mib == 0 for device in drive.nodes["kwok-1"].devices[1:]))

    cluster.api.delete(f"{PODS}/train-worker-1")
    full = "node kwok-1 has no room left for pod train-worker-1: others have taken it"
    drive.until(lambda: full in {run.trouble for run in drive.runs.values()})
    assert placed(cluster)["train-worker-1"] == ("", "1")

    cluster.api.delete(f"{PODS}/rival")
    cluster.api.until(PODS, lambda pods: condition(pods["train-worker-1"], "Ready") == "True")
    drive.until(lambda: {run.trouble for run in drive.runs.values()} == {""})


def test_a_pod_that_somebody_binds_to_another_node_just_before_us_counts_there_and_is_placed_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It was accepted without a word where it was, and its room was counted where it was not."""
    made = cluster.api.create(PODS, pod("mine", "true", on=ON_KWOK, gpus=1, schedulerName="swell"))
    uid = made["metadata"]["uid"]
    reference = {
        "apiVersion": "v1",
        "kind": "Pods",
        "metadata": {"name": "mine", "namespace": "default", "uid": uid},
        "pods": [{"name": "mine", "uid": uid, "document": made}],
    }
    rivals = iter([lambda: bind(cluster, "mine", "kwok-3")])

    def before_write() -> None:
        next(rivals, lambda: None)()

    with Drive(cluster.kubeconfig, tmp_path, store=uuid.uuid4().hex, before_write=before_write) as drive:
        drive.until(lambda: any(one.uid == uid for one in drive.engine.cluster.waiting_pods()))
        drive.start(FIRST, reference, {0: ("kwok-0", 1, 0)})
        drive.until(lambda: drive.ends(FIRST) == {0: (None, "not-placed")})
        assert drive.tasks[FIRST, 0].problem == (
            "somebody else has bound pod mine to node kwok-3; it was to run on kwok-0"
        )
        taken = [sum(device.outsiders_mib > 0 for device in drive.nodes[f"kwok-{number}"].devices) for number in (0, 3)]
        assert taken == [0, 1]

        drive.engine.stop(FIRST, 5.0, 2)
        drive.until(lambda: drive.is_finished(FIRST))
        drive.engine.forget(FIRST)
        drive.start(SECOND, reference, {0: ("kwok-1", 1, 0)})
        drive.until(lambda: drive.running(SECOND) == [0])
        assert placed(cluster) == {"mine": ("kwok-1", "1")}
    cluster.api.delete(f"{PODS}/mine")
    cluster.api.until(PODS, lambda pods: not pods)


def test_what_a_plain_pod_does_in_a_later_attempt_counts_also_for_a_server_that_did_not_bind_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In which attempt it was bound is written on it in the same moment: what ended in an earlier one is done again."""
    names = ("two-0", "two-1")
    made = [cluster.api.create(PODS, pod(one, "true", on=ON_KWOK, gpus=1, schedulerName="swell")) for one in names]
    uids = [one["metadata"]["uid"] for one in made]
    reference = {
        "apiVersion": "v1",
        "kind": "Pods",
        "metadata": {"name": "two", "namespace": "default", "uid": uids[0]},
        "pods": [{"name": one["metadata"]["name"], "uid": one["metadata"]["uid"], "document": one} for one in made],
    }
    places = {0: ("kwok-0", 1, 0), 1: ("kwok-1", 1, 0)}
    store = uuid.uuid4().hex
    with Drive(cluster.kubeconfig, tmp_path, store=store) as before:
        before.until(lambda: {one.uid for one in before.engine.cluster.waiting_pods()} >= set(uids))
        before.start(SECOND, reference, places)
        before.until(lambda: before.running(SECOND) == [0, 1])
    cluster.api.patch(f"{PODS}/two-0", {"metadata": {"annotations": SHORT}})
    pods = cluster.api.until(PODS, lambda pods: pods["two-0"]["status"]["phase"] == "Succeeded")
    assert [pods[one]["metadata"]["annotations"]["swell.dev/attempt"] for one in names] == [str(SECOND)] * 2

    with Drive(cluster.kubeconfig, tmp_path, store=store) as after:
        after.start(SECOND, reference, places)
        after.until(lambda: (after.running(SECOND), after.ends(SECOND)) == ([1], {0: (0, "")}))
        cluster.api.patch(f"{PODS}/two-1", {"metadata": {"annotations": SHORT}})
        after.until(lambda: after.is_finished(SECOND))
    assert [cluster.api.get(f"{PODS}/{one}")["metadata"]["uid"] for one in names] == uids
    clear(cluster)


def bind(cluster: Cluster, name: str, node: str) -> None:
    """As any scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    cluster.api.create(f"{PODS}/{name}/binding", body)


def test_a_volume_that_waits_for_its_consumer_is_told_the_node(cluster: Cluster, drive: Drive) -> None:
    slow = {"provisioner": "nobody.example", "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.api.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"}, **slow})
    claim = {
        "storageClassName": "slow",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    cluster.api.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim}
    )
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    drive.start(FIRST, pod("solo", "true", on=ON_KWOK, volumes=[volume]), {0: ("kwok-2", 0, 0)})
    drive.until(lambda: drive.running(FIRST) == [0])
    chosen = cluster.api.get(f"{CLAIMS}/data")["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
    assert chosen == "kwok-2"
