"""What came by kubectl with `schedulerName: swell`: one job each, planned with all others, and why it waits is said.

And on the same cluster, what `swell submit` has made: how its objects change when it is scaled, held and released.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api import Refused, condition
from cluster.cluster import Cluster
from cluster.jobs import (
    JOBS,
    JOBSETS,
    ON_KWOK,
    PODS,
    PYTORCHJOBS,
    elastic_pytorchjob,
    job,
    jobset,
    pod,
    pytorchjob,
    template,
)
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
SHORT = {"sim/run-for": "1s"}
GROUP = "scheduling.x-k8s.io/pod-group"
STATEFULSETS = "/apis/apps/v1/namespaces/default/statefulsets"
Document = dict[str, Any]

cluster = module_cluster(kwok=2, operators=("jobset", "training"))
server = module_server()


def ours(document: Document) -> Document:
    """The same, to be placed by us."""
    templates = {
        "Pod": lambda one: [one],
        "Job": lambda one: [one["spec"]["template"]],
        "JobSet": lambda one: [entry["template"]["spec"]["template"] for entry in one["spec"]["replicatedJobs"]],
        "PyTorchJob": lambda one: [entry["template"] for entry in one["spec"]["pytorchReplicaSpecs"].values()],
    }
    for made in templates[document["kind"]](document):
        made["spec"]["schedulerName"] = "swell"
    return document


def job_named(server: Server, name: str, *states: str) -> Document:
    return server.until_named(name, *states, patience_s=PATIENCE_S)


def test_a_pod_is_a_job(cluster: Cluster, server: Server) -> None:
    cluster.api.create(PODS, ours(pod("solo", "true", on=ON_KWOK, annotations=SHORT)))
    done = job_named(server, "solo", "succeeded")
    assert (done["user"], done["tasks"]["succeeded"]) == ("default", 1)


def test_a_plain_job_runs_its_pod_again_until_one_succeeds(cluster: Cluster, server: Server) -> None:
    """Its pods have no numbers: it is not Indexed, as most Jobs are not."""
    document = ours(job("plain", "true", count=1, on=ON_KWOK))
    document["spec"] = {"template": document["spec"]["template"], "backoffLimit": 2}
    cluster.api.create(JOBS, document)
    job_named(server, "plain", "running")
    [first] = [one for one in cluster.api.get(PODS)["items"] if one["metadata"]["name"].startswith("plain-")]
    cluster.api.patch(f"{PODS}/{first['metadata']['name']}", {"metadata": {"annotations": {"sim/fail-after": "0s"}}})

    def second(pods: dict[str, Document]) -> str | None:
        ready = [name for name, one in pods.items() if name.startswith("plain-") and condition(one, "Ready") == "True"]
        return next((name for name in ready if name != first["metadata"]["name"]), None)

    pods = cluster.api.until(PODS, lambda pods: second(pods) is not None)
    cluster.api.patch(f"{PODS}/{second(pods)}", {"metadata": {"annotations": SHORT}})
    assert job_named(server, "plain", "succeeded")["attempts"] == 1


def test_a_job_without_numbers_is_an_array(cluster: Cluster, server: Server) -> None:
    document = ours(job("many", "true", count=5, on=ON_KWOK, gpus=4, annotations=SHORT))
    del document["spec"]["completionMode"]
    cluster.api.create(JOBS, document)
    assert job_named(server, "many", "succeeded")["tasks"]["succeeded"] == 5


def test_pods_of_one_group_start_together_when_all_are_there_and_fit(cluster: Cluster, server: Server) -> None:
    members = [ours(pod(f"gang-{rank}", "true", on=ON_KWOK, gpus=8, annotations=SHORT)) for rank in range(2)]
    for member in members:
        member["metadata"]["labels"] = {GROUP: "gang", "fluence.group-size": "2"}
    cluster.api.create(PODS, members[0])
    cluster.api.create(PODS, ours(pod("after", "true", on=ON_KWOK, annotations=SHORT)))
    job_named(server, "after", "succeeded")  # it came later, and the group is not whole yet
    assert [one for one in server.jobs() if one["name"] == "gang"] == []
    assert "nodeName" not in cluster.api.get(f"{PODS}/gang-0")["spec"]

    cluster.api.create(PODS, members[1])
    assert job_named(server, "gang", "succeeded")["tasks"]["succeeded"] == 2


def test_a_straggler_of_a_group_that_runs_is_a_job_of_its_own_which_waits_for_nobody(
    cluster: Cluster, server: Server
) -> None:
    members = [ours(pod(f"crew-{rank}", "true", on=ON_KWOK, gpus=4)) for rank in range(3)]
    for member in members:
        member["metadata"]["labels"] = {GROUP: "crew", "fluence.group-size": "2"}
    for member in members[:2]:
        cluster.api.create(PODS, member)
    first = job_named(server, "crew", "running")
    cluster.api.create(PODS, members[2])
    cluster.api.until(PODS, lambda pods: "nodeName" in pods["crew-2"]["spec"])
    [straggler] = [one for one in server.jobs() if one["name"] == "crew" and one["id"] != first["id"]]

    for rank in range(3):
        cluster.api.patch(f"{PODS}/crew-{rank}", {"metadata": {"annotations": SHORT}})
    done = [server.until(one["id"], "succeeded") for one in (first, straggler)]
    assert [one["tasks"]["succeeded"] for one in done] == [2, 1]


def test_pods_of_a_statefulset_with_the_label_start_together_and_are_counted_once(
    cluster: Cluster, server: Server
) -> None:
    """They were single jobs, placed one by one; and their room was counted as ours and as somebody else's."""
    cluster.api.create(PODS, ours(pod("blocker", "true", on=ON_KWOK, gpus=4)))
    job_named(server, "blocker", "running")
    labels = {GROUP: "set-of-two", "fluence.group-size": "2"}
    made = template("true", on=ON_KWOK, gpus=6, restartPolicy="Always", schedulerName="swell")
    made["metadata"]["labels"] = labels
    spec = {"replicas": 2, "serviceName": "two", "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}}
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "two"}}
    cluster.api.create(STATEFULSETS, {**document, "spec": {**spec, "template": made}})
    waiting = job_named(server, "set-of-two", "queued")
    assert "2 tasks" in server.swell("why", str(waiting["id"])).stdout

    cluster.api.patch(f"{PODS}/blocker", {"metadata": {"annotations": SHORT}})
    running = server.until(waiting["id"], "running", patience_s=PATIENCE_S)
    assert running["tasks"]["running"] == 2
    cluster.api.create(PODS, ours(pod("beside", "true", on=ON_KWOK, gpus=2, annotations=SHORT)))
    job_named(server, "beside", "succeeded")
    cluster.api.delete(f"{STATEFULSETS}/two?propagationPolicy=Foreground")
    server.until(waiting["id"], "cancelled", patience_s=PATIENCE_S)


