"""What is told to whom, when, and how often: against an API server on loopback."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engines.kubernetes.faults import Fault, Scripted
from store.jobs import new_job
from swell.errors import Unavailable
from swell.kubectl import recorder as teller
from swell.kubectl.events import JobEvents
from swell.model.job import JobState
from swell.model.reason import Code

from .stage import Stage, staged


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as stage:
        yield stage


# -- pods that wait ------------------------------------------------------------------------------------------------


def test_a_pod_that_waits_for_two_seconds_says_why(stage: Stage) -> None:
    job = stage.job(waits="it wants 8 GPUs")
    stage.pod("p", job)
    stage.pass_time(1.9)
    assert stage.writes() == []
    stage.pass_time(0.1)
    assert stage.condition("p") == f"job {job}: WaitingForRoom: it wants 8 GPUs"
    assert stage.events("p") == [("Waiting", f"job {job}: WaitingForRoom: it wants 8 GPUs", 1)]


def test_what_a_pod_says_already_is_not_said_again(stage: Stage) -> None:
    stage.pod("p", stage.job(waits="it wants 8 GPUs"))
    stage.pass_time(2)
    stage.follow_up()
    before = stage.writes()
    for _ in range(5):
        stage.pass_time(60)
    assert stage.writes() == before


def test_a_server_that_starts_anew_repeats_nothing(stage: Stage) -> None:
    stage.pod("p", stage.job(waits="it wants 8 GPUs"))
    stage.pass_time(2)
    stage.follow_up()
    before = stage.writes()
    stage.teller = stage.make_teller()
    stage.pass_time(2)
    assert stage.writes() == before


def test_other_words_are_said_after_a_while_and_as_one_event(stage: Stage) -> None:
    job = stage.job(waits="3 GPUs are free")
    stage.pod("p", job)
    stage.pass_time(2)
    stage.follow_up()
    stage.reasons[job] = replace(stage.reasons[job], message="4 GPUs are free")
    stage.pass_time(9)
    assert stage.condition("p") == f"job {job}: WaitingForRoom: 3 GPUs are free"
    stage.pass_time(1)
    assert stage.condition("p") == f"job {job}: WaitingForRoom: 4 GPUs are free"
    assert [count for _, _, count in stage.events("p")] == [1]


def test_an_event_is_said_again_before_the_api_server_forgets_it(stage: Stage) -> None:
    job = stage.job(waits="it wants 8 GPUs")
    stage.pod("p", job)
    stage.pass_time(2)
    stage.follow_up()
    stage.pass_time(1800)
    assert stage.events("p") == [("Waiting", f"job {job}: WaitingForRoom: it wants 8 GPUs", 2)]


def test_another_reason_is_another_event(stage: Stage) -> None:
    job = stage.job(waits="it wants 8 GPUs")
    stage.pod("p", job)
    stage.pass_time(2)
    stage.follow_up()
    stage.reasons[job] = replace(stage.reasons[job], code=Code.WAITING_IN_LINE, message="job 1 is before it")
    stage.pass_time(10)
    assert sorted(stage.events("p")) == [
        ("Waiting", f"job {job}: WaitingForRoom: it wants 8 GPUs", 1),
        ("Waiting", f"job {job}: WaitingInLine: job 1 is before it", 1),
    ]


def test_a_pod_that_was_bound_a_moment_ago_is_not_called_waiting(stage: Stage) -> None:
    stage.pod("p", stage.job(waits="it wants 8 GPUs"))
    stage.teller.look()
    stage.clock.time += 2
    stage.teller.look()
    stage.cluster.stop()  # the watch has not shown it yet
    uid = stage.server.storage.get("pods", ("default", "p"))["metadata"]["uid"]
    stage.port.bind("p", "default", uid, "n1")
    stage.drain()
    assert stage.condition("p") == ""
    assert stage.events("p") == []


def test_nobody_hears_of_pods_that_are_gone(stage: Stage) -> None:
    stage.pod("p", stage.job(waits="it wants 8 GPUs"))
    stage.teller.look()
    stage.clock.time += 2
    stage.teller.look()
    stage.delete("pods", "p")
    stage.drain()
    assert stage.writes() == []


def test_a_pod_that_is_refused_says_so(stage: Stage) -> None:
    stage.refused[stage.pod("p")] = "swell.dev/priority must be a number"
    stage.pass_time(2)
    assert stage.condition("p") == "swell.dev/priority must be a number"
    assert stage.events("p") == [("Refused", "swell.dev/priority must be a number", 1)]


def test_a_group_that_is_not_whole_says_what_is_missing(stage: Stage) -> None:
    stage.partial[stage.pod("p")] = "2 of 3 pods are there"
    stage.pass_time(2)
    assert stage.condition("p") == "2 of 3 pods are there"
    assert stage.events("p") == [("Waiting", "2 of 3 pods are there", 1)]


def test_a_pod_is_not_told_of_a_job_whose_number_somebody_wrote_on_it(stage: Stage) -> None:
    job = stage.job(waits="the secret plans of another team")
    stage.pod("p", labels={"swell.dev/job": str(job)})
    stage.pass_time(2)
    assert stage.writes() == []


def test_a_pod_of_ours_that_finds_no_place_says_so_after_five_seconds(stage: Stage) -> None:
    job = stage.job(waits="the node does not answer")
    stage.put(job, JobState.STARTING, Code.STARTING, width=1, attempts=1)
    stage.pod("p", labels={"swell.dev/job": str(job), "swell.dev/store": stage.store.id})
    stage.teller.look()
    stage.pass_time(4.9)
    assert stage.condition("p") == ""
    stage.pass_time(0.1)
    assert stage.condition("p") == f"job {job}: WaitingForRoom: the node does not answer"


def test_a_pod_that_waits_for_a_gate_says_that_itself(stage: Stage) -> None:
    stage.pod("p", stage.job(waits="it wants 8 GPUs"), schedulingGates=[{"name": "quota"}])
    stage.pass_time(2)
    assert stage.writes() == []


def test_what_we_have_told_a_pod_wakes_nobody(stage: Stage) -> None:
    woken: list[object] = []
    stage.pod("p", stage.job(waits="it wants 8 GPUs"))
    stage.cluster._changed = lambda *seen: woken.append(seen)
    stage.pass_time(2)
    stage.follow_up()
    assert stage.condition("p") != ""
    assert woken == []


# -- what has happened ---------------------------------------------------------------------------------------------


def test_what_happens_to_a_job_is_told_to_its_object_once_and_in_order(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=1, attempts=1)
    stage.object("train", job)
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.happen(job, "Yielded", attempt=1, width=4, to_width=2, cause="shrinks from 4 to 2 for job 12")
    stage.happen(job, "Started", attempt=2, width=2, nodes=["n1"])
    stage.pass_time(0)
    stage.happen(job, "Ended", state="succeeded", ran_s=3.0)
    stage.pass_time(0)
    stage.pass_time(0)
    assert stage.events("train") == [
        ("Started", "attempt 1 at width 4 on n1", 1),
        ("Resized", "attempt 1 at width 4 has ended: shrinks from 4 to 2 for job 12", 1),
        ("Started", "attempt 2 at width 2 on n1", 1),
        ("Ended", "succeeded after 3 s", 1),
    ]


def test_history_begins_when_the_server_does(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=1, attempts=1)
    stage.object("train", job)
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.teller = stage.make_teller()
    stage.pass_time(0)
    assert stage.events("train") == []


def test_an_object_that_is_made_a_moment_later_hears_of_its_start(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.STARTING, Code.STARTING, width=1, attempts=1)
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.happen(job, "AskedToYield", when="immediate", cause="scaled to 2 by anna")
    stage.pass_time(0)
    stage.object("train", job)
    stage.pass_time(0)
    assert [reason for reason, _, _ in stage.events("train")] == ["Started", "AskedToYield"]


def test_what_nobody_was_there_to_hear_is_dropped_after_a_while(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.STARTING, Code.STARTING, width=1, attempts=1)
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.pass_time(0)
    stage.pass_time(10.1)
    stage.object("train", job)
    stage.pass_time(0)
    assert stage.events("train") == []


def test_of_a_flood_only_the_newest_are_told(stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    for job in jobs:
        stage.put(job, JobState.RUNNING, width=1, attempts=1)
        for number in range(5):
            stage.happen(job, "Started", attempt=number, width=1, nodes=["n1"])
    for number, job in enumerate(jobs):
        stage.object(f"train-{number}", job)
    stage.view.look()
    history = JobEvents(stage.view, kept_max=10)
    history.look()
    while history.tell():
        pass
    assert [len(stage.events(f"train-{number}")) for number in range(3)] == [0, 5, 5]


# -- why an object's job waits -------------------------------------------------------------------------------------


def test_an_object_says_why_its_job_waits_when_it_has_waited_for_a_moment(stage: Stage) -> None:
    job = stage.job(waits="it wants 8 GPUs")
    stage.put(job, JobState.QUEUED, Code.WAITING_FOR_ROOM, attempts=1)
    stage.object("train", job)
    stage.pass_time(1.9)
    assert stage.events("train") == []
    stage.pass_time(0.1)
    stage.pass_time(600)
    assert stage.events("train") == [("Waiting", "WaitingForRoom: it wants 8 GPUs", 1)]
    stage.pass_time(1200)
    assert stage.events("train") == [("Waiting", "WaitingForRoom: it wants 8 GPUs", 2)]


def test_nothing_is_told_where_somebody_else_wrote_our_labels(stage: Stage) -> None:
    job = stage.job(waits="the secret plans of another team")
    stage.put(job, JobState.QUEUED, Code.WAITING_FOR_ROOM, attempts=1)
    stage.object("train", job, namespace="elsewhere")
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.pass_time(2)
    stage.pass_time(1)
    assert stage.writes() == []


# -- annotations ---------------------------------------------------------------------------------------------------


def test_annotations_follow_a_job_and_say_only_what_lasts(stage: Stage) -> None:
    job = stage.job()
    stage.object("train", job)
    stage.put(job, JobState.STARTING, Code.STARTING, width=4, attempts=1)
    stage.teller.look()
    stage.put(job, JobState.RUNNING, width=4, attempts=1)
    stage.pass_time(1)
    running = {"swell.dev/job-id": str(job), "swell.dev/state": "running", "swell.dev/width": "4"}
    assert stage.annotations("jobs", "train") == running
    stage.put(job, JobState.QUEUED, Code.WAITING_FOR_ROOM, attempts=1)
    stage.pass_time(1)
    queued = {"swell.dev/job-id": str(job), "swell.dev/state": "queued", "swell.dev/reason": "WaitingForRoom"}
    assert stage.annotations("jobs", "train") == queued
    stage.pass_time(1)
    assert [request.method for request in stage.writes()] == ["PATCH", "PATCH"]


def test_an_object_that_was_made_again_is_told_again(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=4, attempts=1)
    stage.object("train", job)
    stage.pass_time(1)
    stage.delete("jobs", "train")
    stage.object("train", job)
    stage.pass_time(1)
    assert stage.annotations("jobs", "train")["swell.dev/state"] == "running"


def test_the_last_word_is_how_it_ended(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=4, attempts=1)
    stage.object("train", job)
    stage.pass_time(1)
    stage.put(job, JobState.FAILED, Code.TASK_FAILED, attempts=1)
    stage.pass_time(1)
    told = stage.annotations("jobs", "train")
    assert told == {"swell.dev/job-id": str(job), "swell.dev/state": "failed", "swell.dev/reason": "TaskFailed"}
    before = stage.writes()
    stage.pass_time(1)
    assert stage.writes() == before


def test_what_came_by_kubectl_is_told_before_it_has_ever_run(stage: Stage) -> None:
    job = stage.job(waits="it wants 8 GPUs")
    uid = stage.pod("p", job)
    stage.references[job] = {
        "kind": "Pods",
        "metadata": {"name": "p", "namespace": "default", "uid": uid},
        "pods": [{"name": "p", "uid": uid}],
    }
    stage.pass_time(1)
    assert stage.annotations("pods", "p")["swell.dev/reason"] == "WaitingForRoom"


# -- troubles ------------------------------------------------------------------------------------------------------


def test_a_role_that_lacks_a_verb_is_logged_once_and_the_rest_is_told(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    stage.server.denied["POST", "events"] = 'User "swell" cannot create resource "events" in API group ""'
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=4, attempts=1)
    stage.object("train", job)
    for attempt in range(3):
        stage.happen(job, "Started", attempt=attempt, width=4, nodes=["n1"])
        stage.pass_time(1)
    assert stage.annotations("jobs", "train")["swell.dev/state"] == "running"
    assert [record.levelname for record in caplog.records if "are not told" in record.message] == ["WARNING"]


def test_what_a_failing_api_server_has_not_heard_is_said_later(stage: Stage) -> None:
    job = stage.job()
    stage.put(job, JobState.RUNNING, width=4, attempts=1)
    stage.object("train", job)
    stage.happen(job, "Started", attempt=1, width=4, nodes=["n1"])
    stage.teller.look()
    stage.server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    with pytest.raises(Unavailable):
        stage.drain()
    stage.server.faults = Scripted()
    stage.pass_time(1)
    assert [reason for reason, _, _ in stage.events("train")] == ["Started"]
    assert stage.annotations("jobs", "train")["swell.dev/state"] == "running"


def test_it_is_never_said_faster_than_a_bounded_pace(stage: Stage) -> None:
    """Each turn is a condition and its Event, so that twenty pods take at least nineteen turns."""
    job = stage.job(waits="it wants 8 GPUs")
    for number in range(20):
        stage.pod(f"p{number}", job)
    stage.teller.look()
    stage.clock.time += 2
    began = time.monotonic()
    stage.teller.start()
    try:
        stage.until(lambda: len(stage.writes()) >= 40)
    finally:
        stage.teller.close()
    assert time.monotonic() - began >= 19 / teller.TURNS_PER_S


# -- what could not be read, and what has no effect ------------------------------------------------------------------


def odd_job(scheduler: str) -> dict[str, object]:
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}
    return {"spec": {"template": {"spec": {"schedulerName": scheduler, "containers": [container]}}}}


def test_an_object_that_cannot_be_read_is_told_so_once_where_it_is_ours_to_speak(stage: Stage) -> None:
    stage.create("jobs", "ours", odd_job("swell"))
    stage.create("jobs", "theirs", odd_job("default-scheduler"))
    stage.create("jobs", "elsewhere", odd_job("swell"), namespace="taken")
    stage.others = {"taken"}
    stage.until(lambda: len(stage.cluster.unreadable()) == 3)
    for _ in range(3):
        stage.pass_time(5.0)
    said = (
        "Swell cannot read it, and leaves it alone until it changes: nvidia.com/gpu: '0.5' is not a whole number of "
        "GPUs, and no pod can be made with it; write nvidia.com/gpu: 1"
    )
    assert stage.events("ours") == [("Unreadable", said, 1)]
    assert (stage.events("theirs"), stage.events("elsewhere")) == ([], [])
    stage.pass_time(1800.0)
    assert stage.events("ours") == [("Unreadable", said, 2)]


def test_what_has_no_effect_on_something_that_came_by_kubectl_is_told_on_it(stage: Stage) -> None:
    """Who submits hears it at once; who uses kubectl heard nothing."""
    noted = replace(new_job(), spec=replace(new_job().spec, notes=("one has no effect", "nor has the other")))
    records = stage.store.accept_each({"a": noted, "b": new_job()}, origin="kubectl").result()
    for name, record in zip(("noted", "plain"), records, strict=True):
        assert record is not None
        uid = stage.pod(name, record.id)
        stage.references[record.id] = {"kind": "Pods", "metadata": {"uid": uid}, "pods": [{"uid": uid}]}
    stage.pass_time(1.0)
    assert stage.events("noted") == [("Noted", "one has no effect; nor has the other", 1)]
    assert stage.events("plain") == []


def test_who_uses_us_where_we_may_do_nothing_silences_us_nowhere_else(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """One pod in a namespace that Swell was not given kept all others from hearing why they wait, for ten minutes."""
    for verb, plural in (("PATCH", "pods"), ("POST", "events")):
        said = f'User "swell" cannot {verb.lower()} resource "{plural}" in API group ""'
        stage.server.denied[verb, plural, "elsewhere"] = said
    spec = {"schedulerName": "swell", "containers": [{"name": "main", "image": "i"}]}
    theirs = stage.create("pods", "theirs", {"spec": spec, "status": {"phase": "Pending"}}, namespace="elsewhere")
    stage.until(lambda: bool(stage.cluster.pods([theirs])))
    stage.create("jobs", "odd", odd_job("swell"), namespace="elsewhere")
    stage.until(lambda: len(stage.cluster.unreadable()) == 1)
    stage.refused[theirs] = "not for us"
    stage.pass_time(3.0)
    stage.refused[stage.pod("ours")] = "no"
    stage.create("jobs", "odd", odd_job("swell"))
    stage.until(lambda: len(stage.cluster.unreadable()) == 2)
    stage.pass_time(30.0)
    assert (stage.condition("ours"), len(stage.events("odd"))) == ("no", 1)
    assert sum("are not told" in message for message in caplog.messages) == 2
