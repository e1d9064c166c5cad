"""Which pods that came by kubectl are one job, and when are they whole?"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from engines.kubernetes.apiserver import ApiServer
from engines.kubernetes.conftest import access_to
from engines.kubernetes.pieces import make_pod
from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.resources import Resource
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import Owner, PodSeen
from swell.kubectl.group_sizes import GROUP_API
from swell.kubectl.pod_groups import GroupStart, PodGroup, PodGroups, group_of, in_name_order

GANG = "scheduling.x-k8s.io/pod-group"
GANG_OF_TEAM = PodGroup("PodGroup", "team", "gang", "")
POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NOW = 1000.0
STATEFULSET = Owner("StatefulSet", "db", "set-1")


def member(number: int, *, size: str = "", **changes: Any) -> PodSeen:
    """One that waits; `size`: as Fluence says it."""
    labels = {GANG: "gang", **({"fluence.group-size": size} if size else {})}
    given = {"labels": {GANG: "gang"}, "owner": None, "document": {"metadata": {"labels": labels}}, **changes}
    return make_pod(number, **given)


def placed(number: int, **changes: Any) -> PodSeen:
    return member(number, node="n1", document=None, **changes)


class Watched:
    """A cluster whose watches have shown these pods of the group."""

    def __init__(self) -> None:
        self.pods: list[PodSeen] = []

    def pods_of_group(self, namespace: str, name: str) -> list[PodSeen]:
        return self.pods if (namespace, name) == ("team", "gang") else []


class World:
    def __init__(self, folder: Path) -> None:
        self.server = ApiServer(folder / "token")
        self.port = ApiClient(access_to(self.server), answer_s=5.0)
        self.cluster = Watched()
        self.taken: set[str] = set()
        self.over: set[str] = set()  # of jobs that have ended
        self.leaving: set[str] = set()
        self.now = NOW
        self.groups = PodGroups(
            self.port,
            cast(Cluster, self.cluster),
            lambda pod: pod.uid in self.taken,
            lambda pods: sum(pod.uid in self.taken - self.over for pod in pods),
            lambda pods: [pod for pod in pods if pod.uid not in self.leaving],
            lambda: self.now,
        )

    def say(self, least: int) -> None:
        """Coscheduling's word for how many start together."""
        self.server.kinds[GROUP_API] = {"podgroups": "PodGroup"}
        body = {"apiVersion": GROUP_API, "kind": "PodGroup", "spec": {"minMember": least}}
        metadata = {"name": "gang", "namespace": "team"}
        self.port.create(POD_GROUPS, {**body, "metadata": metadata}, "team")

    def start(self, *pods: PodSeen) -> GroupStart:
        """Asked for those that wait and are not taken in."""
        self.cluster.pods = list(pods)
        waiting = [pod for pod in pods if pod.document is not None and pod.uid not in self.taken]
        return self.groups.start(group_of(waiting[0]), waiting)

    def missing(self, *pods: PodSeen) -> str | None:
        """What keeps all of them from starting; None: some start."""
        start = self.start(*pods)
        return None if start.jobs else start.waits

    def jobs(self, *pods: PodSeen) -> list[list[str]]:
        """The pods of each job that starts."""
        return [[pod.name for pod in members] for members in self.start(*pods).jobs]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.port.close()
    world.server.close()


# -- what would wait for ever ----------------------------------------------------------------------------------------

OF_THREE = "1 of 3 pods of the group 'gang' are there; they start together when it is whole"
PARALLEL = (
    "; StatefulSet 'db' makes the next pod only when this one is ready, unless it has podManagementPolicy: Parallel: "
    "delete it and create it again with that"
)
CREATED = (
    "; LeaderWorkerSet 'serve' makes the workers only when the leader is ready if it has startupPolicy: LeaderReady: "
    "write startupPolicy: LeaderCreated"
)


def of_lws(worker: str) -> dict[str, Any]:
    names = {"name": "serve", "worker-index": worker}
    labels = {f"leaderworkerset.sigs.k8s.io/{name}": text for name, text in names.items()}
    return {"owner": Owner("StatefulSet", "serve", "s"), "document": {"metadata": {"labels": labels}}}


@pytest.mark.parametrize(
    ("what", "pods", "after_s", "said"),
    [
        ("the first pod of a StatefulSet", [member(0, owner=STATEFULSET)], 2.0, OF_THREE + PARALLEL),
        ("it has just come, and others may be on their way", [member(0, owner=STATEFULSET)], 1.9, OF_THREE),
        (
            "two came at once, so it makes them in parallel",
            [member(0, owner=STATEFULSET), member(1, owner=STATEFULSET)],
            2.0,
            OF_THREE.replace("1 of", "2 of"),
        ),
        ("a ReplicaSet's", [member(0, owner=Owner("ReplicaSet", "web", "r"))], 2.0, OF_THREE),
        ("nobody's", [member(0)], 2.0, OF_THREE),
        ("the leader of a LeaderWorkerSet", [member(0, **of_lws("0"))], 2.0, OF_THREE + CREATED),
    ],
)
def test_a_group_whose_maker_waits_for_its_first_pod_says_which_field_to_change(
    world: World, what: str, pods: list[PodSeen], after_s: float, said: str
) -> None:
    """The first pod waited for the others, which are made when it is ready: for ever, and nothing said why."""
    world.say(3)
    world.now = pods[-1].created_at + after_s
    assert world.missing(*pods) == said, what


