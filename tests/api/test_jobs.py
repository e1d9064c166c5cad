"""Jobs over HTTP: submitting, finding, waiting, cancelling, deleting."""

from __future__ import annotations

import threading
import time
import tracemalloc
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from api.service import USER, WORKER, Answer, submission
from swell.store import Changes

STATES = {"queued", "held", "starting", "running", "stopping", "succeeded", "failed", "cancelled"}
HUGE = "9" * 40


def test_a_submission_is_answered_with_its_jobs(service):
    answer = service.ask("POST", "/jobs", submission("hello", gpus="1..2", priority=3))
    assert answer.status == 201
    [job] = answer.json["jobs"]
    assert (job["name"], job["user"], job["state"], job["priority"]) == ("hello", "ann", "queued", 3)
    assert (job["width_min"], job["width_max"], job["exit_code"], job["nodes"]) == (1, 2, None, [])
    assert set(job["reason"]) == {"code", "message", "evidence", "next"}
    submitted = datetime.fromisoformat(job["submitted_at"])
    assert submitted.tzinfo == UTC
    assert job["submitted_at"].endswith("Z")
    service.ask("POST", f"/jobs/{job['id']}/cancel")


def test_a_file_of_several_jobs_is_accepted_whole_or_not_at_all(service):
    one = "apiVersion: swell/v1\nkind: Job\nspec: {command: ['true']}\n"
    good = service.ask("POST", "/jobs", {"manifest": f"{one}---\n{one}", "workdir": "/"})
    assert (good.status, len(good.json["jobs"])) == (201, 2)
    before = {job["id"] for job in service.ask("GET", "/jobs?all=1").json["jobs"]}
    bad = service.ask("POST", "/jobs", {"manifest": f"{one}---\n{one}bad: 1\n", "workdir": "/"})
    assert bad.error[:2] == (422, "Rejected")
    assert bad.error[2].startswith("document 2 of 2: line 8: the manifest has no field 'bad'")
    assert {job["id"] for job in service.ask("GET", "/jobs?all=1").json["jobs"]} == before


def test_a_dry_run_answers_with_what_would_be_asked_for_and_accepts_nothing(service):
    before = len(service.ask("GET", "/jobs?all=1").json["jobs"])
    answer = service.ask("POST", "/jobs", {**submission("dry", gpus=2), "dry_run": True})
    assert answer.status == 200
    [spec] = answer.json["specs"]
    assert (spec["name"], spec["workdir"], spec["width_max"], spec["env"]) == ("dry", "/work", 2, {})
    assert len(service.ask("GET", "/jobs?all=1").json["jobs"]) == before


def test_what_if_says_whether_and_when_a_job_would_start_and_accepts_nothing(service):
    before = len(service.ask("GET", "/jobs?all=1").json["jobs"])
    answer = service.ask("POST", "/jobs", {**submission("asked"), "what_if": True})
    assert answer.status == 200
    [found] = answer.json["what_if"]
    assert (found["name"], found["fits"], found["problem"], found["changes"]) == ("asked", True, None, [])
    assert len(service.ask("GET", "/jobs?all=1").json["jobs"]) == before


def test_what_if_is_asked_about_some_jobs_and_not_thousands(service):
    one = "apiVersion: swell/v1\nkind: Job\nspec: {command: ['true']}\n"
    answer = service.ask("POST", "/jobs", {"manifest": "---\n".join([one] * 101), "workdir": "/", "what_if": True})
    assert answer.error == (422, "Rejected", "there are 101 jobs; ask about at most 100 at once")


def test_the_same_key_again_is_the_same_job_and_another_body_a_conflict(service):
    key = {"Idempotency-Key": "once"}
    first = service.ask("POST", "/jobs", submission("once"), headers=key)
    again = service.ask("POST", "/jobs", submission("once"), headers=key)
    assert (first.status, again.status) == (201, 201)
    assert again.json["jobs"][0]["id"] == first.json["jobs"][0]["id"]
    other = service.ask("POST", "/jobs", submission("other"), headers=key)
    assert other.error == (
        409,
        "Conflict",
        "the idempotency key 'once' was already used for another submission; use a new key for a new job",
    )


