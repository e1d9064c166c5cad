"""Are the chart's rights enough, and is each of them needed? Every kind of job on a real control plane, audited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from cluster import jobs as kinds
from cluster.api import Object, condition
from cluster.binaries import module_file
from cluster.cluster import Cluster
from cluster.identity import acted_for
from cluster.jobs import ON_KWOK, elastic_pytorchjob, job, jobset, mpijob, pod, pytorchjob
from cluster.operators import MPI_CRD
from cluster.starting import started
from swell.engines.kubernetes.watch.observed_objects import DEVICE, RESERVATION, STAND_IN, TOTAL

from .acting import PATIENCE_S, Stage, acting
from .chart import ACCOUNT, NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ML = "ml"
GROUP = "scheduling.x-k8s.io/pod-group"
SHORT = {"sim/run-for": "1s"}
PODS, JOBS, JOBSETS, PYTORCHJOBS, MPIJOBS = (
    path.replace("/default/", f"/{ML}/")
    for path in (kinds.PODS, kinds.JOBS, kinds.JOBSETS, kinds.PYTORCHJOBS, kinds.MPIJOBS)
)
OWN_PODS = kinds.PODS.replace("/default/", f"/{NAMESPACE}/")
IMAGE = ("--image", "busybox")
#: What the API server asks for on the way of another call, and does not write down: who applies a Secret may also
#: create it, and who gives it other owners may also delete it. And what nothing here needs: an Event that is repeated,
#: why pods of a Job are refused, the groups that Kubernetes serves from 1.35 on, a volume that is bound.
UNSEEN = {
    ("create", "", "secrets"),
    ("delete", "", "secrets"),
    ("delete", "", "services"),
    ("patch", "", "events"),
    ("list", "", "events"),
    ("list", "scheduling.k8s.io", "workloads"),
    ("list", "scheduling.k8s.io", "podgroups"),
    ("get", "", "persistentvolumes"),
    ("impersonate", "", "serviceaccounts"),  # asked of the request that is made in a name, and shown with that
    ("impersonate", "authentication.k8s.io", "userextras/swell.dev/job"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("rights"), kwok=2, operators=("jobset", "training")) as cluster:
        cluster.api.kubectl("label", "nodes", "--all", "nvidia.com/gpu.memory=16384")
        cluster.api.apply(pod_groups())
        cluster.api.kubectl("apply", "--server-side", "-f", module_file("mpi-operator", MPI_CRD))
        yield cluster


def pod_groups() -> Object:
    """What scheduler-plugins installs, without its fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    metadata = {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, in a test"},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": "scheduling.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with acting(cluster, tmp_path_factory.mktemp("server"), NAMESPACE, ML) as made:
        yield made


def test_every_kind_of_job_needs_the_rights_that_the_chart_grants_and_no_other(stage: Stage) -> None:
    stories = [
        submitted_objects,
        whose_operator_is_away,
        in_our_own_words,
        by_kubectl,
        of_a_user_with_a_token,
        of_a_user_who_has_lost_the_right_while_it_waited,
        beside_a_pod_of_the_same_name,
        with_a_volume_that_waits_for_its_node,
        with_a_volume_that_is_made_for_it,
        that_shares_a_gpu,
        that_waits_for_nodes,
        that_is_resized,
        that_is_cancelled,
        that_takes_the_room_of_another,
    ]
    for story in stories:
        story(stage)

    calls = stage.asked()
    assert [call for call in calls if call.code in (401, 403)] == []
    used = {(call.verb, call.group, call.resource) for call in calls}
    assert stage.granted - used == UNSEEN
    assert "lacks the verb" not in stage.server.state.server_log.read_text()


def submitted_objects(stage: Stage) -> None:
    gang = job("gang", "true", count=2, on=ON_KWOK, gpus=1, annotations=SHORT)
    gang["metadata"]["labels"] = {GROUP: "gang"}
    jobs = stage.submit(
        *map(
            in_ml,
            [
                pod("single", "true", on=ON_KWOK, annotations=SHORT),
                gang,
                job("array", "true", count=2, on=ON_KWOK, annotations=SHORT),
                jobset("set", "true", count=2, on=ON_KWOK, annotations=SHORT),
                pytorchjob("train", "true", "true", workers=1, on=ON_KWOK, annotations=SHORT),
            ],
        )
    )
    succeed(stage, *jobs)


def whose_operator_is_away(stage: Stage) -> None:
    """The kind is served, and its objects are made, resumed and removed."""
    [solves] = stage.submit(in_ml(mpijob("solves", "true", "true", workers=1, on=ON_KWOK)))
    stage.cluster.api.until(MPIJOBS, lambda items: not items["solves"]["spec"]["runPolicy"]["suspend"])
    stage.said("cancel", str(solves))
    stage.until(solves, "cancelled")
    stage.said("delete", str(solves))
    stage.cluster.api.until(MPIJOBS, lambda items: not items)


def in_our_own_words(stage: Stage) -> None:
    gang = stage.server.start(*IMAGE, "--tasks", "2", "--", "sleep", "1s")
    array = stage.server.start(*IMAGE, "--array", "0-2", "--", "sleep", "1s")
    succeed(stage, gang, array)


def by_kubectl(stage: Stage) -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "pair"}}
    members = [pod(f"pair-{rank}", "true", on=ON_KWOK, annotations=SHORT, schedulerName="swell") for rank in range(2)]
    for member in members:
        member["metadata"]["labels"] = {GROUP: "pair"}
    theirs = {"on": ON_KWOK, "annotations": SHORT, "schedulerName": "swell"}
    objects = [
        job("k-job", "true", count=2, **theirs),
        jobset("k-set", "true", count=2, **theirs),
        pytorchjob("k-train", "true", "true", workers=1, **theirs),
    ]
    stage.cluster.api.apply({**group, "spec": {"minMember": 2}}, *members, *objects, namespace=ML)
    for path, name in ((PODS, "pair-0"), (JOBS, "k-job"), (JOBSETS, "k-set"), (PYTORCHJOBS, "k-train")):
        stage.cluster.api.until(path, lambda items, name=name: state_on(items[name]) == "succeeded")


