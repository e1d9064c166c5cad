"""What is done next, in every half-way state that a crash, a lost answer or somebody else leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.kubernetes.pieces import (
    FAILED,
    FIRST,
    SECOND,
    SUCCEEDED,
    ended,
    make_object,
    make_pod,
    make_seen,
    make_wanted,
    running,
)
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.steps import (
    AskBudgets,
    BindPod,
    CreateObject,
    DeletePod,
    MarkObject,
    RemoveObject,
    ResizeObject,
    ResumeObject,
    Step,
    SuspendObject,
    UpdateSecret,
    lanes_in_use,
    object_steps,
    pod_steps,
)
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, TaskPlace, Wanted
from swell.engines.kubernetes.objects.objects import PodTemplateGroup
from swell.engines.kubernetes.watch.observed_objects import ATTEMPT, PodSeen

WANTED = make_wanted()
AGAIN = make_wanted(attempt=SECOND)
STOPPING = make_wanted(is_stopping=True)
ON_N1, ON_N2 = WANTED.places[0], WANTED.places[1]


EVICTED = make_wanted(is_stopping=True, evicts=True)


def evict(rank: int, grace_s: float = 30.0) -> DeletePod:
    return DeletePod(running(rank), grace_s, evicts=True)


@pytest.mark.parametrize(
    ("what", "seen", "memory", "steps"),
    [
        ("the budgets are asked first", (running(0), running(1)), {}, (AskBudgets(), evict(0), evict(1))),
        ("they have allowed it", (running(0), running(1)), {"may_evict": True}, (evict(0), evict(1))),
        ("one is on its way", (running(0, is_deleting=True), running(1)), {}, (evict(1),)),
        ("one has ended", (ended(0), running(1)), {}, (AskBudgets(), evict(1))),
        ("one is not bound, and holds nothing", (running(0), make_pod(1)), {}, (AskBudgets(), evict(0))),
        ("all are on their way", (running(0, is_deleting=True), running(1, is_deleting=True)), {}, ()),
    ],
)
def test_pods_that_came_by_kubectl_are_evicted_together(what, seen, memory, steps):
    found = pod_steps(EVICTED, make_seen(None, *seen), AttemptMemory(**memory), Origin.FOUND_PODS)
    assert found == steps, what


@pytest.mark.parametrize("origin", [Origin.OUR_OBJECT, Origin.FOUND_OBJECT])
def test_an_object_is_suspended_when_the_budgets_of_its_pods_allow_it(origin):
    """Evicted one by one, its controller would count failures, or end it for good."""
    there = make_seen(make_object(), running(0), running(1))
    assert object_steps(EVICTED, there, AttemptMemory(), origin) == (AskBudgets(), SuspendObject())
    assert object_steps(EVICTED, there, AttemptMemory(may_evict=True), origin) == (SuspendObject(),)


@pytest.mark.parametrize(
    ("what", "there", "memory", "steps"),
    [
        ("its tasks run", make_object("Job"), {}, (AskBudgets(), SuspendObject())),
        ("the budgets have allowed it", make_object("Job"), {"may_evict": True}, (SuspendObject(),)),
        ("it is suspended", make_object("Job", is_suspended=True, suspended_in=FIRST), {}, ()),
    ],
)
@pytest.mark.parametrize("is_drained", [False, True])
def test_an_array_is_suspended_when_the_budgets_of_its_pods_allow_it(what, there, memory, steps, is_drained):
    """That somebody drains the node of one task is no leave to end the others."""
    evicted = make_wanted(is_stopping=True, evicts=True, is_array=True)
    seen = make_seen(there, running(0, is_deleting=is_drained), running(1))
    assert object_steps(evicted, seen, AttemptMemory(**memory), Origin.FOUND_OBJECT) == steps, what


def new_pod(rank: int) -> PodSeen:
    return make_pod(rank, uid=f"new-{rank}", annotations={ATTEMPT: str(SECOND)})


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "steps"),
    [
        ("nothing is there", WANTED, make_seen(None), (CreateObject(),)),
        (
            "pods of an object that was removed still end",
            WANTED,
            make_seen(None, make_pod(0, is_deleting=True)),
            (),
        ),
        ("it was there and is gone", replace(WANTED, has_begun=True), make_seen(None), ()),
        (
            "it was made, and nobody told it anything",
            WANTED,
            make_seen(make_object(is_suspended=True, suspended_in=FIRST)),
            (UpdateSecret(), ResumeObject()),
        ),
        (
            "somebody else has suspended it",
            replace(WANTED, has_begun=True),
            make_seen(make_object(is_suspended=True)),
            (),
        ),
        (
            "somebody else has suspended it before its pods were seen to run",
            WANTED,
            make_seen(make_object(is_suspended=True), make_pod(0, node="n1", is_deleting=True)),
            (),
        ),
        ("it is on its way out", WANTED, make_seen(make_object(is_deleting=True)), ()),
        ("its pods are not there yet", WANTED, make_seen(make_object()), ()),
        ("half of its gang is there", WANTED, make_seen(make_object(), make_pod(0)), ()),
        (
            "half of it is on its way out",
            WANTED,
            make_seen(make_object(), make_pod(0), make_pod(1, is_deleting=True)),
            (),
        ),
        (
            "its gang is whole",
            WANTED,
            make_seen(make_object(), make_pod(0), make_pod(1)),
            (BindPod(make_pod(0), ON_N1), BindPod(make_pod(1), ON_N2)),
        ),
        (
            "one was bound before we were killed",
            WANTED,
            make_seen(make_object(), make_pod(0, node="n1"), make_pod(1)),
            (BindPod(make_pod(1), ON_N2),),
        ),
        ("all of it runs", WANTED, make_seen(make_object(), running(0), running(1)), ()),
        (
            "one was lost and made again while the other runs",
            replace(WANTED, has_begun=True),
            make_seen(make_object(), running(0), make_pod(1, uid="new")),
            (BindPod(make_pod(1, uid="new"), ON_N2),),
        ),
        (
            "one is made again before it has come to its end",
            replace(WANTED, has_begun=True),
            make_seen(make_object(), running(0), running(1, is_deleting=True), make_pod(1, uid="new")),
            (),
        ),
        (
            "one that had ended is on its way out, and was made again",
            replace(WANTED, has_begun=True),
            make_seen(make_object(), running(0), ended(1, 1, is_deleting=True), make_pod(1, uid="new")),
            (BindPod(make_pod(1, uid="new"), ON_N2),),
        ),
        (
            "it succeeded and a worker goes on",
            WANTED,
            make_seen(make_object(verdict=SUCCEEDED), running(1)),
            (DeletePod(running(1), 30.0),),
        ),
        ("it failed", WANTED, make_seen(make_object(verdict=FAILED), ended(0, 1)), ()),
        # the next attempt
        ("the last one still runs", AGAIN, make_seen(make_object(), running(0)), (SuspendObject(),)),
        (
            "the last one is suspended, and still ends",
            AGAIN,
            make_seen(make_object(is_suspended=True), running(0, is_deleting=True)),
            (),
        ),
        ("the last one is over", AGAIN, make_seen(make_object(is_suspended=True)), (UpdateSecret(), ResizeObject())),
        (
            "the last one left a pod that had ended",
            AGAIN,
            make_seen(make_object(is_suspended=True), ended(0)),
            (DeletePod(ended(0), 0.0),),
        ),
        (
            "its controller has not heard that it was changed, and has made one of its pods as it was before",
            AGAIN,
            make_seen(make_object(attempt=SECOND, pods_attempt=SECOND), make_pod(0), new_pod(1)),
            (DeletePod(make_pod(0), 30.0),),
        ),
        (
            "what it was before ends, and was made again",
            AGAIN,
            make_seen(
                make_object(attempt=SECOND, pods_attempt=SECOND), make_pod(0, is_deleting=True), new_pod(0), new_pod(1)
            ),
            (BindPod(new_pod(0), ON_N1), BindPod(new_pod(1), ON_N2)),
        ),
        (
            "of the last one a node has refused a pod",
            AGAIN,
            make_seen(make_object(is_suspended=True), ended(0, None, "OutOfcpu")),
            (DeletePod(ended(0, None, "OutOfcpu"), 0.0),),
        ),
        (
            "that pod is not gone yet",
            AGAIN,
            make_seen(make_object(is_suspended=True), ended(0, None, "OutOfcpu", is_deleting=True)),
            (),
        ),
        (
            "that pod's Job keeps it until it has made another",
            AGAIN,
            make_seen(make_object("Job", is_suspended=True), ended(0, None, "OutOfcpu", is_deleting=True)),
            (UpdateSecret(), ResizeObject()),
        ),
        ("the last one failed for good", AGAIN, make_seen(make_object(verdict=FAILED), ended(0, 1)), (RemoveObject(),)),
        # stopping
        ("nothing to stop", STOPPING, make_seen(None), ()),
        ("it runs", STOPPING, make_seen(make_object(), running(0)), (SuspendObject(),)),
        ("it ends", STOPPING, make_seen(make_object(is_suspended=True), running(0, is_deleting=True)), ()),
        (
            "it is suspended, and its controller has not ended them all yet: what ends before would be a failure",
            replace(STOPPING, grace_s=5.0),
            make_seen(make_object(is_suspended=True), running(0), running(1, is_deleting=True)),
            (DeletePod(running(1, is_deleting=True), 5.0),),
        ),
        (
            "it may take longer to end than we let it",
            replace(STOPPING, grace_s=5.0),
            make_seen(make_object(is_suspended=True), running(0, is_deleting=True)),
            (DeletePod(running(0, is_deleting=True), 5.0),),
        ),
    ],
)
def test_an_object_that_makes_pods(what: str, wanted: Wanted, seen: AttemptSeen, steps: tuple[Step, ...]) -> None:
    assert object_steps(wanted, seen, AttemptMemory(), Origin.OUR_OBJECT) == steps, what


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "steps"),
    [
        (
            "it has the size the plan wants, but may be resized, so its pods must be told where to report",
            make_wanted(is_elastic=True),
            make_seen(make_object(attempt=None), make_pod(0), make_pod(1)),
            (SuspendObject(),),
        ),
        (
            "it has the size the plan wants",
            WANTED,
            make_seen(make_object(attempt=None), make_pod(0), make_pod(1)),
            (MarkObject(),),
        ),
        (
            "it has another size",
            WANTED,
            make_seen(make_object(attempt=None, groups=(PodTemplateGroup("worker", 2, 4),)), make_pod(0), make_pod(1)),
            (SuspendObject(),),
        ),
        (
            "it is to share a GPU, and its pods do not know which",
            make_wanted(shares_mib=(6144,)),
            make_seen(make_object(attempt=None, groups=(PodTemplateGroup("worker", 2, 0),)), make_pod(0), make_pod(1)),
            (SuspendObject(),),
        ),
        ("it is gone", WANTED, make_seen(None), ()),
        ("it failed as its last attempt was stopped", AGAIN, make_seen(make_object(verdict=FAILED)), (MarkObject(),)),
    ],
)
def test_an_object_that_came_by_kubectl(what: str, wanted: Wanted, seen: AttemptSeen, steps: tuple[Step, ...]) -> None:
    assert object_steps(wanted, seen, AttemptMemory(), Origin.FOUND_OBJECT) == steps, what


OLD = running(0, name="train-0")
NEW = {"annotations": {"swell.dev/attempt": str(SECOND)}}


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "steps"),
    [
        ("nothing is there", WANTED, make_seen(None), (CreateObject(0), CreateObject(1))),
        ("we were killed after the first", WANTED, make_seen(None, make_pod(0)), (CreateObject(1),)),
        (
            "all are there",
            WANTED,
            make_seen(None, make_pod(0), make_pod(1)),
            (UpdateSecret(), BindPod(make_pod(0), ON_N1), BindPod(make_pod(1), ON_N2)),
        ),
        ("one that ran is gone", replace(WANTED, has_begun=True), make_seen(None, running(0)), ()),
        ("the last attempt is still there", AGAIN, make_seen(None, running(0)), (DeletePod(running(0), 30.0),)),
        ("the last attempt ends", AGAIN, make_seen(None, running(0, is_deleting=True)), ()),
        ("the last attempt left its ends", AGAIN, make_seen(None, ended(0, 1)), (DeletePod(ended(0, 1), 30.0),)),
        ("it is stopped", STOPPING, make_seen(None, running(0), ended(1)), (DeletePod(running(0), 30.0),)),
    ],
)
def test_pods_that_we_make_ourselves(what: str, wanted: Wanted, seen: AttemptSeen, steps: tuple[Step, ...]) -> None:
    assert pod_steps(wanted, seen, AttemptMemory(), Origin.OUR_PODS) == steps, what


BARE = {"owner": None, "annotations": {}}
HALF = make_seen(None, make_pod(0, node="n1", **BARE), make_pod(1, **BARE))


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "remakes", "steps"),
    [
        (
            "both wait",
            WANTED,
            make_seen(None, make_pod(0, **BARE), make_pod(1, **BARE)),
            False,
            (BindPod(make_pod(0, **BARE), ON_N1), BindPod(make_pod(1, **BARE), ON_N2)),
        ),
        ("one was deleted before it was bound", WANTED, make_seen(None, make_pod(1, **BARE)), False, ()),
        (
            "half of it is bound when it is stopped",
            STOPPING,
            HALF,
            False,
            (DeletePod(make_pod(0, node="n1", **BARE), 30.0),),
        ),
        ("the half that was bound is gone", STOPPING, make_seen(None, make_pod(1, **BARE)), False, ()),
        ("its next attempt makes it again", AGAIN, make_seen(None, make_pod(1, **BARE)), True, (CreateObject(0),)),
        (
            "it is still on its way out",
            AGAIN,
            make_seen(None, running(0, is_deleting=True, **BARE), make_pod(1, **BARE)),
            True,
            (),
        ),
        (
            "all are there again",
            AGAIN,
            make_seen(None, make_pod(1, **BARE), make_pod(0, **NEW)),
            True,
            (BindPod(make_pod(0, **NEW), ON_N1, attempt=SECOND), BindPod(make_pod(1, **BARE), ON_N2, attempt=SECOND)),
        ),
        ("one that ran is gone", replace(AGAIN, has_begun=True), make_seen(None, running(1, **BARE)), True, ()),
        (
            "a node has refused one in the attempt before: it is taken away, and made again when it is gone",
            AGAIN,
            make_seen(None, ended(0, None, "OutOfcpu", **BARE)),
            True,
            (DeletePod(ended(0, None, "OutOfcpu", **BARE), 0.0),),
        ),
        (
            "one was evicted in the attempt before, and goes",
            AGAIN,
            make_seen(None, ended(0, 137, "Evicted", is_deleting=True, **BARE)),
            True,
            (),
        ),
        (
            "one has ended by itself in the attempt before, when the other was refused: a gang begins again whole",
            AGAIN,
            make_seen(None, ended(0, None, "OutOfcpu", **BARE), ended(1, **BARE)),
            True,
            (DeletePod(ended(0, None, "OutOfcpu", **BARE), 0.0), DeletePod(ended(1, **BARE), 0.0)),
        ),
        (
            "one has ended by itself in this attempt before anybody looked",
            AGAIN,
            make_seen(None, ended(0, owner=None, annotations={ATTEMPT: str(SECOND)}), running(1, **BARE)),
            True,
            (),
        ),
        (
            "one that was alone has ended by itself",
            replace(AGAIN, places={0: ON_N1}),
            make_seen(None, ended(0, **BARE)),
            True,
            (),
        ),
    ],
)
def test_pods_that_came_by_kubectl(
    what: str, wanted: Wanted, seen: AttemptSeen, remakes: bool, steps: tuple[Step, ...]
) -> None:
    assert pod_steps(wanted, seen, AttemptMemory(), Origin.REMADE_PODS if remakes else Origin.FOUND_PODS) == steps, what


#: Two Jobs of two pods, of which JobSet makes the second when the first is bound.
LED = make_object(groups=(PodTemplateGroup("workers", 2, 0, sets=2, is_led=True),))
OF_FOUR = make_wanted(4)


@pytest.mark.parametrize(
    ("what", "seen", "bound"),
    [
        ("none is there", (), []),
        ("the first pod of one Job is there", (make_pod(0),), []),
        ("the first of each is there", (make_pod(0), make_pod(2)), [0, 2]),
        ("a follower came", (running(0), make_pod(1), running(2)), [1]),
        ("the rest came", (running(0), running(1), running(2), make_pod(3)), [3]),
        ("a Job was made anew, and its first pod is missing", (running(0), running(1), make_pod(3)), []),
        ("a Job was made anew", (running(0), running(1), make_pod(2)), [2]),
    ],
)
def test_pods_that_others_are_made_after_are_bound_together_and_the_others_as_they_come(what, seen, bound):
    """Room for all is theirs from the start; the gang would wait for itself if all were awaited."""
    steps = object_steps(OF_FOUR, make_seen(LED, *seen), AttemptMemory(), Origin.OUR_OBJECT)
    assert [(step.pod.name, step.place) for step in steps] == [
        (make_pod(rank).name, OF_FOUR.places[rank]) for rank in bound
    ], what


def test_what_the_watch_does_not_show_yet_is_not_done_twice() -> None:
    seen = make_seen(None, make_pod(0))
    assert pod_steps(WANTED, seen, AttemptMemory(created={1}), Origin.OUR_PODS) == ()
    both = make_seen(None, make_pod(0), make_pod(1))
    memory = AttemptMemory(told=True, bound={"pod-0": "n1"})
    assert pod_steps(WANTED, both, memory, Origin.OUR_PODS) == (BindPod(make_pod(1), ON_N2),)
    assert pod_steps(STOPPING, make_seen(None, running(0)), AttemptMemory(deleted={"pod-0"}), Origin.OUR_PODS) == ()


def test_a_node_that_is_away_gets_no_pod() -> None:
    seen = replace(make_seen(make_object(), make_pod(0), make_pod(1)), present=frozenset({"n2"}))
    assert object_steps(WANTED, seen, AttemptMemory(), Origin.OUR_OBJECT) == (BindPod(make_pod(1), ON_N2),)


def test_an_array_fills_its_free_lanes_in_the_order_of_its_indices() -> None:
    lanes = {0: TaskPlace("n1", (), 0), 1: TaskPlace("n1", (), 0), 3: TaskPlace("n2", (), 0)}
    wanted = make_wanted(places=lanes, is_array=True, indices="0-9")
    seen = make_seen(
        make_object("Job", groups=(PodTemplateGroup("", 10, 0),)),
        ended(0),
        running(1, node="n1"),
        make_pod(5),
        make_pod(3),
        make_pod(4),
    )
    assert lanes_in_use(wanted, seen, AttemptMemory()) == {"pod-1": 0}
    assert object_steps(wanted, seen, AttemptMemory(), Origin.OUR_OBJECT) == (
        BindPod(make_pod(3), lanes[1]),
        BindPod(make_pod(4), lanes[3]),
    )


def test_a_lane_whose_node_is_away_keeps_no_other_empty() -> None:
    """An index was to wait for a lane on a node that was not ready, while there was a free one beside it."""
    lanes = {0: TaskPlace("n1", (), 0), 1: TaskPlace("n2", (), 0)}
    wanted = make_wanted(places=lanes, is_array=True, indices="0-9")
    seen = replace(
        make_seen(make_object("Job", groups=(PodTemplateGroup("", 10, 0),)), make_pod(3)), present=frozenset({"n2"})
    )
    assert object_steps(wanted, seen, AttemptMemory(), Origin.OUR_OBJECT) == (BindPod(make_pod(3), lanes[1]),)


def test_an_index_of_an_array_does_not_begin_again_before_it_has_come_to_its_end() -> None:
    lanes = {0: TaskPlace("n1", (), 0), 1: TaskPlace("n1", (), 0)}
    wanted = make_wanted(places=lanes, is_array=True, indices="0-9")
    array = make_object("Job", groups=(PodTemplateGroup("", 10, 0),))
    again = make_pod(0, uid="again", created_at=960.0)
    seen = make_seen(array, running(0, is_deleting=True), again, make_pod(5))
    assert object_steps(wanted, seen, AttemptMemory(), Origin.OUR_OBJECT) == (BindPod(make_pod(5), lanes[1]),)
    gone = make_seen(array, again, make_pod(5))
    assert object_steps(wanted, gone, AttemptMemory(), Origin.OUR_OBJECT) == (
        BindPod(again, lanes[0]),
        BindPod(make_pod(5), lanes[1]),
    )


def test_a_lane_that_drains_is_in_use_until_one_of_its_node_has_ended() -> None:
    """A round of faults had 9 GPUs in use on a node with 8: what drains was reported as empty while it ran."""
    array = make_object("Job", groups=(PodTemplateGroup("", 10, 0),))
    wanted = make_wanted(
        places={0: TaskPlace("n1", (), 0)}, draining={1: TaskPlace("n1", (), 0)}, is_array=True, indices="0-9"
    )
    both = make_seen(array, running(0, node="n1"), running(1, node="n1"), make_pod(2))
    assert lanes_in_use(wanted, both, AttemptMemory()) == {"pod-0": 0, "pod-1": 1}
    assert object_steps(wanted, both, AttemptMemory(), Origin.OUR_OBJECT) == ()
    one = make_seen(array, ended(0, node="n1"), running(1, node="n1"), make_pod(2))
    assert lanes_in_use(wanted, one, AttemptMemory()) == {"pod-1": 0}
    assert object_steps(wanted, one, AttemptMemory(), Origin.OUR_OBJECT) == ()


def test_an_attempt_is_known_by_its_number() -> None:
    assert FIRST != SECOND
    assert object_steps(AGAIN, make_seen(make_object(attempt=SECOND)), AttemptMemory(), Origin.OUR_OBJECT) == ()