def grouped(name: str, size: int, gpus: int, *, loss: str = "", **spec: Any) -> Document:
    """A StatefulSet whose pods are one group; `size` start together. `loss`: what becomes of them if one goes."""
    labels = {GROUP: name, "fluence.group-size": str(size)}
    made = template("true", on=ON_KWOK, gpus=gpus, restartPolicy="Always", schedulerName="swell")
    made["metadata"]["labels"] = labels
    if loss:
        made["metadata"]["annotations"] = {"swell.dev/on-member-lost": loss}
    rest = {"serviceName": name, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}}
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}}
    return {**document, "spec": {**rest, "template": made, **spec}}


def placed_of(pods: dict[str, Document], name: str) -> dict[str, str]:
    """uid → node of each pod of a group that stays there."""
    return {
        one["metadata"]["uid"]: one["spec"]["nodeName"]
        for one in pods.values()
        if (one["metadata"].get("labels") or {}).get(GROUP) == name
        and "nodeName" in one["spec"]
        and "deletionTimestamp" not in one["metadata"]
    }


def replacing(name: str, gone: str) -> Callable[[dict[str, Document]], bool]:
    """Are all three placed, and one of them instead of the one that was deleted?"""
    return lambda pods: len(placed_of(pods, name)) == 3 and gone not in placed_of(pods, name)


def test_a_gang_of_which_one_is_deleted_begins_again_whole(cluster: Cluster, server: Server) -> None:
    """The one that replaced it started alone, as a gang of one, and the room of the others went elsewhere."""
    cluster.api.create(STATEFULSETS, grouped("ring", 3, 2, loss="restart", replicas=3))
    first = job_named(server, "ring", "running")
    before = placed_of(cluster.api.until(PODS, lambda pods: len(placed_of(pods, "ring")) == 3), "ring")
    cluster.api.delete(f"{PODS}/ring-1")
    ended = server.until(first["id"], "cancelled", patience_s=PATIENCE_S)
    assert ended["reason"]["code"] == "ObjectDeleted"
    cluster.api.until(
        PODS, lambda pods: len(set(placed_of(pods, "ring")) - set(before)) == 3 == len(placed_of(pods, "ring"))
    )
    jobs = [one for one in server.jobs() if one["name"] == "ring" and one["state"] != "cancelled"]
    assert [one["tasks"]["total"] for one in jobs] == [3]
    cluster.api.delete(f"{STATEFULSETS}/ring?propagationPolicy=Foreground")
    server.until(jobs[0]["id"], "cancelled", patience_s=PATIENCE_S)