def state_on(one: Object) -> str | None:
    """As a user of kubectl reads it."""
    state: str | None = one["metadata"].get("annotations", {}).get("swell.dev/state")
    return state


def of_a_user_with_a_token(stage: Stage) -> None:
    api = stage.cluster.api
    api.kubectl("create", "serviceaccount", "anna", "-n", ML)
    api.kubectl("create", "role", "pods", "-n", ML, "--verb=create", "--resource=pods")
    api.kubectl("create", "rolebinding", "anna", "-n", ML, "--role=pods", f"--serviceaccount={ML}:anna")
    token = api.kubectl("create", "token", "anna", "-n", ML).strip()
    elsewhere = {"SWELL_STATE": "", "SWELL_SERVER": stage.url, "SWELL_API_TOKEN": token}
    [job] = stage.submit(in_ml(pod("annas", "true", on=ON_KWOK, annotations=SHORT)), **elsewhere)
    succeed(stage, job)
    anna = f"system:serviceaccount:{ML}:anna"
    made = [one for one in acted_for(stage.cluster.control_plane.audit, ACCOUNT) if one[:2] == ("create", "pods")]
    assert made == [("create", "pods", anna, ["swell-trial"]), ("create", "pods", anna, [str(job)])]


def of_a_user_who_has_lost_the_right_while_it_waited(stage: Stage) -> None:
    api = stage.cluster.api
    api.kubectl("create", "serviceaccount", "ben", "-n", ML)
    api.kubectl("create", "rolebinding", "ben", "-n", ML, "--role=pods", f"--serviceaccount={ML}:ben")
    token = api.kubectl("create", "token", "ben", "-n", ML).strip()
    elsewhere = {"SWELL_STATE": "", "SWELL_SERVER": stage.url, "SWELL_API_TOKEN": token}
    waits = in_ml(pod("bens", "true", on={"type": "later"}, annotations=SHORT))
    done = stage.server.swell("submit", "--wait-for-nodes", "-f", "-", stdin=yaml.safe_dump(waits), env=elsewhere)
    assert done.code == 0, done
    api.kubectl("delete", "rolebinding", "ben", "-n", ML)
    api.kubectl("label", "nodes", "--all", "--overwrite", "type=later")
    lost = "may not create a Pod (v1) in namespace 'ml' any more"
    stage.server.until_true(done.id, lambda found: lost in found["reason"]["message"], patience_s=PATIENCE_S)
    assert "bens" not in {one["metadata"]["name"] for one in api.get(PODS)["items"]}
    api.kubectl("label", "nodes", "--all", "--overwrite", "type=kwok")
    stage.said("cancel", str(done.id))


