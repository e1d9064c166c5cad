"""What has become of an attempt's tasks, as the controller is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.kubernetes.pieces import (
    FAILED,
    FIRST,
    NOW,
    SECOND,
    SUCCEEDED,
    alive,
    ended,
    make_object,
    make_pod,
    make_seen,
    make_wanted,
    never,
    over,
    running,
)
from swell.engines.kubernetes.attempt.follow import follow
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.state import Followed
from swell.engines.kubernetes.attempt.steps import DeletePod, pod_steps
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.objects.objects import ObjectVerdict
from swell.engines.kubernetes.watch.observed_objects import ATTEMPT, JOB, Owner, PodSeen
from swell.model.member_loss import MemberLoss

WANTED = make_wanted()
BEGUN = make_wanted(has_begun=True)
STOPPING = make_wanted(is_stopping=True, has_begun=True)
OURS = make_object(is_suspended=True, suspended_in=FIRST)
GONE = make_seen(OURS)


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "followed"),
    [
        ("nothing is there yet", WANTED, make_seen(None), Followed()),
        ("its pods wait to be bound", WANTED, make_seen(make_object(), make_pod(0), make_pod(1)), Followed()),
        (
            "one of two runs",
            WANTED,
            make_seen(make_object(), running(0), make_pod(1, node="n2")),
            Followed((alive(0),)),
        ),
        ("all run", WANTED, make_seen(make_object(), running(0), running(1)), Followed((alive(0), alive(1)))),
        (
            "its object is still in the last attempt, which left a pod",
            make_wanted(attempt=SECOND),
            make_seen(make_object(is_suspended=True), ended(0)),
            Followed(),
        ),
        (
            "an image cannot be pulled",
            WANTED,
            make_seen(make_object(), running(0), make_pod(1, node="n2", waiting="ImagePullBackOff: no such image")),
            Followed((alive(0),), trouble="pod train-worker-1: ImagePullBackOff: no such image"),
        ),
        (
            "an image could not be pulled for ten minutes",
            WANTED,
            make_seen(
                make_object(), running(0), make_pod(1, node="n2", created_at=300.0, waiting="ErrImagePull: not found")
            ),
            Followed(
                (alive(0), never(1, "image", "ErrImagePull: not found")),
                trouble="pod train-worker-1: ErrImagePull: not found",
            ),
        ),
        (
            "an image has no name that could be one",
            WANTED,
            make_seen(make_object(), running(0), make_pod(1, node="n2", waiting="InvalidImageName: A B")),
            Followed(
                (alive(0), never(1, "image", "InvalidImageName: A B")),
                trouble="pod train-worker-1: InvalidImageName: A B",
            ),
        ),
        (
            "a kubelet refuses a pod",
            WANTED,
            make_seen(make_object(), running(0), ended(1, None, "UnexpectedAdmissionError", "no GPU is free")),
            Followed(
                (alive(0), over(1, NOW, None, "not-placed", "UnexpectedAdmissionError: no GPU is free", started_at=NOW))
            ),
        ),
        (
            "a pod failed, and its controller will make another",
            BEGUN,
            make_seen(make_object(), running(0), ended(1, 1)),
            Followed((alive(0), alive(1))),
        ),
        (
            "its controller says that it succeeded",
            BEGUN,
            make_seen(make_object(verdict=SUCCEEDED), ended(0), ended(1, 143)),
            Followed((over(0, 995.0, 0), over(1, 995.0, 0)), is_finished=True),
        ),
        (
            "one has succeeded while the other runs: its room is free, and its controller says when it is over",
            BEGUN,
            make_seen(make_object(), ended(0), running(1)),
            Followed((alive(0), alive(1)), emptied=frozenset({0})),
        ),
        (
            "one has failed, and its controller makes another",
            BEGUN,
            make_seen(make_object(), ended(0, 3), running(1)),
            Followed((alive(0), alive(1))),
        ),
        (
            "one that had succeeded is made again",
            BEGUN,
            make_seen(make_object(), ended(0), replace(running(0), uid="again"), running(1)),
            Followed((alive(0), alive(1))),
        ),
        (
            "one that shares a GPU has succeeded: its share is free as well",
            replace(BEGUN, shares_mib=(1000,)),
            make_seen(make_object(), ended(0), running(1)),
            Followed((alive(0), alive(1)), emptied=frozenset({0})),
        ),
        (
            "it succeeded while a worker still runs",
            BEGUN,
            make_seen(make_object(verdict=SUCCEEDED), ended(0), running(1)),
            Followed((over(0, 995.0, 0), over(1, 995.0, 0))),
        ),
        (
            "it failed because one was killed for memory",
            BEGUN,
            make_seen(make_object(verdict=FAILED), ended(0, 0), ended(1, 137, "OOMKilled")),
            Followed((over(0, 995.0, None, "stopped"), over(1, 990.0, 137, "out-of-memory")), is_finished=True),
        ),
        (
            "it failed and no pod tells why",
            BEGUN,
            make_seen(make_object(verdict=FAILED)),
            Followed(
                (
                    over(0, 995.0, None, "stopped", started_at=NOW),
                    over(1, 995.0, None, "", "it failed", started_at=NOW),
                ),
                is_finished=True,
            ),
        ),
        (
            "it was longer than it may be",
            BEGUN,
            make_seen(
                make_object(verdict=ObjectVerdict(False, 995.0, "DeadlineExceeded", "too long")),
                ended(0, 143),
                ended(1, 143),
            ),
            Followed((over(0, 990.0, 143), over(1, 990.0, 143)), is_finished=True),
        ),
        (
            "somebody deleted it",
            BEGUN,
            make_seen(None),
            Followed(
                (never(0, "deleted", "PyTorchJob team/train"), never(1, "deleted", "PyTorchJob team/train")),
                is_finished=True,
            ),
        ),
        (
            "somebody else has suspended it, and its pods end",
            BEGUN,
            make_seen(make_object(is_suspended=True), running(0, is_deleting=True)),
            Followed((alive(0),), suspended="PyTorchJob team/train"),
        ),
        (
            "somebody else had suspended it when we were to stop it",
            STOPPING,
            make_seen(make_object(is_suspended=True), running(0, is_deleting=True)),
            Followed((alive(0),), suspended="PyTorchJob team/train"),
        ),
        ("we have suspended it", STOPPING, make_seen(OURS, running(0, is_deleting=True)), Followed((alive(0),))),
        ("we have not resumed it yet", WANTED, make_seen(OURS), Followed()),
        (
            "somebody else has suspended it before its pods were seen to run",
            WANTED,
            make_seen(make_object(is_suspended=True), make_pod(0, node="n1", is_deleting=True)),
            Followed(suspended="PyTorchJob team/train"),
        ),
        (
            "somebody has suspended it when it had succeeded",
            BEGUN,
            make_seen(make_object(is_suspended=True, verdict=SUCCEEDED)),
            Followed((over(0, 995.0, 0, started_at=NOW), over(1, 995.0, 0, started_at=NOW)), is_finished=True),
        ),
        (
            "the node of one that must be bound again is gone",
            BEGUN,
            replace(make_seen(make_object(), running(0), make_pod(1)), present=frozenset({"n1"})),
            Followed((alive(0), never(1, "node-lost", "node n2 is gone, or not ready"))),
        ),
        # stopping
        (
            "it is being stopped",
            STOPPING,
            make_seen(make_object(), running(0), running(1)),
            Followed((alive(0), alive(1))),
        ),
        (
            "one has ended, the other not",
            STOPPING,
            make_seen(OURS, running(1, is_deleting=True)),
            Followed((alive(1),)),
        ),
        ("all pods are gone", STOPPING, GONE, Followed((never(0, "stopped"), never(1, "stopped")), is_finished=True)),
        (
            "the object may still make some",
            STOPPING,
            make_seen(make_object()),
            Followed(),
        ),
        (
            "it is gone altogether",
            STOPPING,
            make_seen(None),
            Followed((never(0, "stopped"), never(1, "stopped")), is_finished=True),
        ),
    ],
)
def test_an_object_that_makes_pods(what: str, wanted: Wanted, seen: AttemptSeen, followed: Followed) -> None:
    assert follow(wanted, seen, AttemptMemory(kind="PyTorchJob team/train"), NOW, Origin.OUR_OBJECT) == followed, what


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "followed"),
    [
        (
            "one ended well",
            BEGUN,
            make_seen(None, ended(0), running(1)),
            Followed((over(0, 990.0, 0), alive(1)), emptied=frozenset({0})),
        ),
        (
            "somebody else has bound one to another node",
            make_wanted(),
            make_seen(None, running(0), running(1, node="n1")),
            Followed(
                (
                    alive(0),
                    replace(
                        over(
                            1,
                            NOW,
                            None,
                            "not-placed",
                            "somebody else has bound pod train-worker-1 to node n1; it was to run on n2",
                        ),
                        node="n1",
                    ),
                )
            ),
        ),
        (
            "it has done its work there before anybody noticed",
            BEGUN,
            make_seen(None, ended(0), ended(1, node="n1")),
            Followed((over(0, 990.0, 0), replace(over(1, 990.0, 0), node="n1")), is_finished=True),
        ),
        (
            "both ended, one badly",
            BEGUN,
            make_seen(None, ended(0), ended(1, 3, "Error")),
            Followed((over(0, 990.0, 0), over(1, 990.0, 3)), is_finished=True),
        ),
        (
            "one was evicted",
            BEGUN,
            make_seen(None, running(0), ended(1, 137, "Evicted", "the node was low on memory")),
            Followed((alive(0), over(1, 990.0, 137, "evicted", "the node was low on memory"))),
        ),
        (
            "one was evicted by the API, which says nothing on the pod but that it was",
            BEGUN,
            make_seen(None, running(0), ended(1, 137, "Error", is_disrupted=True, is_deleting=True)),
            Followed((alive(0), over(1, 990.0, 137, "evicted", "at somebody's request, as kubectl drain does"))),
        ),
        (
            "one was killed because somebody deletes it; a kubelet shows that before it is gone",
            BEGUN,
            make_seen(None, running(0), ended(1, 137, "Error", is_deleting=True)),
            Followed((alive(0), over(1, 990.0, None, "pod-lost", "somebody has deleted its pod"))),
        ),
        (
            "one was killed on a node that is being removed",
            BEGUN,
            replace(make_seen(None, running(0), ended(1, 137, "Error", is_deleting=True)), present=frozenset({"n1"})),
            Followed((alive(0), over(1, 990.0, None, "node-lost", "node n2 is gone, or not ready"))),
        ),
        (
            "one did its work although somebody deletes it",
            BEGUN,
            make_seen(None, running(0), ended(1, is_deleting=True)),
            Followed((alive(0), over(1, 990.0, 0)), emptied=frozenset({1})),
        ),
        (
            "one is gone",
            BEGUN,
            make_seen(None, running(0)),
            Followed((alive(0), never(1, "pod-lost", "somebody has deleted its pod"))),
        ),
        (
            "one did its work and was deleted before anybody looked",
            BEGUN,
            replace(make_seen(None, running(0)), departed={1: ended(1, is_deleting=True)}),
            Followed((alive(0), over(1, 990.0, 0)), emptied=frozenset({1})),
        ),
        (
            "one failed and was deleted before anybody looked",
            BEGUN,
            replace(make_seen(None, running(0)), departed={1: ended(1, 3)}),
            Followed((alive(0), over(1, 990.0, 3))),
        ),
        (
            "one was deleted, and killed for that",
            BEGUN,
            replace(make_seen(None, running(0)), departed={1: ended(1, 143, is_deleting=True)}),
            Followed((alive(0), over(1, 990.0, None, "pod-lost", "somebody has deleted its pod"))),
        ),
        (
            "one is gone with its node",
            BEGUN,
            replace(make_seen(None, running(0)), present=frozenset({"n1"})),
            Followed((alive(0), never(1, "node-lost", "node n2 is gone, or not ready"))),
        ),
        (
            "stopped: one left with 0, the other was killed",
            STOPPING,
            make_seen(None, ended(0), ended(1, 137)),
            Followed((over(0, 990.0, 0), over(1, 990.0, 137, "stopped")), is_finished=True),
        ),
        (
            "stopped, and nothing is left",
            STOPPING,
            make_seen(None),
            Followed((never(0, "stopped"), never(1, "stopped")), is_finished=True),
        ),
    ],
)
def test_pods_without_an_object(what: str, wanted: Wanted, seen: AttemptSeen, followed: Followed) -> None:
    assert follow(wanted, seen, AttemptMemory(), NOW, Origin.OUR_PODS) == followed, what


@pytest.mark.parametrize(
    ("pod", "code", "said"),
    [
        (ended(0, None, "OutOfcpu", "no room"), None, "OutOfcpu: no room; it failed"),
        (ended(0, 137, "Evicted", "the node was low on memory"), 137, "the node was low on memory; it failed"),
    ],
    ids=["refused", "evicted"],
)
def test_an_object_that_came_by_kubectl_and_has_failed_is_not_begun_again(
    pod: PodSeen, code: int | None, said: str
) -> None:
    """Whose fault it was does not matter: each attempt saw the same pod again, for ever."""
    seen = make_seen(make_object(verdict=FAILED), pod)
    found = follow(WANTED, seen, AttemptMemory(), NOW, Origin.FOUND_OBJECT)
    [first, _] = found.tasks
    assert (found.is_finished, first.exit_code, first.cause, first.problem) == (True, code, "", said)


def test_an_object_that_came_by_kubectl_is_deleted_when_it_is_not_there() -> None:
    memory = AttemptMemory(kind="PyTorchJob team/train")
    found = follow(WANTED, make_seen(None), memory, NOW, Origin.FOUND_OBJECT)
    gone = [never(rank, "deleted", "PyTorchJob team/train") for rank in (0, 1)]
    assert found == Followed(tuple(gone), is_finished=True)


BARE = {"owner": None, "annotations": {}}
SECOND_WANTED = make_wanted(attempt=SECOND)


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "remakes", "followed"),
    [
        (
            "one was deleted",
            WANTED,
            make_seen(None, make_pod(1, **BARE)),
            False,
            Followed((never(0, "deleted", "Pod"),)),
        ),
        (
            "one did its work and was deleted before anybody looked",
            WANTED,
            replace(make_seen(None, ended(1, **BARE)), departed={0: ended(0, is_deleting=True, **BARE)}),
            False,
            Followed((over(0, 990.0, 0), over(1, 990.0, 0)), is_finished=True),
        ),
        ("we took one away", SECOND_WANTED, make_seen(None, make_pod(1, **BARE)), True, Followed()),
        (
            "its node has refused one in the attempt before, which was told then",
            SECOND_WANTED,
            make_seen(None, ended(0, None, "OutOfcpu", **BARE), make_pod(1, **BARE)),
            True,
            Followed(),
        ),
        (
            "another had succeeded in the attempt before, which does not count in this one",
            SECOND_WANTED,
            make_seen(None, ended(0, None, "OutOfcpu", **BARE), ended(1, **BARE)),
            True,
            Followed(),
        ),
        (
            "one has succeeded in this attempt before anybody looked",
            SECOND_WANTED,
            make_seen(None, running(0, **BARE), ended(1, owner=None, annotations={ATTEMPT: str(SECOND)})),
            True,
            Followed(tuple(replace(task, attempt=SECOND) for task in (alive(0), over(1, 990.0, 0)))),
        ),
        (
            "it was stopped half bound",
            STOPPING,
            make_seen(None, make_pod(0, node="n1", **BARE), make_pod(1, **BARE)),
            False,
            Followed(),
        ),
        (
            "what was bound is gone, what was not waits on",
            STOPPING,
            make_seen(None, make_pod(1, **BARE)),
            False,
            Followed((never(0, "stopped"), never(1, "stopped")), is_finished=True),
        ),
    ],
)
def test_pods_that_came_by_kubectl(
    what: str, wanted: Wanted, seen: AttemptSeen, remakes: bool, followed: Followed
) -> None:
    assert (
        follow(wanted, seen, AttemptMemory(), NOW, Origin.REMADE_PODS if remakes else Origin.FOUND_PODS) == followed
    ), what


# -- members of a group that are lost while it runs ------------------------------------------------------------------

LOST = ("deleted", "Pod")
KEPT = None
SOMEBODY = "somebody has deleted its pod"
AWAY = make_seen(None, running(0, **BARE))
KILLED = make_seen(None, running(0, **BARE), ended(1, 137, is_deleting=True, **BARE))
EVICTED_POD = make_seen(None, running(0, **BARE), ended(1, 143, is_deleting=True, is_disrupted=True, **BARE))
NODE_GONE = replace(AWAY, present=frozenset({"n1"}))
NEW = replace(make_pod(1, **BARE), uid="new", labels={JOB: "7"}, owner=Owner("StatefulSet", "ring", "s"))
REPLACED = make_seen(None, running(0, **BARE), NEW)
DRAINED = "at somebody's request, as kubectl drain does"


@pytest.mark.parametrize(
    ("what", "seen", "loss", "closed", "told"),
    [
        ("its pod is gone", AWAY, MemberLoss.RESTART, "", LOST),
        ("its pod is gone", AWAY, MemberLoss.WAIT, "", KEPT),
        ("its pod is gone", AWAY, MemberLoss.GO_ON, "", ("left-out", SOMEBODY)),
        ("its pod was killed by that", KILLED, MemberLoss.RESTART, "", LOST),
        ("its pod was killed by that", KILLED, MemberLoss.WAIT, "", KEPT),
        ("its pod was killed by that", KILLED, MemberLoss.GO_ON, "", ("left-out", SOMEBODY)),
        ("its pod was evicted", EVICTED_POD, MemberLoss.RESTART, "", ("evicted", DRAINED)),
        ("its pod was evicted", EVICTED_POD, MemberLoss.WAIT, "", ("evicted", DRAINED)),
        ("its pod was evicted", EVICTED_POD, MemberLoss.GO_ON, "", ("left-out", DRAINED)),
        ("its node is gone too", NODE_GONE, MemberLoss.RESTART, "", LOST),
        ("its node is gone too", NODE_GONE, MemberLoss.WAIT, "", ("node-lost", "node n2 is gone, or not ready")),
        ("its node is gone too", NODE_GONE, MemberLoss.GO_ON, "", ("left-out", SOMEBODY)),
        ("its node is drained", AWAY, MemberLoss.WAIT, "n2", ("evicted", "node n2 is cordoned")),
        ("another node is drained", AWAY, MemberLoss.WAIT, "n1", KEPT),
        ("another pod has its place", REPLACED, MemberLoss.WAIT, "", KEPT),
        (
            "another pod has its place on a drained node",
            REPLACED,
            MemberLoss.WAIT,
            "n2",
            ("evicted", "node n2 is cordoned"),
        ),
    ],
)
def test_what_is_told_of_a_member_that_is_lost(
    what: str, seen: AttemptSeen, loss: MemberLoss, closed: str, told: tuple[str, str] | None
) -> None:
    seen = replace(seen, on_loss=loss, closed=frozenset({closed}))
    first, *rest = follow(BEGUN, seen, AttemptMemory(), NOW, Origin.FOUND_PODS).tasks
    assert first == alive(0), what
    assert [(task.cause, task.problem) for task in rest] == ([] if told is None else [told]), (what, loss)


def test_one_that_the_others_go_on_without_needs_no_room() -> None:
    seen = replace(AWAY, on_loss=MemberLoss.GO_ON)
    assert follow(BEGUN, seen, AttemptMemory(), NOW, Origin.FOUND_PODS).emptied == {1}


def test_an_attempt_that_stops_is_not_over_while_a_pod_is_marked_for_a_place_in_it() -> None:
    """Unbound pods are left to whoever made them; this one would wait for ever, for nobody else takes it in."""
    seen = make_seen(None, NEW)
    assert not follow(STOPPING, seen, AttemptMemory(), NOW, Origin.FOUND_PODS).is_finished
    assert pod_steps(STOPPING, seen, AttemptMemory(), Origin.FOUND_PODS) == (DeletePod(NEW, 30.0),)


# -- with its namespace ----------------------------------------------------------------------------------------------

SWEPT = tuple(never(rank, "deleted", "namespace team") for rank in range(2))


@pytest.mark.parametrize(
    ("what", "found", "pods", "tasks"),
    [
        ("its pods are killed", make_object(), (running(0, is_deleting=True), running(1, is_deleting=True)), 2),
        ("its controller calls that a failure", make_object(verdict=FAILED), (ended(0, 137), ended(1, 137)), 2),
        ("nothing of it is left", None, (), 2),
        ("it had succeeded before", make_object(verdict=SUCCEEDED), (ended(0), ended(1)), 0),
    ],
)
@pytest.mark.parametrize("origin", [Origin.OUR_OBJECT, Origin.FOUND_OBJECT])
def test_what_goes_with_its_namespace_was_deleted_and_has_not_failed(what, found, pods, tasks, origin):
    """`failed and left no exit code` was said of jobs whose namespace somebody had deleted."""
    seen = replace(make_seen(found, *pods), ending="team")
    told = follow(BEGUN, seen, AttemptMemory(), NOW, origin).tasks
    deleted = [task for task in told if (task.cause, task.problem) == ("deleted", "namespace team")]
    assert (len(told), len(deleted)) == (2, tasks), what


@pytest.mark.parametrize("origin", [Origin.OUR_PODS, Origin.FOUND_PODS, Origin.REMADE_PODS])
def test_pods_that_go_with_their_namespace_are_not_lost_to_anybody_else(origin):
    seen = replace(make_seen(None, running(0, is_deleting=True)), ending="team")
    told = follow(BEGUN, seen, AttemptMemory(), NOW, origin).tasks
    assert [(task.index, task.cause, task.problem) for task in told] == [
        (n, "deleted", "namespace team") for n in (0, 1)
    ]