def test_without_a_key_the_same_body_is_another_job(service):
    assert service.submit("same") != service.submit("same")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/jobs", {"manifets": "x"}, "the request has no field 'manifets'; did you mean 'manifest'? (known: commit, "),
        (
            "/jobs",
            {"colour": "x"},
            "the request has no field 'colour'; known: commit, dry_run, env, files, in_images, manifest, render",
        ),
        ("/jobs/1/cancel", {"grace": 1}, "the request has no field 'grace'; did you mean 'grace_s'? (known: grace_s)"),
        ("/jobs/1/cancel", {"grace_s": -1}, "grace must be at least 0, but is -1"),
        (
            "/jobs/1/cancel",
            {"grace_s": "soon"},
            "grace must be a number, but is ",
        ),
    ],
)
def test_a_misspelt_field_of_a_request_is_refused_and_the_right_one_named(service, path, body, said):
    full = {**body, "manifest": "x", "workdir": "/"} if path == "/jobs" else body
    status, kind, message = service.ask("POST", path, full).error
    assert (status, kind, message[: len(said)]) == (422, "Rejected", said)


def sent(**fields: Any) -> dict[str, Any]:
    return {"manifest": {}, "workdir": "/", **fields}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is not valid JSON: "),
        (b"\xff\xfe", "the body is not valid JSON: "),
        (b"[" * 100_000, ""),
        (b"", "the request needs a body; /api/v1/openapi.json describes it"),
        ({"manifest": "x"}, "the request needs the field 'workdir'; known: manifest, files, workdir, umask, env, "),
        ({"workdir": "/"}, "the request needs the field 'manifest'; known: "),
        (sent(workdir="here"), "workdir 'here' is not an absolute path; send the caller's folder in full"),
        (sent(workdir="/" + "x" * 5000), "workdir is longer than 4096 bytes, more than the system can use"),
        (sent(workdir="/a\0b"), "workdir holds a null character, which no program can be given"),
        (sent(umask=4096), "umask must be at most 511, but is 4096"),
        (sent(env={"A": 5}), "env.A must be text, but is 5"),
        (sent(env=["A"]), "env must be a mapping of names to values, but is a list: ['A']"),
        (sent(env={"A": "b\0"}), "env: the variable 'A' holds a null character, which no program can be given"),
        (sent(env={"A": "\ud800"}), "env: the variable 'A' is not valid Unicode text: 'A=\\ud800'"),
        (sent(manifest="\ud800"), "the manifest is not valid Unicode text; save it as UTF-8"),
        (sent(manifest={"apiVersion": "\ud800"}), "nothing here can run 'apiVersion: \\ud800, kind: None'"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_and_says_where(service, body, said):
    status, kind, message = service.ask("POST", "/jobs", body).error
    assert status in (400, 422)
    assert (kind, message[: len(said)]) == ("Rejected", said)


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 950])
def test_a_deeply_nested_document_is_refused_not_a_crash(service, depth):
    nested = "[" * depth + "]" * depth
    job = f'{{"apiVersion": "swell/v1", "kind": "Job", "spec": {{"command": {nested}}}}}'
    body = f'{{"workdir": "/", "manifest": {job}}}'
    status, _, _ = service.ask("POST", "/jobs", body.encode()).error
    assert status in (400, 422)


def test_bytes_that_are_no_utf8_come_back_as_they_went_in(service):
    """A command or a variable with such bytes ended in 'Swell has a bug here'."""
    body = submission("bytes", command=["cat", "caf\udce9"], env={"A": "\udcff"})
    answer = service.ask("POST", "/jobs", body, headers={"Idempotency-Key": "bytes"})
    assert answer.status == 201
    job = answer.json["jobs"][0]["id"]
    assert service.ask("GET", f"/jobs/{job}/show").json["spec"]["roles"][0]["command"] == ["cat", "caf\udce9"]
    digest = service.store.job(job).environment
    assert service.ask("GET", f"/workers/environments/{digest}", token=WORKER).json == {"A": "\udcff"}


def test_the_callers_environment_is_given_to_workers_only_and_appears_nowhere_else(service):
    job = service.submit("secretive", env={"PASSWORD": "hunter2"})
    digest = service.store.job(job).environment
    for path in (f"/jobs/{job}", f"/jobs/{job}/show", "/jobs?all=1", "/events", "/server", "/nodes"):
        assert b"hunter2" not in service.ask("GET", path).data
    assert service.ask("GET", f"/workers/environments/{digest}", token=WORKER).json == {"PASSWORD": "hunter2"}
    assert service.ask("GET", f"/workers/environments/{digest}", token=USER).status == 403
    missing = service.ask("GET", f"/workers/environments/{'0' * 64}", token=WORKER)
    assert missing.status == 404


