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
from swell.engines.kubernetes.follow import follow
from swell.engines.kubernetes.objects import Verdict
from swell.engines.kubernetes.picture import ATTEMPT, PodSeen
from swell.engines.kubernetes.sheet import Followed
from swell.engines.kubernetes.wanted import Memory, Seen, Wanted

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
                make_object(verdict=Verdict(False, 995.0, "DeadlineExceeded", "too long")), ended(0, 143), ended(1, 143)
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
def test_an_object_that_makes_pods(what: str, wanted: Wanted, seen: Seen, followed: Followed) -> None:
    assert follow(wanted, seen, Memory(kind="PyTorchJob team/train"), NOW, has_object=True) == followed, what


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "followed"),
    [
        ("one ended well", BEGUN, make_seen(None, ended(0), running(1)), Followed((over(0, 990.0, 0), alive(1)))),
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
            Followed((alive(0), over(1, 990.0, 0))),
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
            Followed((alive(0), over(1, 990.0, 0))),
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
def test_pods_without_an_object(what: str, wanted: Wanted, seen: Seen, followed: Followed) -> None:
    assert follow(wanted, seen, Memory(), NOW, has_object=False) == followed, what


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
    found = follow(WANTED, seen, Memory(), NOW, has_object=True, is_ours=False)
    [first, _] = found.tasks
    assert (found.is_finished, first.exit_code, first.cause, first.problem) == (True, code, "", said)


def test_an_object_that_came_by_kubectl_is_deleted_when_it_is_not_there() -> None:
    memory = Memory(kind="PyTorchJob team/train")
    found = follow(WANTED, make_seen(None), memory, NOW, has_object=True, is_ours=False)
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
def test_pods_that_came_by_kubectl(what: str, wanted: Wanted, seen: Seen, remakes: bool, followed: Followed) -> None:
    assert follow(wanted, seen, Memory(), NOW, has_object=False, is_ours=False, remakes=remakes) == followed, what