def beside_a_pod_of_the_same_name(stage: Stage) -> None:
    stage.cluster.api.apply(pod("taken", "true", on=ON_KWOK), namespace=ML)
    with pytest.raises(AssertionError, match='pods "taken" already exists in namespace "ml"'):
        stage.submit(in_ml(pod("taken", "true", on=ON_KWOK, annotations=SHORT)))


def with_a_volume_that_waits_for_its_node(stage: Stage) -> None:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    spec = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    late = {**kind, "provisioner": "example.org/none", "volumeBindingMode": "WaitForFirstConsumer"}
    stage.cluster.api.apply(late, {**claim, "spec": spec}, namespace=ML)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    succeed(stage, *stage.submit(in_ml(pod("reads", "true", on=ON_KWOK, annotations=SHORT, volumes=volumes))))


def with_a_volume_that_is_made_for_it(stage: Stage) -> None:
    """And deleted when it has ended."""
    shares = job("shares", "true", count=2, on=ON_KWOK, annotations=SHORT)
    shares["metadata"]["annotations"] = {"swell.dev/shared-volume": "1G ReadWriteOnce late"}
    succeed(stage, *stage.submit(in_ml(shares)))
    claims = f"/api/v1/namespaces/{ML}/persistentvolumeclaims"
    stage.cluster.api.until(claims, lambda found: "shares-shared" not in found, patience_s=PATIENCE_S)


def that_shares_a_gpu(stage: Stage) -> None:
    """A simulated node has no log: when it was asked for, we write on the pod what it would have said there."""
    sharing = stage.server.start(*IMAGE, "--gpu-memory", "6GiB", "--", "sleep", "1s")
    keepers = stage.cluster.api.until(OWN_PODS, lambda items: any(map(is_ready_keeper, items.values())))
    [keeper] = [name for name, one in keepers.items() if RESERVATION in one["metadata"]["labels"]]
    stage.server.until_true(sharing, lambda found: "pods/log" in found["reason"]["message"], patience_s=PATIENCE_S)
    stage.cluster.api.patch(f"{OWN_PODS}/{keeper}", {"metadata": {"annotations": {DEVICE: "GPU-0", TOTAL: "0"}}})
    succeed(stage, sharing)
    stage.cluster.api.until(OWN_PODS, lambda items: keeper not in items, patience_s=PATIENCE_S)


def is_ready_keeper(one: Object) -> bool:
    return RESERVATION in one["metadata"].get("labels", {}) and condition(one, "Ready") == "True"


def that_waits_for_nodes(stage: Stage) -> None:
    """Pods stand in for it, in Swell's own namespace, until nobody waits any more."""

    def standing(items: dict[str, Object]) -> list[str]:
        found = [one for one in items.values() if STAND_IN in one["metadata"].get("labels", {})]
        return [condition(one, "PodScheduled") for one in found]

    [waiting] = stage.submit(in_ml(job("waits", "true", count=1, on={"type": "kwok", "pool": "none"})))
    stage.cluster.api.until(OWN_PODS, lambda items: standing(items) == ["False"], patience_s=PATIENCE_S)
    stage.said("cancel", str(waiting))
    stage.cluster.api.until(OWN_PODS, lambda items: standing(items) == [], patience_s=PATIENCE_S)


