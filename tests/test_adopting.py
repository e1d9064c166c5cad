"""What came by kubectl: what Swell can do for it, and what not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engines.kubernetes.pieces import make_pod
from specs import spec
from swell.adopted import read_object, read_pods, refuse_shares, rigid
from swell.adopting import Adopter
from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.picture import Owner, PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.resources import Resource
from swell.errors import Rejected, Unavailable
from swell.model.job import JobId, JobSpec, Role
from swell.model.resources import Resources
from swell.podgroups import Group
from swell.store import JobRecord, NewJob

SHARES = spec(roles=(Role("worker", ("true",), Resources(1000, 0, 0, 6144), 1),))
WHOLE = spec(roles=(Role("worker", ("true",), Resources(1000, 0, 1, 6144), 1),))


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet", "PodGroup"])
def test_pods_that_are_there_cannot_be_told_which_gpu_they_share(kind: str) -> None:
    with pytest.raises(Rejected) as refused:
        refuse_shares(kind, SHARES)
    assert str(refused.value) == (
        f"swell.dev/gpu-memory asks for a share of a GPU, which a {kind} can have only through `swell submit -f`: "
        "nothing can be added to pods that kubectl has made; submit it, or leave the annotation out and ask for "
        "nvidia.com/gpu"
    )


def test_a_pytorchjob_is_suspended_and_changed_and_whole_gpus_need_nothing() -> None:
    assert [is_refused("PyTorchJob", SHARES), is_refused("Pod", WHOLE)] == [False, False]


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
def test_what_cannot_be_made_again_has_one_width_and_says_so(kind: str) -> None:
    elastic = spec(width_min=1, width_max=4, notes=("before",))
    note = (
        f"it came by kubectl as a {kind}, which Swell cannot resize: it runs at 1, and the range "
        "1..4 has no effect; to have it resized, delete it with kubectl and submit it with `swell submit -f`"
    )
    assert rigid(kind, elastic) == spec(notes=("before", note))


def test_a_pytorchjob_keeps_its_range_and_what_asks_for_none_is_told_nothing() -> None:
    elastic = spec(width_min=1, width_max=4)
    assert [rigid("PyTorchJob", elastic), rigid("Job", spec())] == [elastic, spec()]


def test_a_gang_of_a_job_has_the_size_that_it_was_made_with() -> None:
    """It ran at the least of its range: the user's own object was suspended, and a task fewer was in it."""
    template = {
        "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "ring"}},
        "spec": {"schedulerName": "swell", "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
    }
    made, _ = read_object(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "team", "uid": "u", "annotations": {"swell.dev/tasks": "2..4"}},
            "spec": {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template},
        },
        {},
        None,
    )
    note = (
        "it came by kubectl as a Job, which Swell cannot resize: it runs at 3, and the range 2..4 has no effect; "
        "to have it resized, delete it with kubectl and submit it with `swell submit -f`"
    )
    assert (made.width_min, made.width_max, [role.count for role in made.roles], made.notes) == (3, 3, [3], (note,))


def is_refused(kind: str, asked: JobSpec) -> bool:
    try:
        refuse_shares(kind, asked)
    except Rejected:
        return True
    return False


# -- whose what kubectl applied is -----------------------------------------------------------------------------------