# -- which are one job -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "group"),
    [
        (make_pod(0, owner=None), PodGroup("Pod", "team", "train-worker-0", "pod-0")),
        (make_pod(0, owner=STATEFULSET), PodGroup("Pod", "team", "train-worker-0", "pod-0")),
        (make_pod(0), PodGroup("PyTorchJob", "team", "train", "object")),
        (make_pod(0, labels={GANG: "gang"}), PodGroup("PyTorchJob", "team", "train", "object")),  # read whole
        (make_pod(0, owner=None, labels={GANG: "gang"}), GANG_OF_TEAM),
        (make_pod(0, owner=STATEFULSET, labels={GANG: "gang"}), PodGroup("PodGroup", "team", "gang", "", True)),
        (
            make_pod(0, owner=Owner("MPIJob", "pi", "m"), labels={GANG: "gang"}),
            PodGroup("PodGroup", "team", "gang", "", True),
        ),
        (make_pod(0, labels={"jobset.sigs.k8s.io/jobset-name": "set"}), PodGroup("JobSet", "team", "set", "")),
    ],
)
def test_a_label_groups_pods_whoever_makes_them_unless_their_object_is_read_whole(
    pod: PodSeen, group: PodGroup
) -> None:
    assert group_of(pod) == group


# -- when they are whole ---------------------------------------------------------------------------------------------


def test_members_wait_until_as_many_are_there_as_the_podgroup_says(world: World) -> None:
    world.say(3)
    assert [world.missing(*map(member, range(count))) for count in (1, 2, 3, 5)] == [
        "1 of 3 pods of the group 'gang' are there; they start together when it is whole",
        "2 of 3 pods of the group 'gang' are there; they start together when it is whole",
        None,
        None,
    ]


def test_one_that_came_while_the_others_were_looked_at_is_not_left_alone(world: World) -> None:
    """It made them whole, and they were taken in without it: two jobs (faults 77)."""
    world.say(3)
    world.missing(*map(member, range(3)))
    late = [member(0), member(1)]
    assert world.groups.start(group_of(late[0]), late).waits == (
        "3 of 3 pods of the group 'gang' are there; they start together when it is whole"
    )


def test_a_straggler_waits_for_nobody_once_enough_are_placed(world: World) -> None:
    """Only those that were not taken in yet were counted: of five with minMember 3 two waited for ever."""
    world.say(3)
    world.taken = {"pod-0", "pod-1", "pod-2"}
    assert world.missing(*map(placed, range(3)), member(3), member(4)) is None
    assert world.missing(*map(placed, range(3)), member(3)) is None


def test_a_member_that_is_made_again_is_placed_beside_those_that_run(world: World) -> None:
    world.say(3)
    world.taken = {"pod-0", "pod-1"}
    gone = placed(2, phase="Succeeded"), placed(4, is_deleting=True)
    assert world.missing(placed(0), placed(1), *gone, member(3)) is None
    assert world.missing(placed(0), *gone, member(3)) == (
        "2 of 3 pods of the group 'gang' are there; they start together when it is whole"
    )


def test_a_straggler_does_not_take_the_room_that_the_first_ones_wait_for(world: World) -> None:
    world.say(3)
    world.taken = {"pod-0", "pod-1", "pod-2"}
    for late in (4, 5, 6, 7):
        assert world.missing(*map(member, range(late))) == (
            "3 pods of the group 'gang' start before this one; it starts after they are placed"
        )


def test_those_whose_job_was_cancelled_keep_nobody_waiting(world: World) -> None:
    world.say(3)
    world.taken = world.over = {"pod-0", "pod-1", "pod-2"}
    assert world.jobs(*map(member, range(6))) == [[f"train-worker-{number}" for number in (3, 4, 5)]]


def test_so_many_start_together_as_the_group_says_and_each_further_one_by_itself(world: World) -> None:
    """`minMember: 3` of six pods with room for four could not run at all: all six were one gang."""
    world.say(3)
    names = [f"train-worker-{number}" for number in range(6)]
    start = world.start(*map(member, range(6)))
    assert [[pod.name for pod in members] for members in start.jobs] == [names[:3]]
    assert start.waits == "3 pods of the group 'gang' start before this one; it starts after they are placed"
    world.taken = {"pod-0", "pod-1", "pod-2"}
    assert world.jobs(*map(placed, range(3)), *map(member, range(3, 6))) == [[name] for name in names[3:]]


