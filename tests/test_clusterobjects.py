"""What a cluster's objects may be called, and where they may be: asked before a job is accepted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.conftest import access_to
from engines.kubernetes.keeping import PATIENCE_S
from engines.kubernetes.test_deleted import SPECS, VERSIONS
from engines.kubernetes.test_unreadable import OPERATORS
from store.jobs import Clock, end
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.objects.objects import JobPlaces
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.errors import Conflict, Rejected
from swell.manifests import Context, Manifest, read_manifests
from swell.model.job import JobId, JobState
from swell.server.cluster_objects import ClusterObjects
from swell.store import NewJob, Store, open_store

Document = dict[str, Any]
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "command": ["true"]}]}
KINDS = {**{kind: (VERSIONS[kind], spec) for kind, spec in SPECS.items()}, "Pod": ("v1", POD)}
PLURALS = {
    "Job": "jobs.batch",
    "JobSet": "jobsets.jobset.x-k8s.io",
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "Pod": "pods",
}


class World:
    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder / "token")
        self.server.kinds |= OPERATORS
        self.port = ApiClient(access_to(self.server), answer_s=5.0)
        self.cluster = Cluster(self.port, lambda *_: None)
        self.store: Store = open_store(folder / "swell.db", Clock())
        self.objects = ClusterObjects(self.store, self.port, self.cluster, JobPlaces("jobs", "swell"))

    def accept(self, *documents: Document) -> list[JobId]:
        """As the API does."""
        manifests = [read(document) for document in documents]
        self.objects.try_out(manifests)
        jobs = [NewJob(one.spec, "ann", {}, None, one.document) for one in manifests]
        return [job.id for job in self.store.accept(jobs).result()]

    def create(self, document: Document, job: JobId | None, **metadata: Any) -> None:
        """Its object is there; of no job: somebody else has made it."""
        labels = {} if job is None else {"swell.dev/job": str(job), "swell.dev/store": self.store.id}
        found = document["metadata"]
        made = {**document, "metadata": {**found, "labels": labels, **metadata}}
        plural = PLURALS[document["kind"]].partition(".")[0]
        self.server.storage.create(plural, (found["namespace"], found["name"]), made)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    assert made.cluster.start(PATIENCE_S) is None
    yield made
    made.cluster.stop()
    made.port.close()
    made.store.close()
    made.server.close()


def of(kind: str, name: str | None = "pytorch", namespace: str | None = "ml") -> Document:
    api_version, spec = KINDS[kind]
    metadata = {"name": name, "namespace": namespace}
    given = {key: value for key, value in metadata.items() if value is not None}
    return {"apiVersion": api_version, "kind": kind, "metadata": given, "spec": copy.deepcopy(spec)}


def read(document: Document) -> Manifest:
    [manifest] = read_manifests(document, Context(workdir="/", on_cluster=True))
    return manifest


def taken(kind: str, first: str, owner: str = "") -> str:
    return (
        f'{PLURALS[kind]} "pytorch" already exists in namespace "ml"{owner}; give this one another metadata.name '
        f"(--suffix adds to it), or write metadata.generateName: pytorch- to have one chosen, or end the first: {first}"
    )


EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@EVERY_KIND
def test_a_name_that_a_waiting_job_has_is_refused(kind: str, world: World) -> None:
    """`pytorch` became `pytorch-8`, and its MASTER_ADDR still named the first: two trainings met."""
    [job] = world.accept(of(kind))
    with pytest.raises(Conflict) as refused:
        world.accept(of(kind))
    assert str(refused.value) == taken(kind, f"swell cancel {job}, or wait until it has ended", f" as job {job}")
    assert len(world.store.active()) == 1


@EVERY_KIND
def test_a_name_that_somebody_elses_object_has_is_refused(kind: str, world: World) -> None:
    world.create(of(kind), None)
    with pytest.raises(Conflict) as refused:
        world.accept(of(kind))
    assert str(refused.value) == taken(kind, f"kubectl delete {kind.lower()} pytorch -n ml")


@EVERY_KIND
def test_another_name_another_namespace_and_a_name_that_is_left_to_us_are_taken(kind: str, world: World) -> None:
    world.accept(of(kind))
    world.create(of(kind, "there"), None)
    chosen = of(kind, None)
    chosen["metadata"]["generateName"] = "pytorch-"
    assert (
        len(world.accept(of(kind, "other"), of(kind, namespace="hpc"), of(kind, "there", "hpc"), chosen, chosen)) == 5
    )


@EVERY_KIND
def test_what_an_ended_job_has_left_makes_way(kind: str, world: World) -> None:
    """The same file is submitted again and again; its object is removed when the next one starts."""
    [job] = world.accept(of(kind))
    world.create(of(kind), job)
    end(world.store, job, 5.0, JobState.FAILED)
    assert len(world.accept(of(kind))) == 1


def test_so_does_what_is_being_deleted(world: World) -> None:
    world.create(of("JobSet"), None, deletionTimestamp="2026-01-01T00:00:00Z")
    assert len(world.accept(of("JobSet"))) == 1


ENDED: dict[str, Document] = {
    "Job": {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    "JobSet": {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    "PyTorchJob": {
        "conditions": [{"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    },
    "Pod": {"phase": "Failed"},
}


@EVERY_KIND
def test_what_somebody_else_made_and_has_ended_is_replaced_if_that_is_asked_for(kind: str, world: World) -> None:
    world.create({**of(kind), "status": ENDED[kind]}, None, uid="old")
    with pytest.raises(Conflict) as refused:
        world.accept(of(kind))
    assert str(refused.value) == (
        f'{PLURALS[kind]} "pytorch" already exists in namespace "ml" and has ended; add --replace to delete it first, '
        "or give this one another metadata.name (--suffix adds to it), or write metadata.generateName: pytorch- to "
        "have one chosen"
    )
    again = read(of(kind))
    world.objects.try_out([again], replaces=True)
    [found] = world.objects.ended([again])
    world.objects.delete(found)
    assert world.objects.ended([again]) == []
    assert world.accept(of(kind)) == [1]


@EVERY_KIND
def test_what_runs_or_is_of_a_job_of_ours_is_never_replaced(kind: str, world: World) -> None:
    """What a job of ours has left makes way by itself, when the new job begins."""
    world.create(of(kind), None)
    with pytest.raises(Conflict):
        world.objects.try_out([read(of(kind))], replaces=True)
    [job] = world.accept(of(kind, "ours"))
    with pytest.raises(Conflict):
        world.objects.try_out([read(of(kind, "ours"))], replaces=True)
    world.create({**of(kind, "ours"), "status": ENDED[kind]}, job)
    assert (
        world.objects.ended(
            [read(of(kind)), read(of(kind, "ours")), read(of(kind, None) | {"metadata": {"generateName": "pytorch-"}})]
        )
        == []
    )


def test_two_of_a_name_in_one_file_are_refused(world: World) -> None:
    with pytest.raises(Rejected, match="JobSet ml/pytorch is submitted twice"):
        world.accept(of("JobSet"), of("JobSet"))
    assert len(world.accept(of("JobSet"), of("Job"))) == 2, "names are a kind's own"


def test_jobs_in_our_own_notation_may_have_one_name(world: World) -> None:
    native = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"command": ["true"]}}
    native["spec"] = {"command": ["true"], "image": "i"}
    assert len(world.accept(native, native)) == 2
    assert len(world.accept(native)) == 1


# -- where -----------------------------------------------------------------------------------------------------------


@EVERY_KIND
def test_nothing_is_made_where_the_servers_secrets_are(kind: str, world: World) -> None:
    """Whoever could submit there could mount the administrator's token."""
    with pytest.raises(Rejected) as refused:
        world.accept(of(kind, namespace="swell"))
    assert str(refused.value) == (
        "jobs are not made in namespace 'swell', which is Swell's own: whoever may create pods there can mount its "
        "secrets; write metadata.namespace with another, or leave it out for 'jobs' (jobsNamespace in Swell's chart)"
    )