def test_one_that_is_deleted_while_its_group_runs_is_replaced_in_its_place(cluster: Cluster, server: Server) -> None:
    """The whole group began again, which its controller expects of nobody."""
    cluster.api.create(STATEFULSETS, grouped("keep", 3, 4, replicas=3))
    first = job_named(server, "keep", "running")
    before = placed_of(cluster.api.until(PODS, lambda pods: len(placed_of(pods, "keep")) == 3), "keep")
    cluster.api.create(PODS, ours(pod("greedy", "true", on=ON_KWOK, gpus=8)))  # it would like the room of one that goes
    job_named(server, "greedy", "queued")
    for _ in range(2):
        here = placed_of(cluster.api.until(PODS, lambda pods: len(placed_of(pods, "keep")) == 3), "keep")
        gone = cluster.api.get(f"{PODS}/keep-1")["metadata"]["uid"]
        cluster.api.delete(f"{PODS}/keep-1")
        after = placed_of(cluster.api.until(PODS, replacing("keep", gone)), "keep")
        assert {uid: node for uid, node in here.items() if uid != gone}.items() <= after.items()
        assert sorted(after.values()) == sorted(before.values())
        server.kill()
        server.up()
    jobs = [(one["id"], one["state"]) for one in server.jobs() if one["name"] == "keep"]
    assert jobs == [(first["id"], "running")]
    cluster.api.delete(f"{PODS}/greedy")
    cluster.api.delete(f"{STATEFULSETS}/keep?propagationPolicy=Foreground")
    server.until(first["id"], "cancelled", patience_s=PATIENCE_S)


def test_a_group_goes_on_without_one_while_enough_run(cluster: Cluster, server: Server) -> None:
    cluster.api.create(STATEFULSETS, grouped("march", 2, 4, loss="go-on", replicas=3))
    pods = cluster.api.until(PODS, lambda pods: len(placed_of(pods, "march")) == 3)
    before = placed_of(pods, "march")
    first = job_named(server, "march", "running")
    gone = pods["march-0"]["metadata"]["uid"]
    cluster.api.delete(f"{PODS}/march-0")
    after = cluster.api.until(PODS, replacing("march", gone))
    assert before.keys() - {gone} <= placed_of(after, "march").keys()
    assert server.until(first["id"], "running")["tasks"]["running"] == 1
    cluster.api.delete(f"{STATEFULSETS}/march?propagationPolicy=Foreground")
    cluster.api.until(PODS, lambda pods: not any(name.startswith("march-") for name in pods))


def test_one_that_is_deleted_while_its_group_waits_is_replaced_and_the_group_starts(
    cluster: Cluster, server: Server
) -> None:
    """It stayed Pending for ever, in an empty cluster."""
    cluster.api.create(PODS, ours(pod("wall", "true", on=ON_KWOK, gpus=8)))
    job_named(server, "wall", "running")
    cluster.api.create(STATEFULSETS, grouped("queue", 3, 4, replicas=3))
    job_named(server, "queue", "queued")
    cluster.api.delete(f"{PODS}/queue-0")
    cluster.api.patch(f"{PODS}/wall", {"metadata": {"annotations": SHORT}})
    cluster.api.until(PODS, lambda pods: len(placed_of(pods, "queue")) == 3)
    cluster.api.delete(f"{STATEFULSETS}/queue?propagationPolicy=Foreground")
    cluster.api.until(PODS, lambda pods: not any(name.startswith("queue-") for name in pods))


def test_a_group_starts_with_what_fits_from_its_minimum_up(cluster: Cluster, server: Server) -> None:
    """Of six with a minimum of three and room for four none ran: `CannotRunHere`."""
    cluster.api.create(STATEFULSETS, grouped("some", 3, 4, replicas=6))
    cluster.api.until(PODS, lambda pods: len(placed_of(pods, "some")) == 4)
    waiting = [one for one in server.jobs() if one["name"] == "some" and one["state"] == "queued"]
    assert len(waiting) == 2
    cluster.api.delete(f"{STATEFULSETS}/some?propagationPolicy=Foreground")
    cluster.api.until(PODS, lambda pods: not any(name.startswith("some-") for name in pods))