class World:
    """A cluster, the jobs that were made of it, and another server that may take in: all in the test's hands."""

    def __init__(self) -> None:
        self.there: dict[str, PodSeen] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.made: dict[str, SimpleNamespace] = {}  # by key
        self.begun: set[JobId] = set()
        self.is_ours = True
        self.highest: dict[str, int] = {"team": 0}  # priority by namespace; none: no limit
        self.failures: list[Exception] = []  # of what is to be recorded next
        self.resources = {"Job": Resource("batch", "v1", "jobs", "Job")}
        cluster, port = cast(Cluster, self), cast(Port, self)
        self.adopter = Adopter(port, cluster, self, self.begun.__contains__, dict, self, "our-store", self.highest.get)

    def look(self) -> dict[str, tuple[JobId, str]]:
        """Key → job, and by whom it was cancelled."""
        self.adopter._let_go_at = 0.0
        self.adopter.look()
        return {key: (job.id, job.reason_evidence.get("by", "")) for key, job in self.made.items()}

    # -- the cluster

    def waiting_pods(self) -> list[PodSeen]:
        return [pod for pod in self.there.values() if pod.document is not None and not pod.node]

    def pods(self, uids: Sequence[str]) -> list[PodSeen]:
        return [self.there[uid] for uid in uids if uid in self.there]

    def root(self, pod: PodSeen) -> str:
        return pod.uid if pod.owner is None else pod.owner.uid

    def object(self, kind: str, namespace: str, name: str) -> object:
        found = self.objects.get(name)
        return None if found is None else SimpleNamespace(version=found["metadata"].get("resourceVersion", ""))

    def has_object(self, kind: str, namespace: str, name: str, *, uid: str) -> bool:
        return name in self.objects

    def get(self, resource: object, name: str, namespace: str) -> dict[str, Any]:
        return self.objects[name]

    # -- the controller

    def take_in(
        self, jobs: Mapping[str, NewJob], known: Callable[[list[JobRecord | None]], None], *, origin: str
    ) -> Future[list[JobRecord | None]]:
        for key, job in jobs.items():
            made = SimpleNamespace(id=len(self.made) + 1, reason_evidence={}, spec=job.spec)
            self.made.setdefault(key, made)
        known([cast(JobRecord, self.made[key]) for key in jobs])
        return done([])

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str) -> Future[None]:
        if self.failures:
            raise self.failures.pop(0)
        return self.give_up(jobs, by=by, origin=origin)

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str) -> Future[None]:
        for job in self.made.values():
            if job.id in jobs:
                job.reason_evidence = {"by": by}
        return done(None)

    # -- who takes in

    def look_now_and_then(self) -> None: ...

    def takes(self, namespace: str) -> bool:
        return self.is_ours

    def leaves(self, namespace: str) -> bool:
        return not self.is_ours


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def document(name: str, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **metadata},
        "spec": pod,
    }


def bare(number: int, **changes: Any) -> PodSeen:
    return make_pod(number, **{"owner": None, "document": document(f"train-worker-{number}"), **changes})


def test_a_server_takes_in_only_what_is_its_to_take_in() -> None:
    world = World()
    world.there = {"pod-0": bare(0)}
    world.is_ours = False
    assert world.look() == {}
    world.is_ours = True
    assert world.look() == {"kubernetes:pod-0": (1, "")}


def test_what_has_not_begun_is_left_to_the_server_that_takes_in_by_now_and_is_another_job_when_it_comes_back() -> None:
    world = World()
    world.there = {"pod-0": bare(0), "pod-1": bare(1)}
    world.look()
    world.begun.add(1)
    world.is_ours = False
    assert world.look() == {"kubernetes:pod-0": (1, ""), "kubernetes:pod-1": (2, "another scheduler")}
    assert [world.adopter.job_of(pod) for pod in world.there.values()] == [1, None]
    world.is_ours = True
    world.look()  # finds what became of it
    jobs = world.look()
    assert jobs["kubernetes:pod-1:1"] == (3, "")
    assert world.adopter.job_of(world.there["pod-1"]) == 3


def test_a_pod_that_somebody_else_has_placed_is_no_job_of_ours_any_more() -> None:
    world = World()
    world.there = {"pod-0": bare(0)}
    world.look()
    world.there = {"pod-0": bare(0, node="n1", document=None)}
    assert world.look() == {"kubernetes:pod-0": (1, "another scheduler")}
    assert world.look() == {"kubernetes:pod-0": (1, "another scheduler")}


def test_what_was_deleted_before_it_began_is_cancelled_also_when_that_cannot_be_recorded_at_once() -> None:
    """The disk was full at that moment, and nobody tried again."""
    world = World()
    world.there = {"pod-0": bare(0)}
    world.look()
    world.there = {}
    world.failures = [Unavailable("the disk is full")]
    with pytest.raises(Unavailable):
        world.look()
    assert world.look() == {"kubernetes:pod-0": (1, "kubectl")}


