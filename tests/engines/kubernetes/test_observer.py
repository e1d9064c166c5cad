"""What of an attempt is there?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from swell.engines.kubernetes.attempt.live_attempt import LiveAttempt, logs_of
from swell.engines.kubernetes.attempt.observer import AttemptObserver
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen
from swell.engines.kubernetes.logs.stream import PodLog
from swell.engines.kubernetes.objects.objects import JobPlaces, ObjectSeen
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import Ended, PodSeen, read_node
from swell.model.job import AttemptId
from swell.model.member_loss import MemberLoss
from swell.model.placement_fields import POD_GROUP

from .pieces import FIRST, SECOND, ended, make_object, make_pod, make_wanted

OURS = {"kind": "PyTorchJob", "metadata": {"name": "train", "namespace": "team"}}
THEIRS = {"kind": "PyTorchJob", "metadata": {"name": "train", "namespace": "team", "uid": "object"}}


class Watched:
    """A cluster that watches have shown to have this one object, and these pods of it."""

    def __init__(self, found: ObjectSeen | None, pods: list[PodSeen], departed: Mapping[str, PodSeen]) -> None:
        self._found = found
        self._pods = pods
        self._departed = departed

    def is_ending(self, namespace: str) -> bool:
        return False

    def object(self, kind: str, namespace: str, name: str) -> ObjectSeen | None:
        asked = (kind, namespace, name)
        found = self._found
        return found if found is not None and (found.kind, found.namespace, found.name) == asked else None

    def objects_of_job(self, key: tuple[str, str]) -> list[ObjectSeen]:
        return [self._found] if self._found is not None and (self._found.store, self._found.job) == key else []

    def pods_of_object(self, kind: str, namespace: str, name: str, *, uid: str) -> list[PodSeen]:
        return [pod for pod in self._pods if pod.owner is not None and pod.owner.uid == uid]

    def pods(self, uids: list[str]) -> list[PodSeen]:
        return [pod for pod in self._pods if pod.uid in uids]

    def pods_of_group(self, namespace: str, name: str) -> list[PodSeen]:
        return [pod for pod in self._pods if (pod.namespace, pod.group) == (namespace, name)]

    def departed(self, uid: str) -> PodSeen | None:
        return self._departed.get(uid)

    def pods_of_job(self, key: tuple[str, str]) -> list[PodSeen]:
        return self._pods if key == ("s", "7") else []


def look(live: LiveAttempt, found: ObjectSeen | None, *pods: PodSeen, departed: Sequence[PodSeen] = ()) -> AttemptSeen:
    cluster = cast(Cluster, Watched(found, list(pods), {pod.uid: pod for pod in departed}))
    return AttemptObserver(cluster, "s", JobPlaces("jobs")).look(live, {})


@pytest.mark.parametrize("document", [OURS, THEIRS], ids=["made by us", "by kubectl"])
def test_pods_of_an_object_that_is_gone_are_seen_until_they_are_gone_too(document: dict[str, Any]) -> None:
    left = make_pod(0, node="n1", phase="Running")

    assert look(LiveAttempt(make_wanted(), document), None, left) == AttemptSeen(None, ((None, left),))


def test_a_pod_that_had_ended_when_it_was_deleted_is_seen_if_it_was_there_in_this_attempt() -> None:
    names = [{"name": f"train-worker-{rank}", "uid": f"pod-{rank}", "document": {}} for rank in range(3)]
    live = LiveAttempt(
        make_wanted(), {"kind": "Pods", "metadata": {**THEIRS["metadata"], "uid": "pod-0"}, "pods": names}
    )
    live.memory.met |= {0: "pod-0", 1: "pod-1"}
    there = make_pod(0)
    before = [ended(rank) for rank in range(3)]

    assert look(live, None, there, departed=before).departed == {1: before[1]}


def test_an_answer_newer_than_the_watch_is_believed() -> None:
    live = LiveAttempt(make_wanted(), OURS)
    live.memory.fresh = make_object(version="5", is_suspended=True)

    assert look(live, make_object(version="4")).object == live.memory.fresh


def test_an_answer_older_than_the_watch_is_forgotten() -> None:
    live = LiveAttempt(make_wanted(), OURS)
    live.memory.fresh = make_object(version="5", is_suspended=True)

    assert (look(live, make_object(version="6")).object, live.memory.fresh) == (make_object(version="6"), None)


def test_a_look_of_who_makes_no_calls_neither_forgets_an_answer_nor_sees_what_is_bound_meanwhile() -> None:
    """The controller's thread forgot an answer that had come since it began to look, and met pods half bound."""
    live = LiveAttempt(make_wanted(), OURS)
    live.memory.fresh = make_object(version="5", is_suspended=True)
    live.memory.bound["pod-0"] = "n1"
    now = live.at_this_moment()
    del live.memory.bound["pod-0"]

    assert look(now, make_object(version="6")).object == make_object(version="6")
    assert (live.memory.fresh, now.memory.bound) == (make_object(version="5", is_suspended=True), {"pod-0": "n1"})


def test_what_we_have_deleted_is_on_its_way_out_whatever_the_watch_shows() -> None:
    live = LiveAttempt(make_wanted(), OURS)
    live.memory.deleted.add("object")

    assert look(live, make_object()).object == make_object(is_deleting=True)