def test_a_group_that_cannot_fit_waits_whole_says_why_and_is_cancelled_with_its_pods(
    cluster: Cluster, server: Server
) -> None:
    for rank in range(3):
        member = ours(pod(f"wide-{rank}", "true", on=ON_KWOK, gpus=8))
        member["metadata"]["labels"] = {GROUP: "wide", "fluence.group-size": "3"}
        cluster.api.create(PODS, member)
    waiting = job_named(server, "wide", "queued")
    assert "3 tasks" in server.swell("why", str(waiting["id"])).stdout
    pods = cluster.api.until(
        PODS, lambda pods: all(condition(pods[f"wide-{rank}"], "PodScheduled") == "False" for rank in range(3))
    )
    assert all("nodeName" not in pods[f"wide-{rank}"]["spec"] for rank in range(3))

    for rank in range(3):
        cluster.api.delete(f"{PODS}/wide-{rank}")
    job_named(server, "wide", "cancelled")


def test_a_pytorchjob_with_a_range_is_given_what_is_free_and_gives_it_back_when_it_is_scaled(
    cluster: Cluster, server: Server
) -> None:
    cluster.api.create(PYTORCHJOBS, ours(elastic_pytorchjob("elastic", gpus_max=8, on=ON_KWOK)))
    elastic = job_named(server, "elastic", "running")["id"]
    server.until_true(elastic, lambda found: found["width"] == 8, patience_s=PATIENCE_S)

    cluster.api.create(PODS, ours(pod("late", "true", on=ON_KWOK, gpus=4, annotations=SHORT)))
    job_named(server, "late", "queued")
    assert server.swell("scale", "--now", "elastic", "4").code == 0
    job_named(server, "late", "succeeded")
    resized = job_named(server, "elastic", "running")
    assert (resized["width"], resized["attempts"]) == (4, 2)
    cluster.api.delete(f"{PYTORCHJOBS}/elastic")
    assert job_named(server, "elastic", "cancelled")["reason"]["code"] == "ObjectDeleted"


def test_the_ranks_of_a_jobset_are_one_gang_and_the_set_stays_when_its_job_is_deleted(
    cluster: Cluster, server: Server
) -> None:
    cluster.api.create(JOBSETS, ours(jobset("set", "true", count=3, on=ON_KWOK, gpus=1, annotations=SHORT)))
    assert job_named(server, "set", "succeeded")["tasks"]["succeeded"] == 3
    assert server.swell("delete", "set").code == 0
    assert "deletionTimestamp" not in cluster.api.get(f"{JOBSETS}/set")["metadata"]


def test_what_waits_and_what_runs_is_known_again_after_a_kill(cluster: Cluster, server: Server, tmp_path: Path) -> None:
    cluster.api.create(PODS, ours(pod("runs", "true", on=ON_KWOK, gpus=8)))
    cluster.api.create(PODS, ours(pod("waits", "true", on=ON_KWOK, gpus=8)))
    cluster.api.create(PODS, ours(pod("waits-too", "true", on=ON_KWOK, gpus=8)))
    running, queued = job_named(server, "runs", "running"), job_named(server, "waits-too", "queued")
    server.kill()
    cluster.api.delete(f"{PODS}/waits-too")
    server.up()
    job_named(server, "waits-too", "cancelled")
    for name in ("runs", "waits"):
        cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": SHORT}})
    assert job_named(server, "runs", "succeeded")["id"] == running["id"]
    job_named(server, "waits", "succeeded")
    names = [one["name"] for one in server.jobs()]
    assert [names.count(name) for name in ("runs", "waits", "waits-too")] == [1, 1, 1]
    assert queued["id"] in [one["id"] for one in server.jobs()]


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def classes(cluster: Cluster) -> None:
    """Of the same value: one takes the room of others, one waits for it."""
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    for name, policy in (("urgent", "PreemptLowerPriority"), ("patient", "Never")):
        cluster.api.create(CLASSES, {**kind, "metadata": {"name": name}, "preemptionPolicy": policy})