def that_is_resized(stage: Stage) -> None:
    """Of a gang in our own words the pods are made again, and what was theirs is given to the new ones.

    Its Secret and its Service have one more owner here, so that they are still there then.
    """
    gang = stage.server.start(*IMAGE, "--tasks", "2..3", "--resize", "immediate", "--", "sleep", "1h")
    [training] = stage.submit(in_ml(elastic_pytorchjob("elastic", gpus_max=4, on=ON_KWOK)))
    for one in (gang, training):
        stage.until(one, "running")
    keep_for(stage, f"-{gang}")
    for one, width in ((gang, 2), (training, 2)):
        stage.said("scale", "--now", str(one), str(width))
        stage.server.until_true(
            one,
            lambda found, width=width: (found["state"], found["width"]) == ("running", width),
            patience_s=PATIENCE_S,
        )
    stage.said("cancel", str(gang), str(training))


def that_takes_the_room_of_another(stage: Stage) -> None:
    """By its PriorityClass, when the budgets of the other's pods allow it."""
    api = stage.cluster.api
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    api.apply({**urgent, "value": 1000})
    ours = {"on": ON_KWOK, "gpus": 8, "schedulerName": "swell"}
    api.apply(*(pod(f"low-{number}", "true", **ours) for number in range(2)), namespace=ML)
    api.until(PODS, lambda items: all("nodeName" in items[f"low-{number}"]["spec"] for number in range(2)))
    api.apply(pod("high", "true", priorityClassName="urgent", **ours), namespace=ML)
    api.until(PODS, lambda items: "nodeName" in items["high"]["spec"], patience_s=PATIENCE_S)
    left = api.until(PODS, lambda items: sum(name.startswith("low-") for name in items) == 1)
    for name in ("high", *(name for name in left if name.startswith("low-"))):
        api.delete(f"{PODS}/{name}")


def keep_for(stage: Stage, ending: str) -> None:
    api = stage.cluster.api
    account = api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default")["metadata"]
    keeper = {"apiVersion": "v1", "kind": "ServiceAccount", "name": account["name"], "uid": account["uid"]}
    for resource in ("secrets", "services"):
        path = f"/api/v1/namespaces/{NAMESPACE}/{resource}"
        [one] = [item for item in api.get(path)["items"] if item["metadata"]["name"].endswith(ending)]
        owners = [*one["metadata"]["ownerReferences"], keeper]
        api.patch(f"{path}/{one['metadata']['name']}", {"metadata": {"ownerReferences": owners}})


def that_is_cancelled(stage: Stage) -> None:
    """Of a job that is deleted nothing is left, whatever it was."""
    jobs = stage.submit(
        *map(
            in_ml,
            [
                pod("stopped", "true", on=ON_KWOK),
                job("stopped", "true", count=1, on=ON_KWOK),
                jobset("stopped-set", "true", count=1, on=ON_KWOK),
                pytorchjob("stopped", "true", "true", workers=1, on=ON_KWOK),
            ],
        )
    )
    for one in jobs:
        stage.until(one, "running")
    stage.said("cancel", *map(str, jobs))
    for one in jobs:
        stage.until(one, "cancelled")
    stage.said("delete", *map(str, jobs))
    for path in (PODS, JOBS, JOBSETS, PYTORCHJOBS):
        stage.cluster.api.until(
            path, lambda items: not [name for name in items if name.startswith("stopped")], patience_s=PATIENCE_S
        )


def in_ml(document: Object) -> Object:
    document["metadata"]["namespace"] = ML
    return document


def succeed(stage: Stage, *jobs: int) -> None:
    for one in jobs:
        stage.until(one, "succeeded")
