"""One server for everybody on a machine: who may ask what, and what they see of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.people import ADMIN, AT_ROOT, NOBODY, OTHER, OWNER, ask, name_of, submit
from api.service import USER, WORKER, Service, submission
from swell.api.box import Box
from swell.api.workers import NOT_ON_A_BOX
from swell.config import parse_config
from swell.machine.state_folder import StateFolder
from swell.model.cluster import Node
from swell.model.launch import node_document

LIMITS = {"limits": {"default": {"queued": 1000, "priority": 9}, "users": {name_of(OTHER): {"queued": 3}}}}

#: (method, path) → body, and the status that owner, another user, an administrator and somebody unknown get.
#: A refusal of a job's state (409) is an answer about it; 404 is none.
ENDPOINTS: dict[tuple[str, str], tuple[Any, tuple[int, int, int, int]]] = {
    ("GET", "/health"): (None, (200, 200, 200, 200)),
    ("GET", "/healthz"): (None, (200, 200, 200, 200)),
    ("GET", "/readyz"): (None, (200, 200, 200, 200)),
    ("GET", "/metrics"): (None, (403, 403, 200, 403)),
    ("GET", "/server"): (None, (200, 200, 200, 403)),
    ("POST", "/server/stop"): (None, (403, 403, 202, 403)),
    ("GET", "/nodes"): (None, (200, 200, 200, 403)),
    ("GET", "/debug/snapshot"): (None, (403, 403, 200, 403)),
    ("GET", "/kinds"): (None, (200, 200, 200, 403)),
    ("GET", "/kinds/schema?name=job"): (None, (200, 200, 200, 403)),
    ("GET", "/usage"): (None, (200, 200, 200, 403)),
    ("GET", "/history"): (None, (200, 200, 200, 403)),
    ("GET", "/history?all_users=true"): (None, (403, 403, 200, 403)),
    ("GET", "/usage?all_users=true"): (None, (403, 403, 200, 403)),
    ("GET", "/events"): (None, (200, 200, 200, 403)),
    ("GET", "/events?job={ref}"): (None, (200, 404, 200, 403)),
    ("GET", "/events/stream"): (None, (200, 200, 200, 403)),
    ("GET", "/events/stream?job={ref}"): (None, (200, 404, 200, 403)),
    ("GET", "/jobs"): (None, (200, 200, 200, 403)),
    ("POST", "/jobs"): (submission("new", gpus=99), (201, 201, 201, 403)),
    ("POST", "/jobs/cancel"): ({"jobs": ["{ref}"]}, (200, 404, 200, 403)),
    ("GET", "/jobs/{ref}"): (None, (200, 404, 200, 403)),
    ("GET", "/jobs/{ref}/show"): (None, (200, 404, 200, 403)),
    ("GET", "/jobs/{ref}/logs"): (None, (200, 404, 200, 403)),
    ("GET", "/jobs/{ref}/exec"): (None, (409, 404, 409, 403)),
    ("DELETE", "/jobs/{ref}"): (None, (409, 404, 409, 403)),
    ("POST", "/jobs/{ref}/cancel"): ({}, (200, 404, 200, 403)),
    ("POST", "/jobs/{ref}/hold"): ({}, (200, 404, 200, 403)),
    ("POST", "/jobs/{ref}/release"): ({}, (409, 404, 409, 403)),
    ("POST", "/jobs/{ref}/requeue"): ({}, (409, 404, 409, 403)),
    ("POST", "/jobs/{ref}/scale"): ({"width": None}, (200, 404, 200, 403)),
    # Jobs of a box run where their files are, and pools serve private servers.
    ("GET", "/jobs/{ref}/outputs"): (None, (422, 422, 422, 403)),
    ("POST", "/files/{what}"): ({}, (422, 422, 422, 403)),
    ("GET", "/files/folders/{folder}"): (None, (422, 422, 422, 403)),
    ("GET", "/pools"): (None, (200, 200, 200, 403)),
    ("POST", "/pools/sync"): ({}, (403, 403, 422, 403)),
    ("POST", "/pools/worker-token"): ({}, (403, 403, 422, 403)),
    ("POST", "/pools/kill"): ({"worker": "none"}, (403, 403, 404, 403)),
    ("POST", "/pools/{name}/stop"): ({}, (403, 403, 404, 403)),
    ("GET", "/doors"): (None, (200, 200, 200, 403)),
    ("POST", "/doors"): ({"name": "nowhere", "port": 0}, (403, 403, 422, 403)),
    ("DELETE", "/doors/{port}"): (None, (403, 403, 404, 403)),
    ("POST", "/doors/address"): ({"name": "genai"}, (201, 201, 201, 403)),
    ("GET", "/doors/addresses"): (None, (200, 200, 200, 403)),
    ("GET", "/doors/addresses?all_users=true"): (None, (403, 403, 200, 403)),
    ("DELETE", "/doors/addresses/{token}"): (None, (404, 404, 404, 403)),
    ("POST", "/job-secret/rotate"): (None, (403, 403, 200, 403)),
    ("GET", "/tokens"): (None, (200, 200, 200, 403)),
    ("GET", "/tokens?all_users=true"): (None, (403, 403, 200, 403)),
    ("POST", "/tokens"): ({"name": "{unique}"}, (201, 201, 201, 403)),
    ("DELETE", "/tokens/{token}"): (None, (404, 404, 404, 403)),
    # These want a token of their own, whoever asks.
    ("POST", "/workers/sync"): ({}, (401, 401, 401, 401)),
    ("GET", "/workers/environments/{digest}"): (None, (401, 401, 401, 401)),
    ("POST", "/workers/logs"): ({}, (401, 401, 401, 401)),
    ("POST", "/workers/leave"): ({}, (401, 401, 401, 401)),
    ("POST", "/attempts/{attempt}/report"): ({}, (401, 401, 401, 401)),
    ("GET", "/attempts/{attempt}/control"): (None, (401, 401, 401, 401)),
    ("POST", "/attempts/{attempt}/trainer-status"): ({}, (401, 401, 401, 401)),
}
SHOWN_OF_OTHERS = {"id", "name", "user", "state", "reason", "priority", "width", "width_min", "width_max", "nodes"} | {
    "width_unit",
    "tasks_beside",
    "is_array",
    "tasks",
    "submitted_at",
    "started_at",
    "ended_at",
    "ran_s",
    "running_since",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("box")
    people = Box("swell-admin", runtime_folder=StateFolder(folder, folder / "swell.sock").runtime_folder)
    made = Service(folder, box=people, config=parse_config(LIMITS))
    yield made
    made.close()


def filled(value: Any, ref: int) -> Any:
    if isinstance(value, str):
        known = {"{ref}": str(ref), "{attempt}": f"{ref}.1", "{digest}": "0" * 64, "{port}": "1", "{token}": "0" * 10}
        known |= {"{unique}": f"made-{ref}", "{what}": "missing", "{folder}": "0" * 64, "{name}": "none"}
        for name, text in known.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, list):
        return [filled(one, ref) for one in value]
    return {name: filled(one, ref) for name, one in value.items()} if isinstance(value, dict) else value


def test_every_endpoint_is_in_the_table(box):
    paths = ask(box, ADMIN, "GET", "/openapi.json").json["paths"]
    described = {(method.upper(), path.removeprefix("/api/v1")) for path, some in paths.items() for method in some}
    unlisted = {("GET", path) for path in AT_ROOT}
    assert {(method, path.partition("?")[0]) for method, path in ENDPOINTS} == described | unlisted


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_who_may_ask_what(box, method, path):
    body, expected = ENDPOINTS[method, path]
    found = []
    for uid in (OWNER, OTHER, ADMIN, NOBODY):
        job = submit(box, OWNER)
        found.append(ask(box, uid, method, filled(path, job), filled(body, job)).status)
        ask(box, ADMIN, "POST", f"/jobs/{job}/cancel")
    assert tuple(found) == expected


def test_somebody_elses_job_is_answered_as_one_that_never_was(box):
    job = submit(box, OWNER)
    said = ask(box, OTHER, "GET", f"/jobs/{job}").error
    assert said == (404, "NotFound", f"there is no job {job}; `swell ps -a` lists all")
    assert said[2].replace(str(job), "999999") == ask(box, OTHER, "GET", "/jobs/999999").error[2]


def test_a_listing_is_of_ones_own_jobs_unless_it_says_whose(box):
    mine, theirs = submit(box, OTHER, "mine"), submit(box, OWNER, "theirs")
    ids = {
        which: {job["id"] for job in ask(box, OTHER, "GET", f"/jobs?{which}").json["jobs"]} & {mine, theirs}
        for which in ("", "all_users=true", f"user={name_of(OWNER)}", "lines=false")
    }
    assert list(ids.values()) == [{mine}, {mine, theirs}, {theirs}, {mine}]
    ask(box, OTHER, "POST", f"/jobs/{mine}/cancel")


def test_of_others_the_queue_shows_who_waits_for_what_and_nothing_else(box):
    job = submit(box, OWNER, "secret-metrics", priority=3)
    box.until_true(job, lambda found: found["reason"]["code"] != "NotYetPlanned")
    [seen] = [one for one in ask(box, OTHER, "GET", "/jobs?all_users=true").json["jobs"] if one["id"] == job]
    own = box_document(box, OWNER, job)
    assert {name for name, value in seen.items() if value == own[name]} >= SHOWN_OF_OTHERS - {"reason"}
    assert seen["reason"] == {"code": own["reason"]["code"], "message": "", "evidence": {}, "next": ""}
    hidden = {name: seen[name] for name in seen.keys() - SHOWN_OF_OTHERS}
    assert hidden == {
        "expected_start": None,
        "progress": {"epochs_done": None, "epochs_total": None, "expected_end_at": None},
        "metrics": {},
        "attempts": 0,
        "resizes": 0,
        "preemptions": 0,
        "failures": 0,
        "lost_gpu_seconds": 0.0,
        "exit_code": None,
        "version": 0,
    }


def box_document(box: Service, uid: int, job: int) -> dict[str, Any]:
    return dict(ask(box, uid, "GET", f"/jobs/{job}").json)


def test_metrics_are_for_administrators(box):
    said = f"metrics show each user's usage and are for administrators; you are '{name_of(OWNER)}'"
    assert ask(box, OWNER, "GET", "/metrics").error == (403, "Denied", said)


def test_a_name_means_ones_own_job_also_for_an_administrator(box):
    old = submit(box, OTHER, "same")
    new = submit(box, OWNER, "same")
    assert box_document(box, OTHER, "same")["id"] == old
    assert box_document(box, OWNER, "same")["id"] == new
    assert ask(box, ADMIN, "GET", "/jobs/same").status == 404
    assert ask(box, ADMIN, "POST", "/jobs/same/cancel").status == 404
    ask(box, OTHER, "POST", f"/jobs/{old}/cancel")


def test_nobody_waits_for_somebody_elses_job(box):
    theirs = submit(box, OWNER, "prepare")
    for after in ("prepare", theirs):
        answer = ask(box, OTHER, "POST", "/jobs", submission("next", after=after))
        assert answer.status in (404, 422)
        assert "there is no job" in answer.json["error"]["message"]


def test_all_is_ones_own_and_an_administrator_says_whose(box):
    theirs, mine = submit(box, OWNER), submit(box, OTHER)
    ended = ask(box, OTHER, "POST", "/jobs/cancel", {"all": True}).json["jobs"]
    assert {job["user"] for job in ended} == {name_of(OTHER)}
    assert mine in {job["id"] for job in ended}
    assert ask(box, ADMIN, "POST", "/jobs/cancel", {"all": True}).error == (
        422,
        "Rejected",
        "name the users whose jobs to cancel: user: NAME, or all_users: true",
    )
    for body in ({"all": True, "user": name_of(OWNER)}, {"all": True, "all_users": True}):
        assert ask(box, OTHER, "POST", "/jobs/cancel", body).error == (
            403,
            "Denied",
            f"only an administrator of this machine may cancel other users' jobs; you are {name_of(OTHER)!r}",
        )
    assert box_document(box, OWNER, theirs)["state"] == "queued"
    ended = ask(box, ADMIN, "POST", "/jobs/cancel", {"all": True, "user": name_of(OWNER)}).json["jobs"]
    assert theirs in {job["id"] for job in ended}


def test_everybody_has_idempotency_keys_of_their_own(box):
    body = submission("keyed", gpus=99)
    first = ask(box, OWNER, "POST", "/jobs", body, idempotency_key="k").json["jobs"][0]
    again = ask(box, OWNER, "POST", "/jobs", body, idempotency_key="k").json["jobs"][0]
    other = ask(box, OTHER, "POST", "/jobs", body, idempotency_key="k").json["jobs"][0]
    assert (first["id"] == again["id"], first["id"] == other["id"]) == (True, False)
    assert (first["user"], other["user"]) == (name_of(OWNER), name_of(OTHER))
    ask(box, OTHER, "POST", f"/jobs/{other['id']}/cancel")


def test_who_has_as_many_jobs_waiting_as_they_may_have_is_told_so(box):
    jobs = [submit(box, OTHER) for _ in range(3)]
    assert ask(box, OTHER, "POST", "/jobs", submission("more")).error == (
        429,
        "TooMany",
        (
            f"{name_of(OTHER)!r} may have 3 jobs waiting and has 3, so 1 more cannot be taken; "
            "wait until some have started, cancel some, or submit an array, which counts as one job"
        ),
    )
    assert submit(box, OWNER)
    ask(box, OTHER, "POST", "/jobs/cancel", {"jobs": [str(job) for job in jobs]})


def test_events_are_of_ones_own_jobs_and_say_who_asked_and_from_where(box):
    job = submit(box, OWNER)
    ask(box, ADMIN, "POST", f"/jobs/{job}/hold")
    told = [
        (event["kind"], event["actor"], event["origin"])
        for event in ask(box, OWNER, "GET", f"/events?job={job}").json["events"]
        if event["origin"]
    ]
    assert told == [
        ("Submitted", name_of(OWNER), f"pid 4711 uid {OWNER}"),
        ("HoldRequested", "root", f"pid 4711 uid {ADMIN}"),
    ]
    of_others = ask(box, OTHER, "GET", "/events").json["events"]
    assert job not in {event["job"] for event in of_others}
    assert job in {event["job"] for event in ask(box, ADMIN, "GET", "/events").json["events"]}


def test_the_socket_wants_its_own_host_and_no_page_of_any_site(box):
    assert ask(box, ADMIN, "GET", "/jobs", host="evil.example").status == 403
    assert ask(box, ADMIN, "GET", "/jobs", host=box.host).status == 403
    assert ask(box, ADMIN, "GET", "/jobs", origin="http://localhost").status == 403


def test_over_tcp_a_box_server_knows_roots_token_only(box):
    job = submit(box, OWNER)
    assert box.ask("GET", f"/jobs/{job}").status == 200
    assert [box.ask("GET", "/jobs", token=token).status for token in (None, "forged", WORKER)] == [401, 401, 403]
    named = {"X-Forwarded-For": "pid 1 uid 0", "X-Forwarded-User": "root", "Forwarded": "for=root"}
    assert box.ask("GET", "/jobs", token=None, headers=named).status == 401
    assert box.ask("GET", "/jobs", token=USER, headers=named).status == 200


def test_whose_number_nobody_has_is_told_so(box):
    assert ask(box, NOBODY, "GET", "/jobs").error == (
        403,
        "Denied",
        f"the user id {NOBODY} has no account on this machine; its administrator can make one",
    )
    assert ask(box, 65534, "GET", "/jobs").status == 403


def test_a_submission_records_as_whom_its_tasks_run(box):
    job = submit(box, OWNER)
    record = box.store.job(job)
    assert (record.owner, record.uid) == (name_of(OWNER), OWNER)


def test_a_worker_on_another_machine_is_refused(box):
    """It could not run a user's task as that user: every job that came there failed, and was not tried again."""
    made = ask(box, ADMIN, "POST", "/tokens", {"name": "elsewhere", "scope": "worker"})
    assert made.status == 201
    report = {"node": node_document(Node("b", 4000, 8192)), "version": 0, "terms": {"lease_s": 600.0}}
    named = {"Swell-Worker": "b", "Swell-Worker-Key": "k" * 40}
    answer = box.ask("POST", "/workers/sync", report, token=made.json["token"], headers=named)
    assert (answer.status, answer.error[2]) == (403, NOT_ON_A_BOX)
    assert "b" not in [node.id for node in box.controller.snapshot.nodes]