def test_a_priority_class_evicts_a_whole_gang_when_its_budget_allows_it(
    cluster: Cluster, server: Server, classes: None
) -> None:
    for rank in range(2):
        member = ours(pod(f"low-{rank}", "true", on=ON_KWOK, gpus=8))
        member["metadata"]["labels"] = {GROUP: "low", "fluence.group-size": "2"}
        cluster.api.create(PODS, member)
    low = job_named(server, "low", "running")["id"]
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "low"}}
    cluster.api.create(BUDGETS, {**budget, "spec": {"minAvailable": 1, "selector": {"matchLabels": {GROUP: "low"}}}})
    cluster.api.until(BUDGETS, lambda found: found["low"].get("status", {}).get("disruptionsAllowed") == 1)

    cluster.api.create(PODS, ours(pod("mild", "true", on=ON_KWOK, gpus=8, priorityClassName="patient")))
    mild = job_named(server, "mild", "queued")["id"]
    cluster.api.create(PODS, ours(pod("high", "true", on=ON_KWOK, gpus=8, priorityClassName="urgent")))
    told = server.until_true(low, lambda one: "budget" in str(one["reason"]).lower(), patience_s=PATIENCE_S)
    assert "PodDisruptionBudget 'low' allows 1 of its 2 pods to be evicted now" in told["reason"]["message"]
    assert len(placed_of({one["metadata"]["name"]: one for one in cluster.api.get(PODS)["items"]}, "low")) == 2
    cluster.api.delete(f"{BUDGETS}/low")
    high = job_named(server, "high", "running")["id"]
    again = server.until(low, "queued", patience_s=PATIENCE_S)
    assert (again["preemptions"], again["attempts"]) == (1, 1)

    server.until(mild, "running", patience_s=PATIENCE_S)  # the other node is free now, and it is before the gang
    for name in ("high", "mild"):
        cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": SHORT}})
    server.until(high, "succeeded", patience_s=PATIENCE_S)
    assert server.until(low, "running", patience_s=PATIENCE_S)["attempts"] == 2
    for rank in range(2):
        with contextlib.suppress(Refused):  # it is ended with the other one, and may be gone
            cluster.api.delete(f"{PODS}/low-{rank}")
    server.until(low, "cancelled", patience_s=PATIENCE_S)


def test_a_pod_of_a_deployment_that_is_evicted_is_another_job(cluster: Cluster, server: Server, classes: None) -> None:
    made = template("true", on=ON_KWOK, gpus=8, restartPolicy="Always", schedulerName="swell")
    made["metadata"]["labels"] = {"app": "web"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": made}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    cluster.api.create(DEPLOYMENTS, {**web, "spec": spec})
    running = cluster.api.until(
        PODS, lambda pods: sum("nodeName" in one["spec"] for name, one in pods.items() if name.startswith("web-")) == 2
    )
    before = {name for name in running if name.startswith("web-")}
    cluster.api.create(PODS, ours(pod("soon", "true", on=ON_KWOK, gpus=8, priorityClassName="urgent")))
    soon = job_named(server, "soon", "running")["id"]
    after = {name for name in cluster.api.until(PODS, lambda pods: len(pods) >= 3) if name.startswith("web-")}
    [gone] = before - after
    [new] = after - before
    job_named(server, gone, "cancelled")
    waiting = job_named(server, new, "queued")["id"]
    cluster.api.patch(f"{PODS}/soon", {"metadata": {"annotations": SHORT}})
    server.until(soon, "succeeded", patience_s=PATIENCE_S)
    server.until(waiting, "running", patience_s=PATIENCE_S)
    cluster.api.delete(f"{DEPLOYMENTS}/web?propagationPolicy=Foreground")
    cluster.api.until(PODS, lambda pods: not any(name.startswith("web-") for name in pods))


NAMESPACES = "/api/v1/namespaces"


def test_a_quota_counts_for_a_whole_gang_before_any_of_its_pods_is_made(cluster: Cluster, server: Server) -> None:
    cluster.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tight"}})
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "three"},
        "spec": {"hard": {"pods": "3"}},
    }
    quotas = f"{NAMESPACES}/tight/resourcequotas"
    cluster.api.create(quotas, quota)
    pods = f"{NAMESPACES}/tight/pods"
    cluster.api.until(quotas, lambda found: found["three"].get("status", {}).get("hard") == {"pods": "3"})
    for name in ("one", "two"):
        cluster.api.create(pods, pod(name, "true", on=ON_KWOK))
    cluster.api.until(quotas, lambda found: found["three"]["status"]["used"] == {"pods": "2"})

    def gang(name: str, count: int) -> Document:
        document = jobset(name, "true", count=count, on=ON_KWOK, gpus=1)
        document["metadata"]["namespace"] = "tight"
        return document

    refused = server.swell("submit", "-f", "-", stdin=yaml.safe_dump(gang("never", 4)))
    assert refused.code != 0
    assert "together they exceeded quota: three, requested: pods=4, used: pods=0, limited: pods=3" in refused.stderr
    number = submitted(server, gang("pair", 2))
    waits = server.until_true(number, lambda one: one["reason"]["code"] == "WaitingToRetry", patience_s=PATIENCE_S)
    assert "its 2 pods start together or not at all, and together they exceeded quota: three" in str(waits["reason"])
    assert {one["metadata"]["name"] for one in cluster.api.get(pods)["items"]} == {"one", "two"}
    cluster.api.delete(f"{pods}/one")
    server.until(number, "running", patience_s=PATIENCE_S)
    server.swell("cancel", str(number))
    cluster.api.delete(f"{NAMESPACES}/tight")