def test_an_object_that_runs_as_a_job_of_another_server_is_left_alone() -> None:
    """Its pods wait for a moment whenever it is resized."""
    world = World()
    made = document("train", uid="job-uid", annotations={"swell.dev/server": "their-store"})
    template = {"template": {"spec": made["spec"]}}
    world.objects = {"train": {**made, "apiVersion": "batch/v1", "kind": "Job", "spec": template}}
    world.there = {"pod-0": make_pod(0, owner=Owner("Job", "train", "job-uid"), document=document("train-0"))}
    assert world.look() == {}
    world.objects["train"]["metadata"]["annotations"] = {"swell.dev/server": "our-store"}
    assert world.look() == {"kubernetes:job-uid": (1, "")}


# -- what cannot be taken in ---------------------------------------------------------------------------------------


def annotated(number: int, version: int = 1, **annotations: str) -> PodSeen:
    named = {f"swell.dev/{name}": text for name, text in annotations.items()}
    metadata = {"uid": f"pod-{number}", "resourceVersion": str(version), "annotations": named}
    return bare(number, document=document(f"train-worker-{number}", **metadata))


def test_what_is_refused_is_read_again_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """Who corrected the annotation that Swell did not take had to delete the pod, too."""
    world = World()
    world.there = {"pod-0": annotated(0, time="soon"), "pod-1": annotated(1)}
    assert world.look() == {"kubernetes:pod-1": (1, "")}
    assert world.adopter.is_refused(world.there["pod-0"])
    world.there["pod-0"] = annotated(0, 2, time="soon")  # we have written on it ourselves that it is refused
    assert world.look() == {"kubernetes:pod-1": (1, "")}
    assert sum("is not for us" in message for message in caplog.messages) == 1
    world.there["pod-0"] = annotated(0, 3, time="1h")
    assert world.look() == {"kubernetes:pod-1": (1, ""), "kubernetes:pod-0": (2, "")}
    assert world.adopter.why_not(world.there["pod-0"]) is None


def test_what_we_did_not_think_of_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that came by kubectl was taken in any more, in any namespace."""
    world = World()
    world.there = {"pod-0": annotated(0), "pod-1": annotated(1)}

    def stumble(group: Group, *rest: Any) -> tuple[JobSpec, dict[str, Any]]:
        if group.name == "train-worker-0":
            raise RecursionError("too deep")
        return read_pods(group, *rest)

    monkeypatch.setattr("swell.adopting.read_pods", stumble)
    assert world.look() == {"kubernetes:pod-1": (1, "")}
    assert world.adopter.why_not(world.there["pod-0"]) == "it cannot be read: RecursionError: too deep"


# -- how urgent it may be --------------------------------------------------------------------------------------------

NOTE = (
    "swell.dev/priority asks for 1000, but the highest that namespace 'team' may ask for is 0, so it waits with 0; "
    "to have more, ask an administrator (limits in Swell's config.json)"
)


@pytest.mark.parametrize(
    ("what", "asked", "highest", "priority", "notes"),
    [
        ("more than it may", "1000", 0, 0, (NOTE,)),
        ("as much as it may", "1000", 1000, 1000, ()),
        ("less", "-5", 0, -5, ()),
        ("nobody limits it", "1000", None, 1000, ()),
    ],
)
def test_a_priority_by_kubectl_is_limited_as_one_through_the_api(
    what: str, asked: str, highest: int | None, priority: int, notes: tuple[str, ...]
) -> None:
    """Anybody with a pod of their own could overtake everybody."""
    world = World()
    world.highest = {} if highest is None else {"team": highest}
    world.adopter._priority_max = world.highest.get
    world.there = {"pod-0": annotated(0, priority=asked)}
    world.look()
    [made] = world.made.values()
    assert (made.spec.priority, made.spec.notes) == (priority, notes), what


def test_a_priority_class_is_the_clusters_to_allow() -> None:
    world = World()
    pod = annotated(0)
    cast(dict[str, Any], pod.document)["spec"]["priority"] = 500
    world.there = {"pod-0": pod}
    world.look()
    [made] = world.made.values()
    assert (made.spec.priority, made.spec.notes) == (500, ())


def test_a_priority_on_an_object_is_limited_as_one_on_a_pod() -> None:
    made = document("train", uid="u", annotations={"swell.dev/priority": "1000"})
    job = {**made, "apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": made["spec"]}}}
    read, _ = read_object(job, {}, 0)
    assert (read.priority, read.notes) == (0, (NOTE,))
