"""What came by kubectl: what Swell can do for it, and what not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engines.kubernetes.pieces import make_pod
from specs import spec
from swell.config import UserLimits
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.resources import Resource
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import JOB, RANK, Owner, PodSeen
from swell.engines.kubernetes.watch.unreadable import STORE
from swell.errors import Rejected, Unavailable
from swell.kubectl.adopted_objects import read_object, read_pods, refuse_shares, rigid
from swell.kubectl.adoption import FULL_S, Adopter
from swell.kubectl.pod_groups import PodGroup
from swell.manifests import Context, read_document
from swell.model.job import JobId, JobSpec, JobState, Role
from swell.model.member_loss import ON_MEMBER_LOST
from swell.model.quota import MIB, DiskUse, Quota
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.store import JobRecord, NewJob
from swell.store.quotas import refuse_jobs

GANG = "scheduling.x-k8s.io/pod-group"
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
        self.ending: set[str] = set()  # namespaces
        self.ended: dict[str, PodSeen] = {}  # those that had ended when they were deleted
        self.objects: dict[str, dict[str, Any]] = {}
        self.made: dict[str, SimpleNamespace] = {}  # by key
        self.begun: set[JobId] = set()
        self.is_ours = True
        self.highest: dict[str, int] = {"team": 0}  # priority by namespace; none: no limit
        self.queued: dict[str, int] = {}  # jobs that may wait, by namespace; none: no limit
        self.disks: dict[str, DiskUse] = {}  # by namespace; none: no limit
        self.not_given: set[str] = set()  # namespaces in which we may not bind pods
        self.time = 1000.0
        self.failures: list[Exception] = []  # of what is to be recorded next
        self.resources = {"Job": Resource("batch", "v1", "jobs", "Job")}
        cluster, port = cast(Cluster, self), cast(ApiClient, self)
        self.adopter = Adopter(
            port,
            cluster,
            self,
            self.begun.__contains__,
            self.record,
            dict,
            self,
            "our-store",
            lambda namespace: UserLimits(priority=self.highest.get(namespace), queued=self.queued.get(namespace)),
            lambda namespace: self.disks.get(namespace),
            lambda namespace: namespace not in self.not_given,
            lambda: self.time,
        )

    def look(self) -> dict[str, tuple[JobId, str]]:
        """Key → job, and by whom it was cancelled."""
        self.adopter._let_go_at = 0.0
        self.adopter.look()
        return {key: (job.id, job.cancel_requested_by or "") for key, job in self.made.items()}

    # -- the cluster

    def waiting_pods(self) -> list[PodSeen]:
        return [pod for pod in self.there.values() if pod.document is not None and not pod.node]

    def pods(self, uids: Sequence[str]) -> list[PodSeen]:
        return [self.there[uid] for uid in uids if uid in self.there]

    def pods_of_group(self, namespace: str, name: str) -> list[PodSeen]:
        return [pod for pod in self.there.values() if pod.labels.get(GANG) == name]

    def pods_of_job(self, key: tuple[str, str]) -> list[PodSeen]:
        return [pod for pod in self.there.values() if (pod.labels.get(STORE), pod.labels.get(JOB)) == key]

    def patch(self, resource: object, name: str, change: dict[str, Any], namespace: str) -> None:
        marks = change["metadata"]
        pod = self.there[marks["uid"]]
        labels = {**pod.labels, **marks["labels"]}
        self.there[pod.uid] = replace(pod, labels=labels, annotations=marks["annotations"], document=None)

    def departed(self, uid: str) -> PodSeen | None:
        return self.ended.get(uid)

    def is_ending(self, namespace: str) -> bool:
        return namespace in self.ending

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
        self, jobs: Mapping[str, NewJob], known: Callable[[list[JobRecord | None]], None], *, origin: str, quota: Quota
    ) -> Future[list[JobRecord | None]]:
        [owner] = {job.owner for job in jobs.values()}
        waiting = [one for one in self.made.values() if one.owner == owner and self._waits(one)]
        if quota.queued is not None:
            refuse_jobs(owner, len(waiting), sum(key not in self.made for key in jobs), quota.queued)
        for key, job in jobs.items():
            made = SimpleNamespace(id=len(self.made) + 1, cancel_requested_by=None, spec=job.spec, reason_code=None)
            made.owner = job.owner
            self.made.setdefault(key, made)
        known([cast(JobRecord, self.made[key]) for key in jobs])
        return done([])

    def cancel(self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str) -> Future[None]:
        if self.failures:
            raise self.failures.pop(0)
        return self.give_up(jobs, by=by, origin=origin)

    def _waits(self, made: SimpleNamespace) -> bool:
        return made.id not in self.begun and made.cancel_requested_by is None

    def record(self, job: JobId) -> JobRecord | None:
        found = next(made for made in self.made.values() if made.id == job)
        state = JobState.RUNNING if job in self.begun else JobState.QUEUED
        state = JobState.CANCELLED if found.cancel_requested_by or found.reason_code else state
        return cast(JobRecord, SimpleNamespace(state=state, reason_code=found.reason_code, spec=found.spec))

    def end_by_deletion(self, job: JobId) -> None:
        """The engine has seen that a pod of it was deleted."""
        next(made for made in self.made.values() if made.id == job).reason_code = Code.OBJECT_DELETED

    def give_up(self, jobs: Sequence[JobId], *, by: str, origin: str) -> Future[None]:
        for job in self.made.values():
            if job.id in jobs:
                job.cancel_requested_by = by
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


def test_of_a_gang_of_which_somebody_has_placed_one_the_others_are_told_what_becomes_of_them() -> None:
    """Their job was cancelled, and nothing said that they were another one."""
    world = World()
    world.there = gang(0, 1, 2)
    settle(world)
    world.there = {**running(0), **gang(1, 2)}
    assert settle(world) == [(1, [], "another scheduler"), (2, ["pod-1", "pod-2"], "")]
    notes = {job.id: job.spec.notes for job in world.made.values()}
    said = "job 1 was cancelled by another scheduler; its pods that are left and wait are this job now"
    assert notes == {1: (), 2: (said,)}


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


# -- members of a group that come, go and are replaced -----------------------------------------------------------------


def gang(*numbers: int, size: int = 3, **changes: Any) -> dict[str, PodSeen]:
    """Pods of a group that wait, by uid."""
    labels = {GANG: "gang", "fluence.group-size": str(size)}
    return {
        f"pod-{number}": bare(
            number, labels=labels, document=document(f"train-worker-{number}", labels=labels), **changes
        )
        for number in numbers
    }


def running(*numbers: int, **changes: Any) -> dict[str, PodSeen]:
    return {uid: replace(pod, node="n1", document=None) for uid, pod in gang(*numbers, **changes).items()}


def settle(world: World) -> list[tuple[JobId, list[str], str]]:
    """Look until nothing changes: each job, the pods it has by now, and by whom it was cancelled."""
    for _ in range(4):  # given up, found to be given up, made again, and nothing more
        world.look()
    references = world.adopter._references
    return [
        (job.id, [pod["uid"] for pod in references.get(job.id, {"pods": ()})["pods"]], job.cancel_requested_by or "")
        for job in world.made.values()
    ]


def test_a_group_of_which_one_was_deleted_while_it_waited_is_whole_with_the_one_that_replaces_it() -> None:
    """It stayed Pending for ever in an empty cluster."""
    world = World()
    world.there = gang(0, 1, 2)
    assert settle(world) == [(1, ["pod-0", "pod-1", "pod-2"], "")]
    world.there = gang(0, 2)
    assert settle(world) == [(1, [], "a change of its pod group")]
    assert world.adopter.why_not(world.there["pod-0"]) == (
        "2 of 3 pods of the group 'gang' are there; they start together when it is whole"
    )
    world.there = gang(0, 2, 3)
    assert settle(world) == [(1, [], "a change of its pod group"), (2, ["pod-0", "pod-2", "pod-3"], "")]


def test_the_replacement_of_one_that_ran_waits_until_the_group_can_begin_again() -> None:
    """It started alone, as a gang of one, and the room of the others went elsewhere."""
    world = World()
    world.there = gang(0, 1, 2)
    settle(world)
    world.begun.add(1)
    world.there = {**running(0, 1), **running(2, is_deleting=True), **gang(3)}
    assert [job for job, *_ in settle(world)] == [1]
    assert world.adopter.why_not(world.there["pod-3"]) == (
        "1 of 3 pods of the group 'gang' are there; they start together when it is whole"
    )
    world.end_by_deletion(1)
    world.there = gang(3, 4, 5)
    assert settle(world) == [(1, [], ""), (2, ["pod-3", "pod-4", "pod-5"], "")]


def test_what_was_not_placed_yet_when_another_was_deleted_is_grouped_anew() -> None:
    """It kept waiting as part of a job that was over."""
    world = World()
    world.there = gang(0, 1, 2)
    settle(world)
    world.begun.add(1)
    world.there = gang(0, 1)
    assert settle(world) == [(1, ["pod-0", "pod-1", "pod-2"], "")]  # the engine ends it
    world.end_by_deletion(1)
    world.there = gang(0, 1, 3)
    assert settle(world) == [(1, [], ""), (2, ["pod-0", "pod-1", "pod-3"], "")]


def test_when_too_few_of_a_group_are_left_the_rest_of_it_ends() -> None:
    world = World()
    world.there = gang(0, 1, 2)
    settle(world)
    world.begun.add(1)
    world.there = {**running(0, 1, 2), **gang(3)}
    assert settle(world)[1:] == [(2, ["pod-3"], "")]
    world.begun.add(2)
    world.there = running(0, 1, 2, 3)
    assert settle(world)[1:] == [(2, ["pod-3"], "")]
    world.end_by_deletion(1)
    world.there = running(3)
    assert settle(world) == [(1, [], ""), (2, ["pod-3"], "a change of its pod group")]


SET = Owner("StatefulSet", "ring", "set")


def made_by_a_set(*numbers: int, loss: str = "", **changes: Any) -> dict[str, PodSeen]:
    """Pods of a group of three that wait, and that have a controller; `loss`: their annotation."""
    found = gang(*numbers, owner=SET, **changes)
    for pod in found.values():
        if loss and pod.document is not None:
            pod.document["metadata"] |= {"uid": pod.uid, "annotations": {ON_MEMBER_LOST: loss}}
    return found


def put(*pods: PodSeen) -> dict[str, PodSeen]:
    """The same, placed."""
    return {pod.uid: replace(pod, node="n1", document=None) for pod in pods}


def begin(world: World, **pods: PodSeen) -> None:
    """They become the first job, which runs."""
    world.there = pods
    settle(world)
    world.begun.add(1)
    world.there = put(*pods.values())


@pytest.mark.parametrize(
    ("loss", "plain", "job", "why"),
    [
        ("", True, None, "1 of 3 pods of the group 'gang' are there; they start together when it is whole"),
        ("", False, 1, None),
        ("restart", False, None, "1 of 3 pods of the group 'gang' are there; they start together when it is whole"),
        ("wait", False, 1, None),
    ],
)
def test_who_gets_the_place_of_a_lost_member(loss: str, plain: bool, job: int | None, why: str | None) -> None:
    world = World()
    begin(world, **(gang(0, 1, 2) if plain else made_by_a_set(0, 1, 2, loss=loss)))
    del world.there["pod-1"]
    world.there |= gang(3) if plain else made_by_a_set(3, loss=loss)
    settle(world)
    new = world.there["pod-3"]
    assert (world.adopter.job_of(new), world.adopter.why_not(new)) == (job, why)
    assert new.annotations.get(RANK) == (None if job is None else "1")
    assert len(world.made) == 1


def test_a_pod_of_the_same_name_gets_its_own_place_back_and_one_that_asks_for_more_gets_none() -> None:
    world = World()
    begin(world, **made_by_a_set(0, 1, 2))
    del world.there["pod-0"], world.there["pod-2"]
    again = replace(made_by_a_set(2)["pod-2"], uid="again")
    greedy = made_by_a_set(3)["pod-3"]
    asks = {"requests": {"cpu": "64"}}
    cast(dict[str, Any], greedy.document)["spec"]["containers"][0]["resources"] = asks
    world.there |= {"again": again, "pod-3": greedy}
    settle(world)
    assert world.there["again"].annotations[RANK] == "2"
    assert world.adopter.job_of(world.there["pod-3"]) is None


def test_a_place_is_known_again_by_the_next_server_and_filled_once_more() -> None:
    world = World()
    begin(world, **made_by_a_set(0, 1, 2))
    for uid, number in (("pod-0", 3), ("pod-1", 4), ("pod-2", 5), ("pod-3", 6)):
        del world.there[uid]
        world.there |= made_by_a_set(number)
        settle(world)
        world.adopter._taken = {one: job for one, job in world.adopter._taken.items() if one in ("pod-0", "pod-1")}
        world.there |= put(world.there[f"pod-{number}"])
        assert settle(world)[0][1] == ["pod-0", "pod-1", "pod-2"]
    assert [world.adopter.job_of(pod) for pod in world.there.values()] == [1, 1, 1]
    assert sorted(pod.annotations[RANK] for pod in world.there.values()) == ["0", "1", "2"]
    assert len(world.made) == 1


def test_of_a_group_that_goes_on_the_next_one_is_a_job_by_itself_and_too_few_end_together() -> None:
    world = World()
    begin(world, **made_by_a_set(0, 1, 2, loss="go-on"))
    world.there |= made_by_a_set(3, loss="go-on")
    settle(world)
    world.begun.add(2)
    world.there |= put(world.there["pod-3"])
    del world.there["pod-0"]
    jobs = [(1, ["pod-0", "pod-1", "pod-2"], ""), (2, ["pod-3"], "")]
    assert settle(world) == jobs
    del world.there["pod-3"]
    world.end_by_deletion(2)
    assert settle(world)[0] == (1, ["pod-0", "pod-1", "pod-2"], "a change of its pod group")


def test_however_members_are_lost_and_replaced_no_two_pods_have_one_place() -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    world = World()
    begin(world, **made_by_a_set(0, 1, 2))
    numbers = itertools.count(3)
    for _ in range(200):
        action = chosen.choice(["lose", "make", "bind", "look", "restart"])
        if action == "lose" and len(world.there) > 1:
            del world.there[chosen.choice(sorted(world.there))]
        elif action == "make" and len(world.there) < 3:
            world.there |= made_by_a_set(next(numbers))
        elif action == "bind":
            world.there |= put(*(pod for pod in world.there.values() if JOB in pod.labels))
        elif action == "restart":
            world.adopter._taken = {}
            world.adopter.know(1, world.adopter._references[1])
        settle(world)
        told = f"seed {seed}: after {action} {[(pod.uid, pod.annotations.get(RANK)) for pod in world.there.values()]}"
        ranks = [pod.annotations.get(RANK, pod.uid.removeprefix("pod-")) for pod in world.there.values()]
        assert len(set(ranks)) == len(ranks), told
        assert set(ranks) <= {"0", "1", "2"}, told
        assert set(map(world.adopter.job_of, world.there.values())) == {1}, told
        assert len(world.made) == 1, told


@pytest.mark.parametrize(
    ("loss", "labels", "owner", "why"),
    [
        (
            "wait",
            {GANG: "gang"},
            None,
            (
                "swell.dev/on-member-lost is wait, but pod train-worker-0 has no controller, so no other pod would "
                "replace it; write restart or go-on, or have a StatefulSet or ReplicaSet make the pods"
            ),
        ),
        ("stop", {GANG: "gang"}, SET, "swell.dev/on-member-lost is 'stop'; it can be restart, wait, go-on"),
        (
            "wait",
            {},
            SET,
            "swell.dev/on-member-lost is for pods of a group, and pod train-worker-0 is in none; leave it out",
        ),
    ],
)
def test_what_cannot_become_of_the_others_is_refused(
    loss: str, labels: dict[str, str], owner: Owner | None, why: str
) -> None:
    world = World()
    annotations = {ON_MEMBER_LOST: loss}
    labels = {**labels, **({"fluence.group-size": "1"} if labels else {})}
    made = document("train-worker-0", uid="pod-0", labels=labels, annotations=annotations)
    world.there = {"pod-0": make_pod(0, owner=owner, labels=labels, document=made)}
    world.look()
    assert world.adopter.why_not(world.there["pod-0"]) == why
    assert world.made == {}


@pytest.mark.parametrize(
    ("version", "kind", "otherwise"),
    [
        (
            "batch/v1",
            "Job",
            "where a pod of a Job is lost its controller makes another, which gets the place of the first",
        ),
        ("v1", "Pod", "a Pod that is submitted is in none"),
    ],
)
def test_the_choice_is_for_groups_by_kubectl(version: str, kind: str, otherwise: str) -> None:
    made = {**document("train", annotations={ON_MEMBER_LOST: "wait"}), "apiVersion": version, "kind": kind}
    with pytest.raises(Rejected) as refused:
        read_document(made, Context(workdir="/", on_cluster=True))
    assert str(refused.value) == (
        "metadata.annotations: swell.dev/on-member-lost is for pods of a group that come by kubectl; "
        f"{otherwise}; leave it out"
    )


def test_members_that_have_done_their_work_are_no_loss() -> None:
    world = World()
    world.there = gang(0, 1, 2)
    settle(world)
    world.begun.add(1)
    world.there = {**running(0, 1), **running(2, phase="Succeeded"), **gang(3)}
    jobs = [(1, ["pod-0", "pod-1", "pod-2"], ""), (2, ["pod-3"], "")]
    assert settle(world) == jobs
    world.begun.add(2)
    world.ended = {"pod-2": world.there.pop("pod-2")}
    assert settle(world) == jobs


def test_however_members_come_and_go_every_waiting_group_that_is_whole_is_one_job() -> None:
    """Whoever waits is in a job whose pods are all there, or the group lacks some."""
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    world = World()
    numbers = itertools.count()
    for _ in range(200):
        if world.there and chosen.random() < 0.4:
            del world.there[chosen.choice(sorted(world.there))]
        else:
            world.there |= gang(next(numbers))
        settle(world)
        references = world.adopter._references.values()
        members = [pod["uid"] for reference in references for pod in reference["pods"]]
        told = f"seed {seed}: {sorted(world.there)} → {members}"
        assert set(members) <= set(world.there), told
        assert len(members) == (3 if len(world.there) >= 3 else 0), told


def test_pods_of_a_namespace_that_swell_was_not_given_wait_outside_and_are_told_why() -> None:
    """They were planned, held room, and could not be bound, again and again."""
    world = World()
    world.not_given = {"team"}
    world.there = {**in_namespace("team", 0), **in_namespace("other", 1)}
    assert world.look() == {"kubernetes:other-1": (1, "")}
    assert world.adopter.why_not(world.there["team-0"]) == (
        "Swell may not bind pods in namespace 'team'; an administrator adds it to `namespaces` of Swell's chart, "
        "or runs the pod with another schedulerName"
    )
    world.not_given = set()
    world.look()
    assert world.look()["kubernetes:team-0"] == (2, "")


# -- limits ------------------------------------------------------------------------------------------------------------


def in_namespace(namespace: str, *numbers: int) -> dict[str, PodSeen]:
    made = {}
    for number in numbers:
        one = document(f"train-worker-{number}", uid=f"{namespace}-{number}")
        one["metadata"]["namespace"] = namespace
        made[f"{namespace}-{number}"] = bare(number, uid=f"{namespace}-{number}", namespace=namespace, document=one)
    return made


def test_a_namespace_has_no_more_jobs_waiting_by_kubectl_than_through_the_api() -> None:
    """Whoever may create pods in one namespace made as many jobs as they liked, and everybody's plan became slow."""
    world = World()
    world.queued = {"team": 3}
    world.there = {**in_namespace("team", *range(10)), **in_namespace("other", *range(4))}
    world.look()
    assert sorted(job.owner for job in world.made.values()) == ["other"] * 4 + ["team"] * 3
    [told] = {world.adopter.why_not(pod) for pod in world.there.values()} - {None}
    assert told == (
        "'team' may have 3 jobs waiting and has 3, so 1 more cannot be taken; "
        "wait until some have started, cancel some, or submit an array, which counts as one job"
    )
    assert sum(world.adopter.why_not(pod) is not None for pod in world.there.values()) == 7