def test_jobs_whose_namespace_is_deleted_say_so_and_hold_nothing(cluster: Cluster, server: Server) -> None:
    """Of a running one it was said that it had left no exit code."""
    cluster.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brief"}})
    made = {
        "pod": (PODS, pod("b-pod", "true", on=ON_KWOK, gpus=1)),
        "job": (JOBS, job("b-job", "true", count=2, on=ON_KWOK, gpus=1)),
        "jobset": (JOBSETS, jobset("b-set", "true", count=2, on=ON_KWOK, gpus=1)),
        "pytorchjob": (PYTORCHJOBS, pytorchjob("b-torch", "true", "true", workers=1, on=ON_KWOK, gpus=1)),
    }
    for path, document in made.values():
        cluster.api.create(path.replace("/default/", "/brief/"), ours(document))
    sent = pod("b-sent", "true", on=ON_KWOK, gpus=1)
    sent["metadata"]["namespace"] = "brief"
    submitted(server, sent)
    wide = ours(jobset("b-wide", "true", count=2, on=ON_KWOK, gpus=8))
    cluster.api.create(JOBSETS.replace("/default/", "/brief/"), wide)
    running = [job_named(server, name, "running")["id"] for name in ("b-pod", "b-job", "b-set", "b-torch", "b-sent")]
    waiting = job_named(server, "b-wide", "queued")["id"]
    cluster.api.delete(f"{NAMESPACES}/brief")
    for number in running:
        reason = server.until(number, "cancelled", patience_s=PATIENCE_S)["reason"]
        assert (reason["code"], reason["message"]) == ("ObjectDeleted", "its namespace brief was deleted with kubectl")
    ended = server.until(waiting, "cancelled", patience_s=PATIENCE_S)["reason"]
    # The others may have made room for it a moment before it was deleted itself.
    told = ("cancelled by the deletion of namespace brief", "its namespace brief was deleted with kubectl")
    assert ended["message"] in told
    cluster.api.until(NAMESPACES, lambda found: "brief" not in found)
    nodes = server.swell("nodes", "-o", "json").json
    assert [gpu["job"] for node in nodes for gpu in node["gpus"] if gpu["job"] in running] == []


# -- what came by `swell submit` -------------------------------------------------------------------------------------

AT_ONCE = {"swell.dev/resize": "immediate"}
JOB_LABEL = "swell.dev/job"


def submitted(server: Server, document: Document) -> int:
    return server.swell("submit", "-f", "-", stdin=yaml.safe_dump(document)).id


def annotated(document: Document, **annotations: str) -> Document:
    document["metadata"]["annotations"] = {**AT_ONCE, **annotations}
    return document


def ring(name: str, *, gpus: int = 1, **annotations: str) -> Document:
    """A Job whose two pods start together."""
    document = annotated(job(name, "true", count=2, on=ON_KWOK, gpus=gpus), **annotations)
    document["metadata"]["labels"] = {GROUP: name}
    return document