def test_what_has_ended_in_an_earlier_attempt_and_is_not_gone_yet_is_none_of_this_ones() -> None:
    """A refused pod that its Job kept was taken for refused again."""
    document = {"kind": "Job", "metadata": {"name": "train", "namespace": "team", "uid": "object"}}
    live = LiveAttempt(make_wanted(attempt=SECOND), document)
    refused = ended(0, None, "OutOfcpu", is_deleting=True)
    before = make_object("Job", is_suspended=True)
    resumed = make_object("Job", attempt=SECOND, pods_attempt=SECOND)

    assert [pod for _, pod in look(live, before, refused).pods] == [refused]
    assert look(live, resumed, refused).pods == ()


def test_another_object_of_the_same_name_is_not_the_one_that_came_by_kubectl() -> None:
    other = make_object(uid="another")

    assert look(LiveAttempt(make_wanted(), THEIRS), other).object is None


def test_logs_are_asked_for_of_pods_that_have_run_on_nodes_that_have_an_address() -> None:
    metadata = {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    real = read_node({"metadata": metadata, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
    simulated = read_node({"metadata": {**metadata, "name": "n2"}, "status": {}})
    never_ran = Ended(990.0, None, "Evicted", "", has_run=False)
    pods = (
        (0, make_pod(0, node="n1", started_at=950.0)),
        (1, make_pod(1, node="n2", started_at=950.0)),
        (2, make_pod(2, node="n1", phase="Succeeded", ended=Ended(990.0, 0, "Completed", "", has_run=True))),
        (3, make_pod(3, node="n1", phase="Failed", ended=never_ran)),
        (4, make_pod(4, node="n1")),
        (5, make_pod(5, node="gone", started_at=950.0)),
        (None, make_pod(6, node="n1", started_at=950.0)),
    )

    found = list(logs_of(FIRST, AttemptSeen(None, pods), {"n1": real, "n2": simulated}))

    def log(rank: int, node: str) -> PodLog:
        return PodLog(FIRST, rank, "team", f"train-worker-{rank}", f"pod-{rank}", node)

    assert found == [(log(0, "n1"), False), (log(2, "n1"), True), (log(5, "gone"), False)]


# -- what becomes of the others of a pod group when one is lost --------------------------------------------------------


def pod_group(loss: str, *, least: int = 2) -> LiveAttempt:
    """Of three pods."""
    names = [{"name": f"train-worker-{rank}", "uid": f"pod-{rank}"} for rank in range(3)]
    metadata = {"name": "ring", "namespace": "team", "uid": "pod-0"}
    document = {"kind": "Pods", "metadata": metadata, "pods": names, "minMember": least, "onMemberLost": loss}
    wanted = make_wanted(3, attempt=AttemptId(8, 1))
    return LiveAttempt(wanted, document, AttemptMemory(met={rank: f"pod-{rank}" for rank in range(3)}))


def in_ring(rank: int, **changes: Any) -> PodSeen:
    return make_pod(rank, **{"node": "n1", "phase": "Running", "labels": {POD_GROUP: "ring"}, **changes})


@pytest.mark.parametrize(
    ("least", "pods", "departed", "loss"),
    [
        (2, (in_ring(0), in_ring(1)), (), MemberLoss.GO_ON),
        (3, (in_ring(0), in_ring(1)), (), MemberLoss.RESTART),
        (3, (in_ring(0), in_ring(1), in_ring(7)), (), MemberLoss.GO_ON),  # one that started after them
        (3, (in_ring(0), in_ring(1), in_ring(7, node="")), (), MemberLoss.RESTART),
        (3, (in_ring(0), in_ring(1), in_ring(7, is_deleting=True)), (), MemberLoss.RESTART),
        (3, (in_ring(0), in_ring(1), in_ring(7, phase="Failed")), (), MemberLoss.RESTART),
        (3, (in_ring(0), in_ring(1), in_ring(7, phase="Succeeded")), (), MemberLoss.GO_ON),
        (3, (in_ring(0), in_ring(1)), (ended(2),), MemberLoss.GO_ON),  # it had succeeded
        (2, (in_ring(7), in_ring(8)), (), MemberLoss.RESTART),  # none of this job is left
    ],
)
def test_the_others_go_on_as_long_as_as_many_run_as_start_together(
    least: int, pods: tuple[PodSeen, ...], departed: tuple[PodSeen, ...], loss: MemberLoss
) -> None:
    assert look(pod_group("go-on", least=least), None, *pods, departed=departed).on_loss is loss


def test_those_that_wait_keep_the_place_and_those_that_restart_do_not() -> None:
    losses = [look(pod_group(loss), None, in_ring(0)).on_loss for loss in ("wait", "restart")]
    assert losses == [MemberLoss.WAIT, MemberLoss.RESTART]


def test_pods_elsewhere_with_the_labels_of_a_job_are_none_of_its_own() -> None:
    """Anybody can write labels in a namespace of their own: a job whose object was gone never ended."""
    labels = {"swell.dev/store": "s", "swell.dev/job": "7"}
    live = LiveAttempt(make_wanted(), OURS)
    mine, elsewhere = make_pod(0, labels=labels), make_pod(1, labels=labels, namespace="elsewhere")
    assert look(live, None, mine, elsewhere) == AttemptSeen(None, ((None, mine),))