def test_a_name_means_the_newest_job_for_reading_and_must_be_clear_for_changing(service):
    first, second = service.submit("twin", gpus=99), service.submit("twin", gpus=99)
    assert service.ask("GET", "/jobs/twin").json["id"] == second
    said = f"2 jobs are named 'twin'; name the job by id: {second}, {first}"
    assert service.ask("POST", "/jobs/twin/cancel").error == (409, "Conflict", said)
    service.ask("POST", f"/jobs/{first}/cancel")
    service.until(first, "cancelled")
    assert service.ask("POST", "/jobs/twin/cancel").json["id"] == second
    service.until(second, "cancelled")
    assert service.ask("DELETE", "/jobs/twin").error == (409, "Conflict", said)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("ref", ["999999", HUGE, "no-such-job", "²", "٣", "%00", "a%2Fb", "..", "%ff", "x" * 3000])
def test_a_job_that_does_not_exist_is_not_found_whatever_it_is_called(service, method, ref):
    service.submit("somebody", gpus=99)
    path = f"/jobs/{ref}" + ("/cancel" if method == "POST" else "")
    answer = service.ask(method, quote(path, safe="/%"))
    assert answer.status == 404
    assert answer.json["error"]["message"].startswith("there is no ")


def test_a_misspelt_name_is_answered_with_the_nearest(service):
    service.submit("resnet-training", gpus=99)
    status, _, said = service.ask("GET", "/jobs/resnet-trainnig").error
    assert status == 404
    assert said.startswith("there is no job 'resnet-trainnig'; did you mean 'resnet-training'?")


def test_an_unknown_address_says_where_the_list_is(service):
    answer = service.ask("GET", "/jbos")
    assert answer.error == (404, "NotFound", "there is no GET /api/v1/jbos; /api/v1/openapi.json lists the endpoints")
    assert service.ask("PUT", "/jobs").status == 405


@pytest.mark.parametrize(
    "query",
    [
        "/jobs?limit=0",
        f"/jobs?limit={HUGE}",
        "/jobs?limit=x",
        "/jobs/1?wait_s=61&after=1",
        "/jobs/1?wait_s=nan&after=1",
        "/jobs/1?wait_s=-1&after=1",
        "/events?limit=1001",
        f"/events?after={HUGE}",
        f"/jobs/1?after={HUGE}",
        f"/jobs/1/exec?rank={HUGE}",
        "/events?after=-1",
        f"/events/stream?after={HUGE}",
        f"/jobs/1/logs?offset={HUGE}",
        f"/jobs/1/logs?offset=-{HUGE}",
        f"/jobs/1/logs?attempt={HUGE}",
        "/jobs/1/logs?attempt=0",
        "/jobs/1/logs?limit=0",
        "/jobs/1/logs?limit=99999999",
    ],
)
def test_a_number_out_of_range_is_refused_not_a_crash(service, query):
    service.submit()
    assert service.ask("GET", query).error[:2] == (422, "Rejected")


@pytest.mark.parametrize("query", ["/jobs/1/logs?since=nan", "/jobs/1/logs?since=1e300"])
def test_an_odd_number_that_still_means_something_is_answered(service, query):
    service.submit()
    assert service.ask("GET", query).status == 200


def test_a_listing_says_how_many_it_leaves_out(service):
    for _ in range(3):
        service.submit("many", gpus=99)
    listed = service.ask("GET", "/jobs?limit=2").json
    assert len(listed["jobs"]) == 2
    assert listed["not_shown"] >= 1
    assert sum(listed["states"].values()) == 2 + listed["not_shown"]
    assert listed["states"]["queued"] >= 3
    assert {job["state"] for job in service.ask("GET", "/jobs?all=true").json["jobs"]} <= STATES
    nothing = {"jobs": [], "not_shown": 0, "states": {}, "of_others": 0}
    assert service.ask("GET", "/jobs?user=nobody").json == nothing