def native(name: str) -> Document:
    spec = {"command": ["true"], "image": "swell.test/busybox:1", "gpus": "1..8", "resize": "immediate"}
    return {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def trained(name: str, **annotations: str) -> Document:
    document = annotated(pytorchjob(name, "true", "true", workers=1, on=ON_KWOK, gpus=1), **annotations)
    for replicas in document["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
    return document


def pods_of(cluster: Cluster, number: int) -> list[Document]:
    found: list[Document] = cluster.api.get(f"{PODS}?labelSelector={JOB_LABEL}={number}")["items"]
    return found


def gpus_of(cluster: Cluster, number: int) -> list[str]:
    """Of each of its pods."""
    return [one["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for one in pods_of(cluster, number)]


def until_running(server: Server, number: int, *, width: int, attempts: int) -> None:
    wanted = ("running", width, attempts)
    server.until_true(
        number, lambda one: (one["state"], one["width"], one["attempts"]) == wanted, patience_s=PATIENCE_S
    )


def end_well(cluster: Cluster, server: Server, number: int) -> Document:
    for one in pods_of(cluster, number):
        cluster.api.patch(f"{PODS}/{one['metadata']['name']}", {"metadata": {"annotations": SHORT}})
    return server.until(number, "succeeded", patience_s=PATIENCE_S)


def test_two_that_leave_their_names_to_the_cluster_are_objects_of_their_own(cluster: Cluster, server: Server) -> None:
    document = annotated(trained("trial"))
    document["metadata"] = {**document["metadata"], "generateName": "trial-"}
    del document["metadata"]["name"]
    first, second = submitted(server, document), submitted(server, document)
    for number in (first, second):
        until_running(server, number, width=1, attempts=1)
    found = cluster.api.get(f"{PYTORCHJOBS}?labelSelector={JOB_LABEL}")["items"]
    names = {int(one["metadata"]["labels"][JOB_LABEL]): one["metadata"]["name"] for one in found}

    assert [server.client().job(number).document["name"] for number in (first, second)] == ["trial", "trial"]
    assert (names[first], names[second]) == (f"trial-{first}", f"trial-{second}")
    for number in (first, second):
        end_well(cluster, server, number)


def test_the_tasks_of_a_job_are_scaled_in_the_same_object(cluster: Cluster, server: Server) -> None:
    number = submitted(server, ring("ring", **{"swell.dev/tasks": "2..4"}))
    until_running(server, number, width=4, attempts=1)
    before = cluster.api.get(f"{JOBS}/ring")
    assert server.swell("scale", "--now", "ring", "3").code == 0
    until_running(server, number, width=3, attempts=2)
    after = cluster.api.get(f"{JOBS}/ring")

    assert [one["spec"]["completions"] for one in (before, after)] == [4, 3]
    assert [one["spec"]["parallelism"] for one in (before, after)] == [4, 3]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert gpus_of(cluster, number) == ["1"] * 3
    assert end_well(cluster, server, number)["tasks"]["succeeded"] == 3


def test_the_workers_of_an_elastic_pytorchjob_are_scaled_in_the_same_object(cluster: Cluster, server: Server) -> None:
    document = trained("workers")
    del document["spec"]["pytorchReplicaSpecs"]["Master"]
    document["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "c10d"}
    number = submitted(server, document)
    until_running(server, number, width=4, attempts=1)
    before = cluster.api.get(f"{PYTORCHJOBS}/workers")
    assert server.swell("scale", "--now", "workers", "2").code == 0
    until_running(server, number, width=2, attempts=2)
    after = cluster.api.get(f"{PYTORCHJOBS}/workers")

    assert [one["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] for one in (before, after)] == [4, 2]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert gpus_of(cluster, number) == ["1"] * 2
    assert end_well(cluster, server, number)["tasks"]["succeeded"] == 2


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (PODS, annotated(pod("grown-pod", "true", on=ON_KWOK), request="1", limit="8")),
        (PODS, native("grown-native")),
        (JOBS, ring("grown-job", request="1", limit="8")),
        (JOBSETS, annotated(jobset("grown-set", "true", count=2, on=ON_KWOK, gpus=1), request="1", limit="8")),
    ],
    ids=["Pod", "native", "Job", "JobSet"],
)
def test_what_is_to_have_other_gpus_is_made_anew_when_it_is_scaled(
    cluster: Cluster, server: Server, path: str, document: Document
) -> None:
    """A JobSet was made anew at once; it took the Jobs of the one before, which asked for other GPUs, for its own."""

    def uid() -> str:
        found = cluster.api.get(f"{path}?labelSelector={JOB_LABEL}={number}")["items"]
        return str(found[0]["metadata"]["uid"])

    number = submitted(server, document)
    until_running(server, number, width=8, attempts=1)
    before = uid()
    assert server.swell("scale", "--now", str(number), "4").code == 0
    until_running(server, number, width=4, attempts=2)

    assert uid() != before
    assert set(gpus_of(cluster, number)) == {"4"}
    assert end_well(cluster, server, number)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("path", "document", "width"),
    [
        (PYTORCHJOBS, trained("held-rigid"), 1),
        (PYTORCHJOBS, trained("held-elastic", request="1", limit="4"), 4),
        (JOBS, ring("held-job"), 2),
        (JOBSETS, annotated(jobset("held-set", "true", count=2, on=ON_KWOK, gpus=1)), 2),
    ],
    ids=["rigid PyTorchJob", "elastic PyTorchJob", "Job", "JobSet"],
)
def test_a_job_that_is_held_is_a_suspended_object_until_it_is_released(
    cluster: Cluster, server: Server, path: str, document: Document, width: int
) -> None:
    def seen() -> tuple[str, bool]:
        found = cluster.api.get(f"{path}/{document['metadata']['name']}")
        return found["metadata"]["uid"], (found["spec"].get("runPolicy") or found["spec"])["suspend"]

    number = submitted(server, document)
    until_running(server, number, width=width, attempts=1)
    uid, was_suspended = seen()
    assert (server.swell("hold", str(number)).code, was_suspended) == (0, False)
    server.until(number, "held", patience_s=PATIENCE_S)
    assert (seen(), pods_of(cluster, number)) == ((uid, True), [])

    assert server.swell("release", str(number)).code == 0
    until_running(server, number, width=width, attempts=2)
    assert seen() == (uid, False)
    assert end_well(cluster, server, number)["resizes"] == 0


@pytest.mark.parametrize("way", ["kubectl", "submit"])
def test_a_jobset_of_which_a_rank_has_succeeded_begins_whole_again(cluster: Cluster, server: Server, way: str) -> None:
    """The Job of that rank did not make its pod again, and the gang waited for it for ever."""
    name = f"half-{way}"
    document = annotated(jobset(name, "true", count=2, on=ON_KWOK, gpus=1))
    if way == "kubectl":
        cluster.api.create(JOBSETS, ours(document))
        number = job_named(server, name, "running")["id"]
    else:
        number = submitted(server, document)
    until_running(server, number, width=2, attempts=1)
    first = in_set(cluster, name)[0]["metadata"]["name"]
    cluster.api.patch(f"{PODS}/{first}", {"metadata": {"annotations": SHORT}})
    cluster.api.until(JOBS, lambda jobs: jobs[f"{name}-workers-0"]["status"].get("succeeded") == 1)
    uid = cluster.api.get(f"{JOBSETS}/{name}")["metadata"]["uid"]

    assert server.swell("hold", str(number)).code == 0
    server.until(number, "held", patience_s=PATIENCE_S)
    assert server.swell("release", str(number)).code == 0
    until_running(server, number, width=2, attempts=2)
    assert [one["status"]["phase"] for one in in_set(cluster, name)] == ["Running", "Running"]
    for one in in_set(cluster, name):
        cluster.api.patch(f"{PODS}/{one['metadata']['name']}", {"metadata": {"annotations": SHORT}})
    assert server.until(number, "succeeded", patience_s=PATIENCE_S)["tasks"]["succeeded"] == 2
    assert cluster.api.get(f"{JOBSETS}/{name}")["metadata"]["uid"] == uid


def test_plain_pods_of_which_one_has_succeeded_begin_whole_again(cluster: Cluster, server: Server) -> None:
    """What the one had done in the first attempt counted in the second, and was not done again."""
    names = ("half-0", "half-1")
    for name in names:
        member = ours(pod(name, "true", on=ON_KWOK, gpus=1))
        member["metadata"]["labels"] = {GROUP: "half", "fluence.group-size": "2"}
        cluster.api.create(PODS, member)
    number = job_named(server, "half", "running")["id"]
    until_running(server, number, width=2, attempts=1)
    cluster.api.patch(f"{PODS}/half-0", {"metadata": {"annotations": SHORT}})
    cluster.api.until(PODS, lambda pods: pods["half-0"]["status"]["phase"] == "Succeeded")

    assert server.swell("requeue", "--now", str(number)).code == 0
    until_running(server, number, width=2, attempts=2)
    cluster.api.until(PODS, lambda pods: [pods[name]["status"]["phase"] for name in names] == ["Running", "Running"])
    for name in names:
        cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": SHORT}})
    assert server.until(number, "succeeded", patience_s=PATIENCE_S)["tasks"]["succeeded"] == 2


def in_set(cluster: Cluster, name: str) -> list[Document]:
    found: list[Document] = cluster.api.get(f"{PODS}?labelSelector=jobset.sigs.k8s.io/jobset-name={name}")["items"]
    return found