def test_a_namespace_without_disk_left_has_further_pods_wait_outside_until_it_has_made_room() -> None:
    """The logs of pods are on the server's disk, and who used kubectl could fill it for everybody."""
    world = World()
    world.disks = {"team": DiskUse(3 * MIB, 2 * MIB, ((7, 2 * MIB),))}
    world.there = {**in_namespace("team", 0), **in_namespace("other", 0)}
    world.look()
    assert [job.owner for job in world.made.values()] == ["other"]
    assert world.adopter.why_not(world.there["team-0"]) == (
        "'team' has 3.0 MiB of logs and checkpoints of at most 2 MiB, most of it in job 7 (2.0 MiB), so no more jobs "
        "are accepted; delete jobs that have ended, with their logs and checkpoints (swell delete 7), or remove files"
    )
    world.disks = {"team": DiskUse(MIB, 2 * MIB)}
    world.time += FULL_S
    world.look()
    assert sorted(job.owner for job in world.made.values()) == ["other", "team"]


def test_one_that_was_over_the_limit_is_taken_in_when_others_have_started() -> None:
    world = World()
    world.queued = {"team": 3}
    world.there = in_namespace("team", *range(10))
    world.look()
    world.begun |= {1, 2}
    world.look()
    assert len(world.made) == 3  # it is not asked again all the time
    world.time += FULL_S
    world.look()
    assert len(world.made) == 5


def test_however_many_come_and_start_the_limit_is_kept_and_used() -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    world = World()
    world.queued = {"team": 5}
    numbers = itertools.count()
    for _ in range(100):
        world.there |= in_namespace("team", *itertools.islice(numbers, chosen.randrange(9)))
        waiting = [one.id for one in world.made.values() if one.id not in world.begun]
        world.begun |= set(chosen.sample(waiting, chosen.randrange(len(waiting) + 1)))
        world.time += FULL_S
        world.look()
        waits = sum(one.id not in world.begun for one in world.made.values())
        left = len(world.there) - len(world.made)
        assert waits <= 5, f"seed {seed}: {waits} wait"
        assert waits == 5 or left == 0, f"seed {seed}: {waits} wait, {left} are left"


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

    def stumble(group: PodGroup, *rest: Any) -> tuple[JobSpec, dict[str, Any]]:
        if group.name == "train-worker-0":
            raise RecursionError("too deep")
        return read_pods(group, *rest)

    monkeypatch.setattr("swell.kubectl.adoption.read_pods", stumble)
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
