"""The JSON that programs read: every field, in every state a job goes through."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from server import Server

pytestmark = pytest.mark.slow

FIELDS = {
    "id": int,
    "name": str,
    "user": str,
    "state": str,
    "reason": dict | None,
    "priority": int,
    "width": int,
    "width_min": int,
    "width_max": int,
    "width_unit": str,
    "tasks_beside": int,
    "tasks": dict,
    "progress": dict,
    "metrics": dict,
    "attempts": int,
    "resizes": int,
    "preemptions": int,
    "failures": int,
    "lost_gpu_seconds": int | float,
    "submitted_at": str,
    "started_at": str | None,
    "ended_at": str | None,
    "exit_code": int | None,
    "nodes": list,
}
STATES = {"queued", "held", "starting", "running", "stopping", "succeeded", "failed", "cancelled"}
WITHOUT_REASON = {"running", "succeeded"}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def check(job: dict[str, Any], *, attempts: Any = int) -> None:
    """Everything the contract promises of one object."""
    for field, kind in {**FIELDS, "attempts": attempts}.items():
        assert field in job, f"{field} is missing"
        assert isinstance(job[field], kind), f"{field} is {job[field]!r}"
        assert not isinstance(job[field], bool)
    assert job["state"] in STATES
    assert job["is_array"] in (True, False)
    assert set(job["tasks"]) == {"total", "running", "succeeded", "failed", "stopped"}
    assert all(isinstance(count, int) and count >= 0 for count in job["tasks"].values())
    assert set(job["progress"]) == {"epochs_done", "epochs_total", "expected_end_at"}
    check_reason(job)
    for field in ("submitted_at", "started_at", "ended_at"):
        assert job[field] is None or MOMENT.fullmatch(job[field]), f"{field} is {job[field]!r}"
    assert (job["ended_at"] is not None) == (job["state"] in {"succeeded", "failed", "cancelled"})


def check_reason(job: dict[str, Any]) -> None:
    reason = job["reason"]
    if reason is None:
        assert job["state"] in WITHOUT_REASON, f"a {job['state']} job has no reason"
        return
    assert job["state"] != "succeeded"
    assert set(reason) == {"code", "message", "evidence", "next"}
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason["code"])
    assert reason["message"]
    assert isinstance(reason["evidence"], dict)
    assert isinstance(reason["next"], str)


def listed(server: Server, job: int) -> dict[str, Any]:
    [found] = [one for one in server.jobs() if one["id"] == job]
    check(found)
    return found


def test_a_job_keeps_the_contract_in_every_state_it_goes_through(server):
    """A queued, a running, a stopping, a cancelled, a succeeded, a failed and an impossible one, listed together."""
    hold = server.start("--name", "holds", "--gpus", "4", "--", "sh", "-c", "trap '' TERM; echo up; sleep 600 & wait")
    server.until_output(hold, b"up")
    server.until(hold, "running")
    waits = server.start("--name", "waits", "--gpus", "1..4", "--priority", "5", "--", "true")
    never = server.start("--name", "never", "--wait-for-nodes", "--gpus", "64", "--", "true")
    server.until_true(waits, lambda job: job["reason"]["code"] == "WaitingForRoom")
    server.until_true(never, lambda job: job["reason"]["code"] == "CannotRunHere")

    running = listed(server, hold)
    assert (running["state"], running["reason"], running["width"], running["attempts"]) == ("running", None, 4, 1)
    assert (running["tasks"]["running"], running["exit_code"], len(running["nodes"])) == (1, None, 1)
    assert running["started_at"] >= running["submitted_at"]
    queued = listed(server, waits)
    assert (queued["state"], queued["width"], queued["width_min"], queued["width_max"]) == ("queued", 0, 1, 4)
    assert (queued["priority"], queued["started_at"], queued["nodes"]) == (5, None, [])
    assert f"job {hold}" in queued["reason"]["message"]
    assert listed(server, never)["reason"]["evidence"]["wants_gpus"] == 64

    server.swell("cancel", str(hold), "--grace", "60")
    stopping = listed(server, hold)
    assert stopping["state"] == "stopping"
    assert stopping["reason"]["code"] == "Stopping"
    server.swell("cancel", str(hold), str(never), "--grace", "0", "--wait")
    cancelled = listed(server, hold)
    assert (cancelled["state"], cancelled["reason"]["code"], cancelled["width"]) == ("cancelled", "Cancelled", 0)
    assert listed(server, never)["state"] == "cancelled"

    server.until(waits, "succeeded")
    succeeded = listed(server, waits)
    assert (succeeded["reason"], succeeded["exit_code"], succeeded["tasks"]["succeeded"]) == (None, 0, 1)
    failed = listed(server, _failed(server))
    assert (failed["reason"]["code"], failed["exit_code"], failed["tasks"]["failed"]) == ("TaskFailed", 7, 1)
    for job in server.jobs():
        check(job)


def _failed(server: Server) -> int:
    job = server.start("--name", "fails", "--", "sh", "-c", "exit 7")
    server.until(job, "failed")
    return job


def test_show_adds_the_spec_every_attempt_with_its_places_and_the_events(server):
    job = server.start("--name", "shown", "--tasks", "2", "--gpus", "1", "--", "sh", "-c", "echo $RANK")
    server.until(job, "succeeded")
    shown = server.swell("show", str(job), "-o", "json").json
    check(shown, attempts=list)
    assert shown["spec"]["roles"][0]["command"] == ["sh", "-c", "echo $RANK"]
    [attempt] = shown["attempts"]
    assert (attempt["number"], attempt["width"], attempt["outcome"]) == (1, 2, "succeeded")
    assert [(place["task"], len(place["devices"])) for place in attempt["placements"]] == [(0, 1), (1, 1)]
    assert len({device for place in attempt["placements"] for device in place["devices"]}) == 2
    assert [(task["index"], task["exit_code"]) for task in attempt["tasks"]] == [(0, 0), (1, 0)]
    kinds = [event["kind"] for event in shown["events"] if event["kind"] != "Running"]  # too short to be seen, perhaps
    assert kinds == ["Submitted", "Started", "Ended"]
    assert all(MOMENT.fullmatch(event["at"]) for event in shown["events"])


def test_every_listing_has_the_same_content_as_table_wide_json_and_yaml(server):
    job = server.start("--name", "formats", "--", "true")
    server.until(job, "succeeded")
    for command in ("ps", f"show {job}", f"why {job}", "nodes", f"events {job}"):
        words = command.split()
        as_json, as_yaml = (server.swell(*words, "-o", kind) for kind in ("json", "yaml"))
        assert (as_json.code, as_yaml.code, as_json.stderr) == (0, 0, "")
        assert yaml.safe_load(as_yaml.stdout) == as_json.json
        wide = server.swell(*words, "-o", "wide")
        assert (wide.code, wide.stderr) == (0, "")
        assert "\x1b" not in wide.stdout
    table = server.swell("ps", "-o", "table").stdout
    assert table.splitlines()[0].split() == ["ID", "NAME", "STATE", "PRIO", "WIDTH", "TASKS", "AGE", "RAN", "REASON"]
    assert re.search(rf"^{job} +formats +succeeded ", table, re.MULTILINE)


def test_ps_can_be_limited_to_a_user_and_a_number_and_says_what_it_leaves_out(server):
    for name in ("few-1", "few-2"):
        server.until(server.start("--name", name, "--", "true"), "succeeded")
    assert server.swell("ps", "-u", "nobody-of-that-name", "-o", "json").json == []
    found = server.swell("ps", "-u", "nobody-of-that-name")
    said = "swell: nobody-of-that-name has no jobs, and this machine has no user with that name\n"
    assert (found.code, found.stdout, found.stderr) == (0, "", said)
    limited = server.swell("ps", "--limit", "1").stdout.splitlines()
    assert len(limited) == 4
    assert re.search(r"\b\d+ succeeded\b", limited[-2])
    assert re.fullmatch(r"\(\d+ more; --limit N shows more, -o json prints all\)", limited[-1])


def test_the_state_a_program_waits_for_is_the_state_that_is_listed(server):
    job = server.start("--", "sh", "-c", "exit 4")
    assert server.swell("wait", str(job)).code == 4
    assert listed(server, job)["state"] == "failed"


def test_nodes_show_every_gpu_as_simulated_and_who_holds_it(server):
    job = server.start("--gpus", "3", "--", "sleep", "600")
    server.until(job, "running")
    [node] = server.swell("nodes", "-o", "json").json
    assert (len(node["gpus"]), {gpu["simulated"] for gpu in node["gpus"]}) == (4, {True})
    assert sorted(gpu["job"] or 0 for gpu in node["gpus"]) == [0, job, job, job]
    table, wide = (server.swell("nodes", "-o", output).stdout for output in ("table", "wide"))
    assert ["1 of 4" in one for one in (table, wide)] == [True, True]
    assert ["(simulated): free" in one for one in (table, wide)] == [False, True]
    server.swell("cancel", str(job), "--wait")
