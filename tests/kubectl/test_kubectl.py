"""What kubectl shows, on a real control plane with a real server of ours; kwok plays the kubelets."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.jobs import JOBSETS, ON_KWOK, PODS, PYTORCHJOBS, jobset, pod, pytorchjob
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SECRETS = "/api/v1/namespaces/default/secrets"
EVENTS = "/api/v1/namespaces/default/events"

cluster = module_cluster(kwok=2, operators=("training", "jobset"))
server = module_server()


def said(cluster: Cluster, name: str, *reasons: str) -> list[tuple[str, str, str]]:
    """Type, reason and message of our Events on an object, as soon as there are those reasons."""

    def of(items: dict[str, Any]) -> list[tuple[str, str, str]]:
        ours = [
            one
            for one in items.values()
            if one["involvedObject"]["name"] == name and one.get("reportingComponent") == "swell.dev/swell"
        ]
        return [
            (one["type"], one["reason"], one["message"])
            for one in sorted(ours, key=lambda one: (one["eventTime"], one["metadata"]["name"]))
        ]

    items = cluster.api.until(EVENTS, lambda items: [reason for _, reason, _ in of(items)] == list(reasons))
    return of(items)


def annotated(cluster: Cluster, path: str, name: str, **wanted: str) -> dict[str, str]:
    """Ours, of an object, as soon as they say so."""

    def of(items: dict[str, Any]) -> dict[str, str]:
        given = items[name]["metadata"].get("annotations") or {}
        names = ("job-id", "state", "reason", "width")
        return {short: given[f"swell.dev/{short}"] for short in names if f"swell.dev/{short}" in given}

    items = cluster.api.until(path, lambda items: wanted.items() <= of(items).items())
    return of(items)


def id_of(server: Server, name: str) -> int:
    return int(next(one["id"] for one in server.jobs() if one["name"] == name))


def test_a_waiting_pod_shows_condition_and_reason(cluster: Cluster, server: Server) -> None:
    cluster.api.apply(pod("wide", "true", on=ON_KWOK, gpus=9, schedulerName="swell"))
    [event] = said(cluster, "wide", "Waiting")
    job = id_of(server, "wide")
    text = f"job {job}: CannotRunHere: it wants 0.01 CPUs, 64 MiB, 9 GPUs, but the closest node has "
    assert event[0] == "Warning"
    assert event[2].startswith(text)
    annotated(cluster, PODS, "wide", state="queued", reason="CannotRunHere", **{"job-id": str(job)})
    seen = cluster.api.get(f"{PODS}/wide")
    [condition] = [one for one in seen["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == event[2]
    shown = cluster.api.kubectl("describe", "pod", "wide")
    assert "PodScheduled   False" in shown
    assert text in shown
    cluster.api.delete(f"{PODS}/wide")


def test_a_pod_that_is_not_for_us_shows_what_is_wrong_with_it(cluster: Cluster, server: Server) -> None:
    document = pod("odd", "true", on=ON_KWOK, schedulerName="swell", annotations={"swell.dev/priority": "high"})
    cluster.api.apply(document)
    text = "metadata.annotations: swell.dev/priority must be a whole number from -1000000 to 1000000, but is 'high'"
    assert said(cluster, "odd", "Refused") == [("Warning", "Refused", text)]
    cluster.api.delete(f"{PODS}/odd")


def test_a_group_that_is_not_whole_shows_what_is_missing(cluster: Cluster, server: Server) -> None:
    document = pod("first", "true", on=ON_KWOK, schedulerName="swell")
    document["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "crew", "fluence.group-size": "3"}
    cluster.api.apply(document)
    text = "1 of 3 pods of the group 'crew' are there; they start together when it is whole"
    assert said(cluster, "first", "Waiting") == [("Normal", "Waiting", text)]
    cluster.api.delete(f"{PODS}/first")


def test_the_pods_of_an_object_and_the_object_show_why_they_wait(cluster: Cluster, server: Server) -> None:
    cluster.api.apply(jobset("set", "true", count=3, on=ON_KWOK, gpus=8, schedulerName="swell"))
    [(_, _, message)] = said(cluster, "set", "Waiting")
    assert message.startswith("CannotRunHere: it wants 3 tasks of 0.01 CPUs, 64 MiB, 8 GPUs, all at once, but only 2")

    def is_told(one: dict[str, Any]) -> bool:
        conditions = one["status"].get("conditions") or ()
        return any(condition.get("reason") == "Unschedulable" for condition in conditions)

    cluster.api.until(PODS, lambda pods: sum(map(is_told, pods.values())) == 3)
    cluster.api.delete(f"{JOBSETS}/set?propagationPolicy=Background")
    cluster.api.until(PODS, lambda pods: not pods)


def test_events_and_annotations_follow_a_training_job(cluster: Cluster, server: Server, tmp_path: Path) -> None:
    document = pytorchjob("train", "true", "true", workers=1, on=ON_KWOK, gpus=1)
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
        resources = replicas["template"]["spec"]["containers"][0]["resources"]
        resources["requests"]["nvidia.com/gpu"], resources["limits"]["nvidia.com/gpu"] = "1", "4"
    document["metadata"]["annotations"] = {"swell.dev/resize": "immediate"}
    manifest = tmp_path / "train.yaml"
    manifest.write_text(json.dumps(document))
    done = server.swell("submit", "-f", str(manifest))
    assert done.code == 0, done
    job = id_of(server, "train")
    assert annotated(cluster, PYTORCHJOBS, "train", state="running", width="4") == {
        "job-id": str(job),
        "state": "running",
        "width": "4",
    }
    assert server.swell("scale", "--now", "train", "2").code == 0
    annotated(cluster, PYTORCHJOBS, "train", state="running", width="2")
    assert server.swell("cancel", "train").code == 0
    events = said(cluster, "train", "Started", "AskedToYield", "Resized", "Started", "Ended")
    assert [kind for kind, _, _ in events] == ["Normal"] * 5
    started, asked, resized, again, ended = (message for _, _, message in events)
    assert started.startswith("attempt 1 at width 4 on kwok-")
    assert asked.startswith("scaled to 2 on request")
    assert resized.startswith("attempt 1 at width 4 has ended: scaled to 2 on request")
    assert again.startswith("attempt 2 at width 2 on kwok-")
    assert ended.startswith("cancelled after ")
    assert annotated(cluster, PYTORCHJOBS, "train", state="cancelled") == {
        "job-id": str(job),
        "state": "cancelled",
        "reason": "Cancelled",
    }
    shown = cluster.api.kubectl("describe", "pytorchjob", "train")
    assert "Cancelled: cancelled by" in shown
    [secret] = [one for one in cluster.api.get(SECRETS)["items"] if one["metadata"]["name"].startswith("swell-")]
    token = base64.b64decode(secret["data"]["SWELL_TOKEN"]).decode()
    everything = json.dumps([cluster.api.get(path) for path in (EVENTS, PYTORCHJOBS, PODS)])
    assert token not in everything


def test_a_priority_class_counts_however_a_job_came(cluster: Cluster, server: Server, tmp_path: Path) -> None:
    """Kubernetes goes to two billion, and gives pods their number; beyond ours all are alike."""
    for name, value in (("urgent", 1000), ("vital", 1_000_000_000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        cluster.api.create(CLASSES, {**made, "metadata": {"name": name}})
    manifest = tmp_path / "submitted.yaml"
    manifest.write_text(json.dumps(pod("submitted", "true", on=ON_KWOK, gpus=9, priorityClassName="urgent")))
    done = server.swell("submit", "-f", str(manifest))
    assert done.code == 0, done
    options = {"on": ON_KWOK, "gpus": 9, "schedulerName": "swell", "priorityClassName": "vital"}
    cluster.api.apply(pod("applied", "true", **options), jobset("applied-set", "true", count=1, **options))
    said(cluster, "applied", "Waiting")
    said(cluster, "applied-set", "Waiting")
    priorities = {one["name"]: one["priority"] for one in server.jobs()}
    assert {name: priorities[name] for name in ("submitted", "applied", "applied-set")} == {
        "submitted": 1000,
        "applied": 1_000_000,
        "applied-set": 1_000_000,
    }
    cluster.api.delete(f"{PODS}/applied")
    cluster.api.delete(f"{JOBSETS}/applied-set?propagationPolicy=Background")
