"""Room follows pods: whoever deletes an object with kubectl, in whatever way, its GPUs are free when its pods are gone.

`kubectl delete` removes the object first and leaves the rest to the garbage collector (background), or has the object
wait for what it made (foreground), or takes the owner out of what it made and leaves that alone (orphan).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swell.model.job import AttemptId

from .apiserver import ApiServer
from .driving import Drive
from .keeping import until
from .test_unreadable import OPERATORS

Document = dict[str, Any]
FIRST = AttemptId(7, 1)
PLURALS = {"Job": "jobs", "JobSet": "jobsets", "PyTorchJob": "pytorchjobs"}
VERSIONS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "PyTorchJob": "kubeflow.org/v1"}
AT = "2026-01-01T00:00:00Z"
CONTAINER = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
TEMPLATE = {"spec": {"schedulerName": "swell", "containers": [CONTAINER]}}
JOB_SPEC = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": TEMPLATE}
SPECS: dict[str, Document] = {
    "Job": JOB_SPEC,
    "JobSet": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": JOB_SPEC}}]},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
}


class Made:
    """An object that kubectl has made, with what its controller has made of it: two pods that run on node n1."""

    def __init__(self, server: ApiServer, kind: str, *, tells_uid: bool = True) -> None:
        self.storage, self.kind = server.storage, kind
        annotations = {"swell.dev/attempt": str(FIRST), "swell.dev/server": "teststore"}
        document = {"apiVersion": VERSIONS[kind], "kind": kind, "spec": SPECS[kind]}
        made = self._create(PLURALS[kind], "train", document, annotations=annotations)
        self.uid = str(made["metadata"]["uid"])
        self.job = self._create_job() if kind == "JobSet" else None
        self.pods = [self._create_pod(rank, tells_uid)["metadata"] for rank in range(2)]

    def _create(self, plural: str, name: str, document: Document, **metadata: Any) -> Document:
        return self.storage.create(
            plural, ("ml", name), {**document, "metadata": {"creationTimestamp": AT, **metadata}}
        )

    def _create_job(self) -> str:
        owners = [{"kind": "JobSet", "name": "train", "uid": self.uid, "controller": True}]
        document = {"apiVersion": "batch/v1", "kind": "Job", "spec": JOB_SPEC}
        made = self._create("jobs", f"train-w-{self.uid}", document, ownerReferences=owners)
        return str(made["metadata"]["name"])

    def _create_pod(self, rank: int, tells_uid: bool) -> Document:
        labels = {"batch.kubernetes.io/job-completion-index": str(rank)}
        owner = {"kind": self.kind, "name": "train", "uid": self.uid, "controller": True}
        if self.job is not None:
            labels |= {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": "w"}
            labels |= {"jobset.sigs.k8s.io/job-index": "0"}
            labels |= {"jobset.sigs.k8s.io/jobset-uid": self.uid} if tells_uid else {}
            found = self.storage.get("jobs", ("ml", self.job))["metadata"]
            owner = {"kind": "Job", "name": self.job, "uid": found["uid"], "controller": True}
        if self.kind == "PyTorchJob":
            labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(rank)}
        state = {"name": "main", "state": {"running": {"startedAt": AT}}}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {**TEMPLATE["spec"], "nodeName": "n1"},
            "status": {"phase": "Running", "containerStatuses": [state]},
        }
        return self._create("pods", f"train-{self.uid}-{rank}", document, labels=labels, ownerReferences=[owner])

    def reference(self) -> Document:
        metadata = {"name": "train", "namespace": "ml", "uid": self.uid}
        return {"apiVersion": VERSIONS[self.kind], "kind": self.kind, "metadata": metadata}

    # -- what kubectl and the garbage collector do

    def mark(self, plural: str, name: str, **metadata: Any) -> None:
        found = copy.deepcopy(self.storage.get(plural, ("ml", name)))
        found["metadata"] = {**found["metadata"], **metadata}
        self.storage.update(plural, ("ml", name), found)

    def delete_object(self) -> None:
        self.storage.delete(PLURALS[self.kind], ("ml", "train"), {})

    def delete_jobs(self) -> None:
        if self.job is not None:
            self.storage.delete("jobs", ("ml", self.job), {})

    def delete_pods(self) -> None:
        for pod in self.pods:
            self.mark("pods", pod["name"], deletionTimestamp=AT)
            self.storage.delete("pods", ("ml", pod["name"]), {})

    def orphan(self) -> None:
        for pod in self.pods if self.job is None else ():
            self.mark("pods", pod["name"], ownerReferences=[])
        if self.job is not None:
            self.mark("jobs", self.job, ownerReferences=[])
        self.delete_object()


@pytest.fixture
def drive(server: ApiServer, tmp_path: Path) -> Iterator[Drive]:
    with driven(server, tmp_path) as drive:
        yield drive


def driven(server: ApiServer, folder: Path) -> Drive:
    server.kinds |= OPERATORS
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": AT}
    status = {"conditions": [ready], "allocatable": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4", "pods": "9"}}
    if not server.storage.state("nodes"):
        server.storage.create("nodes", ("", "n1"), {"apiVersion": "v1", "kind": "Node", "status": status})
    kubeconfig = folder / "kubeconfig"
    named = {"name": "test"}
    config = {
        "current-context": "test",
        "clusters": [{**named, "cluster": {"server": server.url}}],
        "users": [{**named, "user": {"tokenFile": str(server.token_file)}}],
        "contexts": [{**named, "context": {"cluster": "test", "user": "test"}}],
    }
    kubeconfig.write_text(json.dumps(config))
    return Drive(kubeconfig, folder)


def run(drive: Drive, made: Made, **changes: Any) -> None:
    places = {0: ("n1", 1, 0), 1: ("n1", 1, 0)}
    drive.start(FIRST, made.reference(), places, **{"has_begun": True, **changes})


def finish(drive: Drive) -> None:
    """As the controller does when nothing of an attempt is left."""
    drive.until(lambda: drive.is_finished(FIRST))
    drive.engine.forget(FIRST)


def free(drive: Drive) -> int:
    """GPUs that nobody else uses, and no attempt of ours holds."""
    held = 0 if drive.is_finished(FIRST) else 2
    return sum(device.outsiders_mib == 0 for device in drive.nodes["n1"].devices) - held


def deletes(server: ApiServer) -> list[str]:
    return [request.path for request in server.seen if request.method == "DELETE"]


def stop(drive: Drive) -> None:
    """As the controller does when it hears that the object was deleted; which it must hear."""
    drive.until(lambda: [cause for _, cause in drive.ends(FIRST).values()] == ["deleted", "deleted"])
    drive.engine.stop(FIRST, 30.0, 2)


KINDS = pytest.mark.parametrize("kind", PLURALS)


@KINDS
def test_the_gpu_of_a_rank_that_has_succeeded_is_free_while_the_others_run(
    kind: str, server: ApiServer, drive: Drive
) -> None:
    """Seen as such also when somebody else takes it, and the rank that runs keeps its own."""
    made = Made(server, kind)
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    done = copy.deepcopy(server.storage.get("pods", ("ml", made.pods[0]["name"])))
    end = {"exitCode": 0, "startedAt": AT, "finishedAt": AT}
    done["status"] = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
    server.storage.update("pods", ("ml", made.pods[0]["name"]), done)
    drive.until(lambda: drive.emptied.get(FIRST) == (0,))
    limits = {"limits": {"nvidia.com/gpu": "3"}}
    foreign = {"containers": [{**CONTAINER, "resources": limits}], "nodeName": "n1"}
    server.storage.create("pods", ("ml", "foreign"), {"spec": foreign, "status": {"phase": "Running"}})

    def theirs() -> list[str]:
        return [device.id for device in drive.nodes["n1"].devices if device.outsiders_mib]

    drive.until(lambda: theirs() == ["gpu-0", "gpu-2", "gpu-3"])


@KINDS
@pytest.mark.parametrize("way", ["background", "foreground", "pods first"])
def test_gpus_are_free_when_the_pods_of_a_deleted_object_are_gone(
    way: str, kind: str, server: ApiServer, drive: Drive
) -> None:
    """A JobSet was deleted with kubectl; its job held its GPUs until somebody cancelled it."""
    made = Made(server, kind)
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    if way == "foreground":
        made.mark(PLURALS[kind], "train", deletionTimestamp=AT, deletionGracePeriodSeconds=0)
    if way == "background":
        made.delete_object()
        stop(drive)
        drive.look()
        assert free(drive) == 2, "as long as its pods run, they hold their room"
        made.delete_jobs()
        made.delete_pods()
    else:
        made.delete_pods()
        made.delete_jobs()
        made.delete_object()
        stop(drive)
    finish(drive)
    drive.until(lambda: free(drive) == 4)
    assert {task.problem for task in drive.tasks.values()} == {f"{kind} ml/train"}
    assert deletes(server) == []


@KINDS
def test_a_server_that_starts_after_the_object_was_deleted_gives_the_room_back_too(
    kind: str, server: ApiServer, tmp_path: Path
) -> None:
    made = Made(server, kind)
    made.delete_object()
    with driven(server, tmp_path) as drive:
        run(drive, made)
        drive.engine.stop(FIRST, 5.0, 1)
        drive.until(lambda: len(drive.runs) == 1)
        assert not drive.is_finished(FIRST)
        made.delete_jobs()
        made.delete_pods()
        drive.until(lambda: drive.is_finished(FIRST))


@KINDS
def test_pods_that_were_kept_go_on_as_somebody_elses(kind: str, server: ApiServer, drive: Drive) -> None:
    """`kubectl delete --cascade=orphan` means that they run on."""
    made = Made(server, kind)
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    made.orphan()
    stop(drive)
    finish(drive)
    drive.until(lambda: free(drive) == 2)
    assert deletes(server) == []
    made.delete_pods()
    drive.until(lambda: free(drive) == 4)


def test_pods_of_a_jobset_are_seen_to_be_kept_when_its_deletion_is_seen_first(server: ApiServer, drive: Drive) -> None:
    """Jobs and JobSets are watched apart. The Job's change came second, nobody looked again, and the room was held."""
    made = Made(server, "JobSet")
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    made.delete_object()
    stop(drive)
    drive.look()
    assert not drive.is_finished(FIRST)
    made.mark("jobs", str(made.job), ownerReferences=[])
    finish(drive)
    drive.until(lambda: free(drive) == 2)