@pytest.mark.parametrize(
    ("size", "running", "leaving", "waiting", "jobs"),
    [
        (3, 0, 0, 2, []),
        (3, 0, 0, 3, [3]),
        (3, 0, 0, 7, [3]),
        (3, 3, 0, 1, [1]),
        (3, 3, 0, 2, [1, 1]),
        (3, 2, 0, 1, [1]),  # two others are placed, whoever did that: with this one there are enough
        (3, 2, 0, 4, [1]),
        (3, 0, 2, 1, []),  # one of three was deleted, and its replacement is there: the two others are about to stop
        (3, 0, 2, 3, [3]),
        (3, 3, 2, 1, [1]),  # enough run beside those that are about to stop
        (1, 0, 0, 3, [1]),
        (1, 1, 0, 2, [1, 1]),
    ],
)
def test_which_members_start(
    world: World, size: int, running: int, leaving: int, waiting: int, jobs: list[int]
) -> None:
    world.say(size)
    placed_ones = [placed(number) for number in range(running + leaving)]
    world.taken = {pod.uid for pod in placed_ones}
    world.leaving = {pod.uid for pod in placed_ones[running:]}
    late = [member(number) for number in range(running + leaving, running + leaving + waiting)]
    assert [len(members) for members in world.start(*placed_ones, *late).jobs] == jobs


def test_whatever_a_group_looks_like_no_fewer_than_it_says_run_and_nobody_waits_beside_enough(world: World) -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    world.say(3)
    for _ in range(300):
        kinds = [chosen.choice(["waits", "runs", "leaves", "deleting", "done"]) for _ in range(chosen.randrange(1, 9))]
        kinds.append("waits")
        make = {"waits": member, "deleting": functools.partial(placed, is_deleting=True)}
        make |= {"done": functools.partial(placed, phase="Succeeded")}
        pods = [make.get(kind, placed)(number) for number, kind in enumerate(kinds)]
        world.taken = {pod.uid for pod in pods if pod.document is None}
        world.leaving = {pod.uid for pod, kind in zip(pods, kinds, strict=True) if kind == "leaves"}
        runs, waits = kinds.count("runs"), kinds.count("waits")
        start = world.start(*pods)
        starting = sum(map(len, start.jobs))
        told = f"seed {seed}: {kinds} → {start}"
        assert starting == 0 or runs + starting >= 3, told
        assert starting > 0 or runs + waits < 3, told
        assert starting == waits or start.waits, told
        assert runs < 3 or starting == waits, told


def test_names_are_ordered_with_their_numbers_by_value() -> None:
    names = ["worker-10", "worker-2", "launcher", "worker-1"]
    pods = [make_pod(number, name=name) for number, name in enumerate(names)]
    assert [pod.name for pod in in_name_order(pods)] == ["launcher", "worker-1", "worker-2", "worker-10"]


def test_pods_of_all_makers_count_together(world: World) -> None:
    """The launcher of an MPIJob is the pod of a Job, its workers are its own."""
    world.say(3)
    launcher = placed(0, owner=Owner("Job", "pi-launcher", "j"))
    workers = [member(number, owner=Owner("MPIJob", "pi", "m")) for number in (1, 2)]
    assert world.missing(launcher, *workers) is None


def test_pods_that_wait_for_another_scheduler_do_not_count(world: World) -> None:
    world.say(2)
    assert world.missing(member(0), member(1, document=None)) == (
        "1 of 2 pods of the group 'gang' are there; they start together when it is whole"
    )


def test_fluence_says_on_the_pods_how_many_they_are(world: World) -> None:
    pods = [member(number, size="2") for number in range(2)]
    assert [world.missing(pods[0]), world.missing(*pods)] == [
        "1 of 2 pods of the group 'gang' are there; they start together when it is whole",
        None,
    ]


def test_where_nobody_says_how_many_they_are_whole_when_none_has_come_for_a_while(world: World) -> None:
    pods = [member(0, created_at=NOW - 60), member(1, created_at=NOW - 1)]
    assert world.missing(*pods) == "2 pods of the group 'gang' are there; they start together when it is whole"
    world.now = NOW + 1
    assert world.missing(*pods) is None


def test_a_podgroup_that_comes_after_its_pods_or_is_changed_is_believed(world: World) -> None:
    pods = [member(number, created_at=NOW) for number in range(2)]
    assert world.missing(*pods) == "2 pods of the group 'gang' are there; they start together when it is whole"
    world.say(3)
    world.now += 1
    assert world.missing(*pods) == "2 of 3 pods of the group 'gang' are there; they start together when it is whole"
    world.port.patch(POD_GROUPS, "gang", {"spec": {"minMember": 2}}, "team")
    world.now += 6
    assert world.missing(*pods) is None


def test_the_groups_of_a_namespace_are_listed_at_once_and_not_for_every_look(world: World) -> None:
    world.say(3)
    for _ in range(10):
        world.missing(member(0))
    assert sum(request.path.endswith("/podgroups") and request.method == "GET" for request in world.server.seen) == 1