def test_a_long_poll_answers_as_soon_as_the_job_changes(service):
    job = service.submit("watched", gpus=99)
    seen = service.ask("GET", f"/jobs/{job}").json["version"]
    answers: list[Answer] = []
    began = time.monotonic()
    waiter = threading.Thread(target=lambda: answers.append(service.ask("GET", f"/jobs/{job}?after={seen}&wait_s=8")))
    waiter.start()
    service.ask("POST", f"/jobs/{job}/cancel")
    waiter.join(10)
    assert answers[0].json["version"] > seen
    assert time.monotonic() - began < 5


def test_a_long_poll_without_a_change_answers_with_the_same(service):
    job = service.submit("quiet", gpus=99)
    found = service.ask("GET", f"/jobs/{job}?after=1000000&wait_s=0.05").json
    assert found["id"] == job


def test_a_queued_job_that_is_cancelled_leaves_the_queue_and_says_who(service):
    job = service.submit("leaving", gpus=99)
    assert service.ask("POST", f"/jobs/{job}/cancel", {"grace_s": 5}).status == 200
    found = service.until(job, "cancelled")
    assert (found["reason"]["code"], found["reason"]["message"]) == ("Cancelled", "cancelled by ann")
    assert found["ended_at"] is not None
    kinds = [event["kind"] for event in service.ask("GET", f"/events?job={job}").json["events"]]
    assert kinds == ["Submitted", "CancelRequested", "Ended"]


def test_cancelling_what_has_ended_leaves_it_as_it_is(service):
    job = service.submit("gone", gpus=99)
    service.ask("POST", f"/jobs/{job}/cancel")
    before = service.until(job, "cancelled")
    assert service.ask("POST", f"/jobs/{job}/cancel").json == before


def test_a_job_that_has_not_ended_is_not_deleted_and_says_what_to_do_first(service):
    job = service.submit("alive", gpus=99)
    said = f"job {job} (alive) is queued; cancel it first: swell cancel {job}"
    assert service.ask("DELETE", f"/jobs/{job}").error == (409, "Conflict", said)
    assert service.ask("GET", f"/jobs/{job}").status == 200


def test_a_deleted_job_is_gone_with_its_logs_and_its_events_stay(service):
    job = service.submit("deleted")
    service.worker.begin(job, b"hello\n")
    service.worker.end(job)
    folder = service.state.tasks / f"{job}.1"
    assert folder.exists()
    assert service.ask("DELETE", f"/jobs/{job}").status == 204
    assert not folder.exists()
    assert service.ask("GET", f"/jobs/{job}").status == 404
    kinds = [event.kind for event in service.store.events(job=job)]
    assert (kinds[0], kinds[-1]) == ("Submitted", "Deleted")


def test_everything_about_a_job_is_shown(service):
    job = service.submit("shown", gpus=2)
    service.worker.begin(job)
    service.worker.end(job, 3)
    shown = service.ask("GET", f"/jobs/{job}/show").json
    [attempt] = shown["attempts"]
    assert (attempt["number"], attempt["width"], attempt["outcome"]) == (1, 2, "failed")
    [place] = attempt["placements"]
    assert (place["task"], place["node"], len(place["devices"])) == (0, "box", 2)
    assert [(task["index"], task["exit_code"]) for task in attempt["tasks"]] == [(0, 3)]
    assert shown["spec"]["roles"][0]["command"] == ["true"]
    assert [event["kind"] for event in shown["events"]][:2] == ["Submitted", "Started"]
    assert shown["reason"]["code"] == "TaskFailed"


def test_a_report_that_cannot_be_read_is_refused_and_says_so(service):
    for body in ({"node": {}, "version": 0}, {"node": {"id": "x"}, "version": 0, "tasks": [["x"]]}):
        status, kind, said = service.ask("POST", "/workers/sync", body, token=WORKER).error
        assert (status, kind) == (422, "Rejected")
        assert said.endswith("worker and server must be of one version")


def test_a_worker_of_another_store_is_refused(service):
    body = {"node": {"id": "x", "cpus_milli": 1, "memory_mib": 1, "devices": []}, "version": 0, "store": "other"}
    said = f"this server keeps store {service.store.id}, the worker belongs to other"
    assert service.ask("POST", "/workers/sync", body, token=WORKER).error == (409, "Conflict", said)


def test_nodes_show_what_is_free_and_who_holds_each_gpu(service):
    job = service.submit("holder", gpus=1)
    service.worker.begin(job)
    [node] = service.ask("GET", "/nodes").json["nodes"]
    holders = [gpu["job"] for gpu in node["gpus"]]
    assert (node["name"], job in node["jobs"], job in holders) == ("box", True, True)
    assert all(gpu["simulated"] for gpu in node["gpus"])
    service.worker.end(job)