def test_pods_that_end_after_another_of_their_jobsets_name_is_seen_hold_no_room(
    server: ApiServer, drive: Drive
) -> None:
    """Pods and JobSets are watched apart. Pods that tell no uid were taken for the other one's, and nobody looked."""
    made = Made(server, "JobSet", tells_uid=False)
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    made.delete_object()
    stop(drive)
    drive.look()
    assert not drive.is_finished(FIRST)
    another = {"apiVersion": VERSIONS["JobSet"], "kind": "JobSet", "spec": SPECS["JobSet"], "metadata": {}}
    uid = server.storage.create("jobsets", ("ml", "train"), another)["metadata"]["uid"]
    until(lambda: drive.engine.cluster.has_object("JobSet", "ml", "train", uid=uid))
    made.delete_jobs()
    made.delete_pods()
    finish(drive)
    drive.until(lambda: free(drive) == 4)
    assert deletes(server) == []


@pytest.mark.parametrize("tells_uid", [True, False], ids=["JobSet tells its uid", "it does not"])
def test_another_of_its_name_neither_keeps_its_room_nor_loses_its_pods(
    tells_uid: bool, server: ApiServer, drive: Drive
) -> None:
    """As `kubectl replace --force` does; both have pods with the name of one JobSet."""
    made = Made(server, "JobSet", tells_uid=tells_uid)
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    made.delete_object()
    stop(drive)
    made.delete_jobs()
    if not tells_uid:  # then they can only be told apart one after the other
        made.delete_pods()
    another = Made(server, "JobSet", tells_uid=tells_uid)
    until(lambda: len(drive.engine.cluster.pods([pod["uid"] for pod in another.pods])) == 2)
    if tells_uid:
        made.delete_pods()
    finish(drive)
    drive.until(lambda: free(drive) == 2)
    assert deletes(server) == []
    roots = [drive.engine.cluster.root(pod) for pod in drive.engine.cluster.pods([one["uid"] for one in another.pods])]
    assert roots == [another.uid, another.uid]


def test_the_labels_of_a_jobset_are_not_believed_in_another_namespace(server: ApiServer, drive: Drive) -> None:
    """Who writes them on a pod of their own would hide it from who counts what a node has left."""
    made = Made(server, "JobSet")
    run(drive, made)
    drive.until(lambda: drive.running(FIRST) == [0, 1])
    mine = copy.deepcopy(server.storage.get("pods", ("ml", made.pods[0]["name"])))
    mine["metadata"] = {"labels": mine["metadata"]["labels"], "creationTimestamp": AT}
    server.storage.create("pods", ("elsewhere", "mine"), mine)
    drive.until(lambda: free(drive) == 1)
