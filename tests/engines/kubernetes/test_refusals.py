"""What is said of pods that an object's controller cannot make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engines.kubernetes.pieces import (
    FAILED,
    NOW,
    SECOND,
    ended,
    make_object,
    make_pod,
    make_seen,
    make_wanted,
    running,
)
from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.attempt.follow import follow
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.refusals import AGAIN_S, FIRST_S, SLOW_S, Refusals, job_of, missing, starting
from swell.engines.kubernetes.attempt.state import Followed
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.objects.objects import PodTemplateGroup
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import PodSeen

from .apiserver import ApiServer
from .faults import Fault, Scripted

WANTED = make_wanted()
ARRAY = make_wanted(is_array=True, indices="0-9")
FEW = (PodTemplateGroup("workers", 3, 1, sets=2, at_once=1),)  # Job 0 has the tasks 0, 2 and 4
QUOTA = 'Error creating: pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2'
Document = dict[str, Any]


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "count"),
    [
        ("its object is not there", WANTED, make_seen(None), 0),
        ("it is suspended", WANTED, make_seen(make_object(is_suspended=True)), 0),
        ("it goes", WANTED, make_seen(make_object(is_deleting=True)), 0),
        ("it has failed", WANTED, make_seen(make_object(verdict=FAILED)), 0),
        ("it is in another attempt", make_wanted(attempt=SECOND), make_seen(make_object()), 0),
        ("we stop it", make_wanted(is_stopping=True), make_seen(make_object()), 0),
        ("none of them is there", WANTED, make_seen(make_object()), 2),
        ("one is there", WANTED, make_seen(make_object(), make_pod(1)), 1),
        ("one is going", WANTED, make_seen(make_object(), make_pod(0), make_pod(1, is_deleting=True)), 1),
        ("all are there", WANTED, make_seen(make_object(), make_pod(0), make_pod(1)), 0),
        ("of an array as many as it has lanes", ARRAY, make_seen(make_object("Job")), 2),
        ("one lane of an array is used", ARRAY, make_seen(make_object("Job"), ended(0), running(1)), 1),
        (
            "of an array fewer are left to do than it has lanes",
            make_wanted(is_array=True, indices="1-2"),
            make_seen(make_object("Job"), ended(0), ended(1)),
            1,
        ),
        (
            "each Job of a JobSet runs so many at once",
            make_wanted(4, is_array=True, indices="0-5"),
            make_seen(make_object("JobSet", groups=FEW), ended(0), ended(2), running(1)),
            1,
        ),
        (
            "what an array has given up is not made again",
            make_wanted(is_array=True, indices="0-1"),
            make_seen(make_object("Job", failed_indexes="0"), ended(0, 1), ended(1)),
            0,
        ),
    ],
)
def test_how_many_pods_are_missing(what: str, wanted: Wanted, seen: AttemptSeen, count: int) -> None:
    assert missing(wanted, seen) == count, what


def test_of_a_jobset_the_job_is_known_that_makes_a_pod() -> None:
    groups = (PodTemplateGroup("driver", 1, 0), PodTemplateGroup("workers", 2, 1, sets=3))
    found = make_object("JobSet", groups=groups)
    assert [job_of(found, rank) for rank in range(7)] == [
        "train-driver-0",
        *("train-workers-0", "train-workers-0"),
        *("train-workers-1", "train-workers-1"),
        *("train-workers-2", "train-workers-2"),
    ]


def test_what_the_controller_says_is_the_trouble_of_an_attempt_that_does_not_start() -> None:
    found = follow(WANTED, make_seen(make_object()), AttemptMemory(refused=QUOTA), NOW, Origin.OUR_OBJECT)
    assert found == Followed(trouble=QUOTA)


# -- asking ------------------------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(server: ApiServer, port: ApiClient, clock: Clock) -> Iterator[Refusals]:
    cluster = Cluster(port, lambda *_: None)
    spec = {"template": {"spec": {"containers": []}}}
    server.storage.create("jobs", ("team", "train-workers-1"), named("train-workers-1", "batch/v1", "Job", spec=spec))
    assert cluster.start(10.0) is None
    yield Refusals(port, cluster, clock)
    cluster.stop()


def named(name: str, api_version: str = "v1", kind: str = "Event", **fields: Any) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "team"}, **fields}


def say(server: ApiServer, message: str, *, uid: str = "object", reason: str = "FailedCreate", **fields: Any) -> None:
    name = f"said-{len(server.storage.state('events', server.storage.revision))}"
    fields = {"type": "Warning", "lastTimestamp": "2026-11-16T12:00:00Z", "eventTime": None, **fields}
    event = named(name, involvedObject={"uid": uid}, reason=reason, message=message, **fields)
    server.storage.create("events", ("team", name), event)


def test_the_newest_refusal_is_quoted_whole(server: ApiServer, refusals: Refusals) -> None:
    say(server, "an older one", lastTimestamp="2026-11-16T11:59:59Z")
    say(server, QUOTA)
    say(server, "of another object", uid="other", lastTimestamp="2026-11-16T12:30:00Z")
    say(server, "no refusal", reason="PyTorchJobRestarting", lastTimestamp="2026-11-16T12:30:00Z")
    say(server, "no warning", type="Normal", lastTimestamp="2026-11-16T12:30:00Z")
    said = refusals.ask(WANTED, make_seen(make_object()), AttemptMemory())
    assert said == f"PyTorchJob team/train cannot make its pods: {QUOTA}"


def test_one_that_carries_its_time_in_a_newer_field_counts_too(server: ApiServer, refusals: Refusals) -> None:
    say(server, "an older one")
    series = {"count": 7, "lastObservedTime": "2026-11-16T12:00:07.000001Z"}
    say(server, QUOTA, lastTimestamp=None, eventTime="2026-11-16T11:00:00.000000Z", series=series)
    said = refusals.ask(WANTED, make_seen(make_object("Job")), AttemptMemory())
    assert said == f"Job team/train cannot make its pods: {QUOTA}"


def test_of_a_jobset_its_jobs_are_heard(server: ApiServer, refusals: Refusals) -> None:
    jobs = server.storage.state("jobs", server.storage.revision)
    job = jobs["team", "train-workers-1"]
    assert job is not None
    say(server, QUOTA, uid=job["metadata"]["uid"])
    found = make_object("JobSet", groups=(PodTemplateGroup("workers", 1, 1, sets=2),))
    assert refusals.ask(WANTED, make_seen(found), AttemptMemory()) == "", "the Job of rank 0 is not there yet"
    said = refusals.ask(WANTED, make_seen(found, make_pod(0)), AttemptMemory())
    assert said == f"JobSet team/train cannot make its pods: {QUOTA}"


def test_where_nothing_was_said_or_nobody_answers_nothing_is_made_up(
    server: ApiServer, refusals: Refusals, clock: Clock
) -> None:
    assert refusals.ask(WANTED, make_seen(make_object()), AttemptMemory()) == ""
    clock.now += AGAIN_S
    assert isinstance(server.faults, Scripted)
    server.faults.answers.extend([Fault.SERVER_ERROR] * 1000)  # the watches of the cluster take some of them, too
    assert refusals.ask(WANTED, make_seen(make_object()), AttemptMemory(refused=QUOTA)) == QUOTA


def test_a_role_that_may_not_read_events_is_said(server: ApiServer, refusals: Refusals) -> None:
    message = 'events is forbidden: User "swell" cannot list resource "events" in API group ""'
    server.denied["list", "events"] = message
    assert refusals.ask(WANTED, make_seen(make_object()), AttemptMemory()) == (
        "why its pods are missing cannot be read: Swell's role lacks the verb 'list' on events in namespace 'team': "
        f"{message}; grant it"
    )


def test_it_is_asked_after_a_while_and_then_now_and_then(server: ApiServer, refusals: Refusals, clock: Clock) -> None:
    memory = AttemptMemory()
    assert not refusals.is_due(memory), "all is well"
    memory.waits_since = clock.now
    clock.now += FIRST_S - 0.1
    assert not refusals.is_due(memory)
    clock.now += 0.1
    assert refusals.is_due(memory)
    refusals.ask(WANTED, make_seen(make_object()), memory)
    clock.now += AGAIN_S - 0.1
    assert not refusals.is_due(memory)
    clock.now += 0.1
    assert refusals.is_due(memory)


# -- pods that do not start ------------------------------------------------------------------------------------------


BOUND = make_pod(0, node="n1")
MOUNT = 'MountVolume.SetUp failed for volume "key" : secret "nope" not found'


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "pod"),
    [
        ("it waits for the others", WANTED, make_seen(make_object(), make_pod(0)), None),
        ("it is bound, and nothing else is known of it", WANTED, make_seen(None, BOUND), BOUND),
        ("it runs", WANTED, make_seen(None, running(0)), None),
        ("it says itself what is wrong", WANTED, make_seen(None, make_pod(0, node="n1", waiting="ErrImagePull")), None),
        ("it goes", WANTED, make_seen(None, make_pod(0, node="n1", is_deleting=True)), None),
        ("we stop it", make_wanted(is_stopping=True), make_seen(None, BOUND), None),
    ],
)
def test_which_pod_does_not_start(what: str, wanted: Wanted, seen: AttemptSeen, pod: PodSeen | None) -> None:
    assert starting(wanted, seen) == pod, what


def test_the_newest_warning_of_its_kubelet_is_quoted_whole(server: ApiServer, refusals: Refusals) -> None:
    say(server, "an older one", uid=BOUND.uid, reason="FailedAttachVolume", lastTimestamp="2026-11-16T11:59:59Z")
    say(server, MOUNT, uid=BOUND.uid, reason="FailedMount")
    say(server, "of another pod", uid="other", lastTimestamp="2026-11-16T12:30:00Z")
    said = refusals.ask_kubelet(BOUND, AttemptMemory())
    assert said == f"pod train-worker-0 does not start: FailedMount: {MOUNT}"


def test_where_its_kubelet_says_nothing_nothing_is_made_up(server: ApiServer, refusals: Refusals, clock: Clock) -> None:
    assert refusals.ask_kubelet(BOUND, AttemptMemory()) == ""
    clock.now += AGAIN_S
    assert isinstance(server.faults, Scripted)
    server.faults.answers.extend([Fault.SERVER_ERROR] * 10)
    assert refusals.ask_kubelet(BOUND, AttemptMemory(refused=MOUNT)) == MOUNT


def test_a_kubelet_is_asked_after_a_while(refusals: Refusals, clock: Clock) -> None:
    memory = AttemptMemory(starts_since=clock.now)
    clock.now += SLOW_S - 0.1
    assert not refusals.is_slow(memory)
    clock.now += 0.1
    assert refusals.is_slow(memory)