def test_what_names_no_namespace_goes_to_that_of_jobs(world: World) -> None:
    asked = [world.objects.created(read(of(kind, namespace=None)))[0].namespace for kind in KINDS]
    assert asked == ["jobs"] * len(KINDS)


# -- a volume of its own --------------------------------------------------------------------------------------------


def with_volume(name: str | None, **metadata: str) -> Document:
    found = of("Job", name)
    return {**found, "metadata": {**found["metadata"], "annotations": {"swell.dev/shared-volume": "1G"}, **metadata}}


def test_who_submits_a_job_with_a_volume_of_its_own_must_be_allowed_to_create_a_claim(world: World) -> None:
    manifest = read(with_volume("a"))
    assert [str(one) for one in world.objects.created(manifest)] == [
        "Job (batch/v1) in namespace 'ml'",
        "PersistentVolumeClaim (v1) in namespace 'ml'",
    ]


def test_a_claim_that_somebody_else_has_is_not_taken_for_the_jobs(world: World) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a-shared", "namespace": "ml"}}
    world.server.kinds["v1"]["persistentvolumeclaims"] = "PersistentVolumeClaim"
    world.server.storage.create("persistentvolumeclaims", ("ml", "a-shared"), claim)
    with pytest.raises(Conflict, match='persistentvolumeclaims "a-shared" already exists in namespace "ml"'):
        world.accept(with_volume("a"))


def test_a_volume_of_its_own_needs_a_name_that_its_pods_can_write(world: World) -> None:
    said = r"swell\.dev/shared-volume needs metadata\.name, by which the pods name the claim"
    with pytest.raises(Rejected, match=said):
        world.accept(with_volume(None, generateName="a-"))


def test_a_pod_has_no_volume_of_its_own(world: World) -> None:
    """It was tried out, and never made."""
    alone = of("Pod", "a")
    alone["metadata"] = {**alone["metadata"], "annotations": {"swell.dev/shared-volume": "1G"}}
    with pytest.raises(Rejected, match="makes a volume for the pods of an object, and a Pod is one by itself"):
        world.accept(alone)


@pytest.mark.parametrize(
    ("what", "jobs", "home", "own", "places"),
    [
        ("on a laptop", None, None, "ml", JobPlaces("ml")),
        ("on a laptop, with one for jobs", "jobs", None, "ml", JobPlaces("jobs", "ml")),
        ("in a pod, as the chart has it", "jobs", "swell", "swell", JobPlaces("jobs", "swell")),
        ("in a pod, and nobody said where", None, "swell", "swell", JobPlaces("swell", "swell")),
    ],
)
def test_where_jobs_are_made_follows_from_where_the_server_is(
    what: str, jobs: str | None, home: str | None, own: str, places: JobPlaces
) -> None:
    assert JobPlaces.of(jobs, home, own) == places, what


def test_a_server_does_not_start_with_its_own_namespace_for_jobs() -> None:
    with pytest.raises(Rejected, match="the namespace for jobs is 'swell', which is the server's own"):
        JobPlaces.of("swell", "swell", "swell")


def test_objects_that_an_earlier_server_made_at_home_are_still_its_jobs() -> None:
    places = JobPlaces("jobs", "swell")
    nameless, named = {"metadata": {}}, {"metadata": {"namespace": "ml"}}
    found = [(places.may_hold(one, where)) for one in (nameless, named) for where in ("jobs", "swell", "ml", "else")]
    assert found == [True, True, False, False, False, False, True, False]
