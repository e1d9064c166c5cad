"""genai's workload manager, over the wire: nothing here knows a word of Swell's own API but to set the stage."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from api.service import Service

from .foreign import Foreign, cancel, of_job, of_user, running, with_token


@pytest.fixture
def genai(service: Service) -> Foreign:
    return of_user(service, "genai")


@pytest.fixture
def added(genai: Foreign) -> Any:
    """Adds records of jobs that somebody else runs, and takes them away again."""
    names: list[str] = []

    def add(name: str, **fields: Any) -> dict[str, Any]:
        body = {"job_name": name, "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 2, **fields}
        status, answer = genai.ask("POST", "/add_job", body)
        assert status == 201, answer
        names.append(name)
        return dict(answer["job"])

    yield add
    for name in names:
        genai.ask("DELETE", "/delete_job", {"job_name": name})


def names(answer: tuple[int, Any]) -> list[str]:
    status, found = answer
    assert status == 200, found
    return [record["job_name"] for record in found]


# -- manager -------------------------------------------------------------------------------------------------------


def test_scale_gives_a_job_all_it_can_use_at_once_and_says_so(service, genai):
    with running(service, "small", gpus="2") as small, running(service, "wide", gpus="1..4") as wide:
        assert genai.ask("POST", "/scale/wide") == (409, ["Did not scale", 401])  # it has all that is free
        service.worker.end(small)
        assert genai.ask("POST", "/scale/wide") == (200, ["Scaled", 200])
        service.worker.until_asked(wide, is_stopping=True)
        service.worker.gone(wide, 143, cause="stopped")
        service.worker.begin(wide, attempt=2)
        assert service.ask("GET", f"/jobs/{wide}").json["width"] == 4
        assert service.ask("GET", f"/jobs/{wide}/show").json["wanted_width"] is None  # later it may give room back
        assert genai.ask("POST", "/scale/wide") == (409, ["Did not scale", 401])


def test_a_deployment_waits_once_for_its_plan_however_many_jobs_it_has(service, genai, monkeypatch):
    """It waited for each of them, one after the other: 45 s for ten jobs that stood behind another."""
    monkeypatch.setattr("swell.api.doors.genai.PLANNED_S", 0.5)
    with running(service, "awaited") as first:
        spec = {"command": ["true"], "after": [first]}
        kind = {"apiVersion": "swell/v1", "kind": "Job"}
        jobs = [json.dumps({**kind, "metadata": {"name": f"behind-{n}"}, "spec": spec}) + "\n" for n in range(40)]
        status, answer = genai.ask("POST", "/deploy", "---\n".join(jobs).encode())
        assert (status, answer["message"], len(answer["jobs"])) == (201, "Deployed", 40)
        for one in answer["jobs"]:
            cancel(service, one["job_id"])


def test_scale_without_a_name_takes_the_one_that_loses_least(service, genai):
    with (
        running(service, "rigid", gpus="2") as rigid,
        running(service, "filler", gpus="1") as filler,
        running(service, "older", gpus="1..2"),
    ):
        service.worker.end(filler)
        newer = service.submit("newer", gpus="1..2")
        service.worker.begin(newer)
        for name in ("older", "newer"):
            told = {"job_name": name, "last_checkpoint_time": time.time(), "completed_epochs": 1}
            assert genai.ask("PUT", "/update_last_checkpoint", told)[0] == 200
        assert names(genai.ask("GET", "/get_jobs_by_checkpoint_limit"))[:2] == ["newer", "older"]
        service.worker.end(rigid)
        assert genai.ask("POST", "/scale") == (200, ["Scaled", 200])
        events = service.ask("GET", "/events?limit=1000").json["events"]
        scaled = [event["job"] for event in events if event["kind"] == "ScaleRequested"]
        assert scaled[-1] == newer
        cancel(service, newer)


@pytest.mark.parametrize("path", ["/get_jobs_by_checkpoint_limit", "/get_jobs_by_difference/4"])
def test_a_job_that_waits_is_not_listed_among_those_to_scale(service, genai, path):
    """Who takes the first of this list to scale it got one that had no GPU yet; there nothing ever waited."""
    with running(service, "full", gpus="4"):
        waits = service.submit("waits", gpus="1..4")
        assert "waits" not in names(genai.ask("GET", path))
        assert "waits" in names(genai.ask("GET", "/get_all_jobs"))
        cancel(service, waits)


def test_scale_without_a_name_says_so_when_nobody_gains(service, genai):
    assert genai.ask("POST", "/scale") == (409, ["Did not scale", 401])
    with running(service, "full", gpus="2"):
        assert genai.ask("POST", "/scale") == (409, ["Did not scale", 401])


def test_scale_of_a_job_that_is_not_there_is_a_404_with_an_error(genai):
    status, answer = genai.ask("POST", "/scale/nobody")
    assert (status, answer) == (404, {"error": "there is no job 'nobody'; GET /get_all_jobs lists them"})


def test_older_clients_name_the_job_to_scale_in_the_body(service, genai):
    """The name was not looked at: some other job was scaled, or one that is not there 'did not scale'."""
    assert genai.ask("POST", "/scale", {"name": "nobody"}) == (
        404,
        {"error": "there is no job 'nobody'; GET /get_all_jobs lists them"},
    )
    with running(service, "other", gpus="1..2") as other, running(service, "full", gpus="2"):
        assert genai.ask("POST", "/scale", {"name": "full"}) == (409, ["Did not scale", 401])
        assert genai.ask("POST", "/scale", {"nam": "full"})[0] == 400
        assert "ScaleRequested" not in [event.kind for event in service.store.events(job=other)]


def test_a_job_that_must_not_be_stopped_is_not_scaled(service, genai):
    with running(service, "small", gpus="2") as small, running(service, "stays", gpus="1..4", resize="never"):
        service.worker.end(small)
        assert genai.ask("POST", "/scale/stays") == (409, ["Did not scale", 401])


# -- records -------------------------------------------------------------------------------------------------------


def test_a_job_of_swell_is_a_record(service, genai):
    with running(service, "train", gpus="1..4", epochs=10) as job:
        status, record = genai.ask("GET", "/get_job/train")
        arrived = record["job_arrival_time"]
        assert (status, record) == (
            200,
            {
                "job_name": "train",
                "gpu_req": 1,
                "gpu_lim": 4,
                "gpu_assigned": 4,
                "replicas": 1,
                "total_epochs": 10,
                "job_arrival_time": arrived,
                "last_checkpoint_time": arrived,
                "completed_epochs": 0,
                "time_bw_checkpoints": None,
                "status": "scheduled",
                "restarts": 0,
            },
        )
        assert abs(arrived - time.time()) < 60
        assert genai.ask("GET", f"/get_job/{job}")[1] == record
        service.worker.end(job)
        ended = genai.ask("GET", "/get_job/train")[1]
        assert (ended["status"], ended["gpu_assigned"]) == ("completed", 0)


def test_a_job_that_somebody_else_runs_is_kept_as_it_was_added(genai, added):
    record = added("theirs", replicas=2, total_epochs=5, job_arrival_time=1000.5)
    assert record == {
        "job_name": "theirs",
        "gpu_req": 1,
        "gpu_lim": 4,
        "gpu_assigned": 2,
        "replicas": 2,
        "total_epochs": 5,
        "job_arrival_time": 1000.5,
        "last_checkpoint_time": 1000.5,
        "completed_epochs": 0,
        "time_bw_checkpoints": None,
        "status": "scheduled",
        "restarts": 0,
    }
    assert genai.ask("GET", "/get_job/theirs") == (200, record)
    assert record in genai.ask("GET", "/get_all_jobs")[1]


def test_a_record_without_the_optional_fields_has_defaults(added):
    record = added("plain")
    assert (record["replicas"], record["total_epochs"]) == (1, 0)
    assert abs(record["job_arrival_time"] - time.time()) < 60


@pytest.mark.parametrize("missing", ["job_name", "gpu_req", "gpu_lim", "gpu_assigned"])
def test_a_record_without_a_required_field_is_a_400(genai, missing):
    body = {"job_name": "x", "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 2}
    del body[missing]
    said = f"missing field: {missing} (needed: job_name, gpu_req, gpu_lim, gpu_assigned)"
    assert genai.ask("POST", "/add_job", body) == (400, {"error": said})


def test_a_name_that_is_taken_is_a_400_whoever_runs_it(service, genai, added):
    added("twice")
    again = {"job_name": "twice", "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 2}
    said = "there is a job 'twice' already; choose another job_name, or PUT /update_job"
    assert genai.ask("POST", "/add_job", again) == (400, {"error": said})
    with running(service, "ours"):
        status, answer = genai.ask("POST", "/add_job", {**again, "job_name": "ours"})
        assert (status, answer["error"][:25]) == (400, "there is a job 'ours' alr")


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpu_req", "many"), ("gpu_lim", -1), ("gpu_assigned", 1.5), ("job_name", 7), ("job_arrival_time", True)],
)
def test_a_field_that_is_not_what_it_should_be_is_a_400(genai, field, value):
    body = {"job_name": "x", "gpu_req": 1, "gpu_lim": 4, "gpu_assigned": 2, field: value}
    status, answer = genai.ask("POST", "/add_job", body)
    assert (status, answer["error"].partition(" ")[0]) == (400, field)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff", b"[" * 2000])
def test_what_is_no_json_object_is_a_400(genai, body):
    status, answer = genai.ask("POST", "/add_job", body)
    assert (status, list(answer)) == (400, ["error"])


def test_a_body_that_is_too_large_is_refused(genai):
    assert genai.ask("POST", "/add_job", {"job_name": "x" * 70_000})[0] == 413


def test_several_jobs_of_one_name_are_told_apart_by_id(service, genai):
    with running(service, "same") as first, running(service, "same") as second:
        assert names(genai.ask("GET", "/get_all_jobs")).count("same") == 2
        status, answer = genai.ask("PUT", "/update_job", {"job_name": "same"})
        said = f"2 jobs are named 'same'; name the job by id: {second}, {first}"
        assert (status, answer) == (409, {"error": said})
        assert genai.ask("PUT", "/update_job", {"job_name": str(first)})[0] == 200


# -- checkpoints ---------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_a_swell_job_is_a_report(service, genai):
    with running(service, "train", gpus="1..4") as job:
        began = time.time()
        told = {"job_name": "train", "last_checkpoint_time": began, "completed_epochs": 1.0, "total_epochs": 3}
        status, answer = genai.ask("PUT", "/update_last_checkpoint", told)
        assert (status, answer["message"]) == (200, "Job updated successfully")
        record = answer["job"]
        assert (record["completed_epochs"], record["total_epochs"]) == (1.0, 3.0)
        assert record["last_checkpoint_time"] == pytest.approx(began, abs=1)
        again = {**told, "last_checkpoint_time": time.time(), "completed_epochs": 2.0}
        assert genai.ask("PUT", "/update_last_checkpoint", again)[1]["job"]["time_bw_checkpoints"] >= 0
        training = service.ask("GET", f"/jobs/{job}/show").json["training"]
        assert training["checkpoint"]["epochs_done"] == 2.0
        [measured] = training["profile"]
        assert (measured["width"], measured["epochs"]) == (4, 1)  # two checkpoints tell how long an epoch takes


def test_a_job_that_only_notifies_is_resized_at_its_checkpoint(service, genai):
    """It never asks what to do, so it is stopped right after it has made its work durable."""
    with running(service, "deaf", gpus="1..4") as deaf:
        told = {"job_name": "deaf", "last_checkpoint_time": time.time(), "completed_epochs": 1, "total_epochs": 100}
        assert genai.ask("PUT", "/update_last_checkpoint", told)[0] == 200
        assert service.ask("POST", f"/jobs/{deaf}/scale", {"width": 2}).status == 200
        assert service.until_true(deaf, lambda job: job["state"] == "running")["width"] == 4
        again = {**told, "completed_epochs": 2, "last_checkpoint_time": time.time()}
        assert genai.ask("PUT", "/update_last_checkpoint", again)[0] == 200
        service.worker.until_asked(deaf, is_stopping=True)
        service.worker.gone(deaf, 143, cause="stopped")
        launch = service.worker.until_asked(deaf, 2)
        assert (len(launch["lanes"][0]["devices"]), launch["own"]["EPOCHS_DONE"]) == (2, "2")
        service.worker.begin(deaf, attempt=2)


def test_a_checkpoint_that_goes_backwards_is_a_400(service, genai):
    with running(service, "train"):
        told = {"job_name": "train", "last_checkpoint_time": time.time(), "completed_epochs": 5, "total_epochs": 9}
        assert genai.ask("PUT", "/update_last_checkpoint", told)[0] == 200
        status, answer = genai.ask("PUT", "/update_last_checkpoint", {**told, "completed_epochs": 4})
        assert (status, answer["error"][:19]) == (400, "epochs go backwards")


def test_a_checkpoint_of_a_job_that_does_not_run_is_a_409(service, genai):
    with running(service, "over") as job:
        service.worker.end(job)
        told = {"job_name": "over", "last_checkpoint_time": time.time(), "completed_epochs": 1}
        status, answer = genai.ask("PUT", "/update_last_checkpoint", told)
        said = f"job {job} (over) is succeeded: only a job that runs has something to report"
        assert (status, answer) == (409, {"error": said})


def test_a_checkpoint_of_somebody_elses_job_sets_the_time_since_the_one_before(genai, added):
    added("theirs", job_arrival_time=100)
    told = {"job_name": "theirs", "last_checkpoint_time": 130.5, "completed_epochs": 1.5, "total_epochs": 4}
    status, answer = genai.ask("PUT", "/update_last_checkpoint", told)
    record = answer["job"]
    assert (status, record["time_bw_checkpoints"], record["last_checkpoint_time"]) == (200, 30.5, 130.5)
    assert (record["completed_epochs"], record["total_epochs"]) == (1.5, 4)


@pytest.mark.parametrize("missing", ["job_name", "last_checkpoint_time", "completed_epochs"])
def test_a_checkpoint_without_a_required_field_is_a_400(genai, missing):
    told = {"job_name": "x", "last_checkpoint_time": 1.0, "completed_epochs": 1}
    del told[missing]
    assert genai.ask("PUT", "/update_last_checkpoint", told)[0] == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/update_last_checkpoint"),
        ("PUT", "/update_job_status"),
        ("PUT", "/increment_restarts"),
        ("PUT", "/update_job"),
        ("DELETE", "/delete_job"),
    ],
)
def test_a_name_that_nobody_has_is_a_404(genai, method, path):
    body = {"job_name": "nobody", "last_checkpoint_time": 1, "completed_epochs": 1, "status": "completed"}
    said = "there is no job 'nobody'; GET /get_all_jobs lists them"
    assert genai.ask(method, path, body) == (404, {"error": said})
    assert genai.ask("GET", "/get_job/nobody") == (404, {"error": said})


# -- other changes -------------------------------------------------------------------------------------------------


def test_a_status_is_kept_for_somebody_elses_job(genai, added):
    added("theirs")
    status, answer = genai.ask("PUT", "/update_job_status", {"job_name": "theirs", "status": "completed"})
    assert (status, answer["message"], answer["job"]["status"]) == (200, "Job updated successfully", "completed")
    assert genai.ask("PUT", "/update_job_status", {"job_name": "theirs"})[0] == 400


def test_a_job_that_runs_cannot_be_called_completed(service, genai):
    with running(service, "train") as job:
        status, answer = genai.ask("PUT", "/update_job_status", {"job_name": "train", "status": "completed"})
        said = f"job {job} (train) is running, and Swell detects when it completes; to end it, run: swell cancel {job}"
        assert (status, answer) == (409, {"error": said})
        assert genai.ask("PUT", "/update_job_status", {"job_name": "train", "status": "running"})[0] == 200
        service.worker.end(job)
        assert genai.ask("PUT", "/update_job_status", {"job_name": "train", "status": "completed"})[0] == 200
        assert genai.ask("PUT", "/update_job_status", {"job_name": "train", "status": "scheduled"})[0] == 409


def test_restarts_are_counted_for_somebody_elses_job(service, genai, added):
    added("theirs")
    for count in (1, 2):
        status, answer = genai.ask("PUT", "/increment_restarts", {"job_name": "theirs"})
        assert (status, answer["job"]["restarts"]) == (200, count)
    with running(service, "ours"):
        assert genai.ask("PUT", "/increment_restarts", {"job_name": "ours"})[0] == 409


def test_any_field_of_somebody_elses_job_is_merged(genai, added):
    added("theirs")
    status, answer = genai.ask("PUT", "/update_job", {"job_name": "theirs", "gpu_assigned": 3, "team": "nlp"})
    assert (status, answer["job"]["gpu_assigned"], answer["job"]["team"]) == (200, 3, "nlp")
    assert genai.ask("PUT", "/update_job", {"job_name": "theirs", "gpu_assigned": "three"})[0] == 400


def test_what_contradicts_what_swell_knows_is_a_409_that_says_what_to_do(service, genai):
    with running(service, "train", gpus="2") as job:
        status, answer = genai.ask("PUT", "/update_job", {"job_name": "train", "gpu_assigned": 3})
        said = (
            f"gpu_assigned of job {job} (train) is 2, not 3: Swell runs it and knows; "
            f"to change its width: POST /scale/train, or swell scale {job} N"
        )
        assert (status, answer) == (409, {"error": said})
        told = {"job_name": "train", "gpu_assigned": 2, "team": "nlp"}
        status, answer = genai.ask("PUT", "/update_job", told)
        assert (status, answer["job"]["team"], answer["job"]["gpu_assigned"]) == (200, "nlp", 2)
        assert genai.ask("GET", "/get_job/train")[1]["team"] == "nlp"


def test_a_record_is_deleted_and_a_live_job_is_not(service, genai, added):
    added("theirs")
    assert genai.ask("DELETE", "/delete_job", {"job_name": "theirs"}) == (200, {"message": "Job deleted successfully"})
    assert genai.ask("DELETE", "/delete_job", {"job_name": "theirs"})[0] == 404
    assert genai.ask("DELETE", "/delete_job")[0] == 400
    with running(service, "gone") as job:
        said = f"job {job} (gone) is running; cancel it first: swell cancel {job}"
        assert genai.ask("DELETE", "/delete_job", {"job_name": "gone"}) == (409, {"error": said})
        service.worker.end(job)
        assert genai.ask("DELETE", "/delete_job", {"job_name": "gone"})[0] == 200
        assert genai.ask("GET", "/get_job/gone")[0] == 404


# -- lists ---------------------------------------------------------------------------------------------------------


def test_lists_are_filtered_and_ordered_as_documented(genai, added):
    added("first", job_arrival_time=1, gpu_assigned=4)
    added("second", job_arrival_time=3, gpu_assigned=2)
    added("third", job_arrival_time=2, gpu_assigned=1)
    added("done", job_arrival_time=0, gpu_assigned=2)
    genai.ask("PUT", "/update_job_status", {"job_name": "done", "status": "completed"})
    for name, at in (("first", 10), ("second", 20), ("third", 30), ("done", 40)):
        told = {"job_name": name, "last_checkpoint_time": at, "completed_epochs": 1}
        assert genai.ask("PUT", "/update_last_checkpoint", told)[0] == 200
    ours = {"first", "second", "third", "done"}

    def those(path: str) -> list[str]:
        return [name for name in names(genai.ask("GET", path)) if name in ours]

    assert sorted(those("/get_all_jobs")) == ["done", "first", "second", "third"]
    assert those("/get_jobs_by_arrival") == ["first", "third", "second"]
    assert those("/get_jobs_by_checkpoint_limit") == ["third", "second"]
    assert those("/get_jobs_by_difference/2") == ["second"]
    assert those("/get_jobs_by_difference/0") == ["first"]
    assert those("/get_scale_down_jobs_by_checkpoint/1") == ["second", "first"]
    assert those("/get_scale_down_jobs_by_checkpoint/3") == ["first"]
    assert genai.ask("GET", "/get_jobs_by_difference/x")[0] == 404


# -- monitor -------------------------------------------------------------------------------------------------------


def test_free_gpus_are_told_by_machine_and_a_full_one_is_absent(service, genai):
    service.worker.sync()
    with running(service, "three", gpus="3"):
        assert genai.ask("GET", "/freegpu") == (200, {"box": 1})
        assert genai.ask("GET", "/resourcequota/fms-tuning") == (200, {"limit": "4", "used": "3"})
        with running(service, "one", gpus="1"):
            assert genai.ask("GET", "/freegpu") == (200, {})
            assert genai.ask("GET", "/resourcequota/fms-tuning") == (200, {"limit": "4", "used": "4"})


# -- a job's own address -------------------------------------------------------------------------------------------


def test_a_job_sees_and_reports_on_itself_and_nothing_else(service, added):
    added("theirs")
    with running(service, "mine") as mine, running(service, "other") as other:
        job = of_job(service, mine)
        assert names(job.ask("GET", "/get_all_jobs")) == ["mine"]
        assert [job.ask("GET", f"/get_job/{ref}")[0] for ref in ("mine", mine, "other", other, "theirs")] == [
            200,
            200,
            404,
            404,
            404,
        ]
        told = {"last_checkpoint_time": time.time(), "completed_epochs": 1, "total_epochs": 3}
        before = [with_token(service).ask("GET", f"/get_job/{ref}") for ref in (other, "theirs")]
        for name in ("mine", "other", "theirs"):  # whatever it says, it reports on itself
            status, answer = job.ask("PUT", "/update_last_checkpoint", {"job_name": name, **told})
            assert (status, answer["job"]["job_name"], answer["job"]["completed_epochs"]) == (200, "mine", 1)
        assert [with_token(service).ask("GET", f"/get_job/{ref}") for ref in (other, "theirs")] == before
        for method, path in (("POST", "/scale/mine"), ("POST", "/scale"), ("POST", "/add_job")):
            body = {"job_name": "new", "gpu_req": 1, "gpu_lim": 1, "gpu_assigned": 1}
            assert job.ask(method, path, body)[0] == 403, path
        assert job.ask("DELETE", "/delete_job", {"job_name": "mine"})[0] == 403
        noted = [job.ask("PUT", "/update_job", {"job_name": name, "team": "nlp"})[0] for name in ("mine", "other")]
        assert (noted, job.ask("GET", "/get_job/mine")[1]["team"]) == ([200, 404], "nlp")


@pytest.mark.parametrize("name", ["box", "gpu-7.example.org", "3f2a9c1b77de", "train", "other"])
def test_a_notifier_that_only_knows_its_hosts_name_reports_through_its_jobs_address(service, name):
    """It takes the job's name from the host's, up to "-master": a machine's, a container's, or that of another job."""
    with running(service, "other") as other, running(service, "train") as job:
        told = {"job_name": name, "last_checkpoint_time": time.time(), "completed_epochs": 1.0, "total_epochs": 3}
        status, answer = of_job(service, job).ask("PUT", "/update_last_checkpoint", told)
        assert (status, answer["job"]["job_name"], answer["job"]["completed_epochs"]) == (200, "train", 1.0)
        assert with_token(service).ask("GET", f"/get_job/{other}")[1]["completed_epochs"] == 0


def test_with_a_users_token_the_same_is_on_the_main_port(service, added):
    added("theirs")
    assert "theirs" in names(with_token(service).ask("GET", "/get_all_jobs"))