def test_the_server_says_who_it_is_and_how_many_jobs_it_knows(service):
    service.submit("counted", gpus=99)
    about = service.ask("GET", "/server").json
    assert about["store"] == service.store.id
    assert about["jobs"]["queued"] >= 1


def test_a_long_poll_misses_no_change_while_others_are_committed(service):
    """A waiter that had just looked took a nap of 20 ms; a change in that nap was only seen after 25 s."""
    watched, other = service.submit("patient", gpus=99), service.submit("noisy", gpus=99)
    service.worker.sync()
    service.until_true(watched, lambda job: job["reason"]["code"] == "CannotRunHere")
    for width in range(1, 6):
        seen = service.ask("GET", f"/jobs/{watched}").json["version"]
        answers: list[Answer] = []
        ask = f"/jobs/{watched}?after={seen}&wait_s=8"
        waiter = threading.Thread(target=lambda ask=ask, found=answers: found.append(service.ask("GET", ask)))
        began = time.monotonic()
        waiter.start()
        service.until_waiting()
        service.store.record(Changes(jobs={other: {"width": width}})).result()  # wakes it: nothing for it
        service.store.record(Changes(jobs={watched: {"width": width}})).result()
        waiter.join(10)
        assert answers[0].json["width"] == width
        assert time.monotonic() - began < 4


def test_a_job_that_is_named_many_times_is_cancelled_once(service):
    job = service.submit("one", cpus=1000)
    answer = service.ask("POST", "/jobs/cancel", {"jobs": [str(job), "one", str(job)] * 3000})
    assert [found["id"] for found in answer.json["jobs"]] == [job]
    asked = [event for event in service.ask("GET", f"/events?job={job}").json["events"] if "Cancel" in event["kind"]]
    assert [event["kind"] for event in asked if event["kind"] == "CancelRequested"] == ["CancelRequested"]


def test_more_references_than_one_request_may_have_are_refused_before_any_is_looked_for(service):
    status, kind, message = service.ask("POST", "/jobs/cancel", {"jobs": ["1"] * 10_001}).error
    assert (status, kind) == (422, "Rejected")
    assert message.startswith("jobs must be at most 10000 items long, but is a list:")


def test_an_environment_that_no_program_could_start_with_is_refused(service):
    body = {**submission("large"), "env": {"A": "x" * 1024 * 1024}}
    said = (
        "the environment has 1 variables of 1048579 bytes together; at most 10000 of 1048576 bytes are taken; "
        "unset what the job does not need, or put it into a file"
    )
    assert service.ask("POST", "/jobs", body).error == (413, "TooLarge", said)


def test_of_thousands_of_one_name_a_few_are_read_and_all_are_counted(service):
    one = "apiVersion: swell/v1\nkind: Job\nmetadata: {name: same-name}\nspec: {command: ['true'], cpus: 1000}\n"
    waiting = {"manifest": "---\n".join([one] * 50), "workdir": "/", "wait_for_nodes": True}
    service.ask("POST", "/jobs", waiting)
    status, kind, message = service.ask("POST", "/jobs/same-name/cancel").error
    assert (status, kind) == (409, "Conflict")
    assert message.startswith("50 jobs are named 'same-name'; name the job by id: ")
    assert message.endswith(", …")
    service.ask("POST", "/jobs/cancel", {"all": True})


def test_a_thousand_jobs_that_share_an_environment_take_the_memory_of_one(service):
    """Each had a copy, and each copy was written as text while everybody's changes waited: a second and a gigabyte."""
    env = {f"V{number}": "x" * 100 for number in range(2000)}
    one = "apiVersion: swell/v1\nkind: Job\nspec: {command: ['true'], gpus: 99}\n---\n"
    body = {"manifest": one * 300, "workdir": "/", "env": env, "wait_for_nodes": True}
    tracemalloc.start()
    try:
        answer = service.ask("POST", "/jobs", body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status == 201
    assert peak < 40_000_000
    ids = [str(job["id"]) for job in answer.json["jobs"]]
    assert service.ask("POST", "/jobs/cancel", {"jobs": ids, "grace_s": 0}).status == 200
