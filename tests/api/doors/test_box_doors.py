"""Doors of a server for everybody: they act as one user, and never as root."""

from __future__ import annotations

import grp
import http.client
import json
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from api.people import ADMIN, OTHER, OWNER, ask, name_of, submit
from api.service import Service
from swell.api.box import Box

from .foreign import with_token


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("box"), box=Box("swell-admin", runtime_folder=Path("/run/swell-test")))
    yield made
    made.close()


def call(address: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """As a foreign client would: no header of ours."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    data = None if body is None else json.dumps(body)
    connection.request(method, f"{parts.path}{path}", data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def address_of(box: Service, uid: int, door: str) -> str:
    return str(ask(box, uid, "POST", "/doors/address", {"name": door}).json["address"])


def test_an_address_shows_the_jobs_of_whoever_made_it(box: Service) -> None:
    mine, theirs = submit(box, OWNER, "mine-alone"), submit(box, OTHER, "theirs-alone")
    names = {job["job_name"] for job in call(address_of(box, OWNER, "genai"), "GET", "/get_all_jobs")[1]}
    assert "mine-alone" in names
    assert "theirs-alone" not in names
    assert call(address_of(box, OWNER, "genai"), "POST", "/scale/theirs-alone")[0] == 404
    for uid, job in ((OWNER, mine), (OTHER, theirs)):
        ask(box, uid, "POST", f"/jobs/{job}/cancel")


def test_a_job_submitted_through_a_door_runs_as_its_user(box: Service) -> None:
    asked = {"jobName": "old", "scriptPath": "t.py", "directoryToMount": "/tmp", "isSingleGPU": True}
    status, told = call(address_of(box, OWNER, "kubeprofiler"), "POST", "/submit", asked)
    assert status == 201
    job = box.store.job(told["id"])
    assert (job.owner, job.uid) == (name_of(OWNER), OWNER)


def test_an_administrators_address_has_no_administrators_rights(box: Service) -> None:
    job = submit(box, OWNER, "not-yours")
    assert "not-yours" not in str(call(address_of(box, ADMIN, "genai"), "GET", "/get_all_jobs"))
    ask(box, OWNER, "POST", f"/jobs/{job}/cancel")


def test_to_an_administrator_too_a_name_means_their_own_job_and_an_id_anybodys(box: Service) -> None:
    job = submit(box, OWNER, "somebodys")
    root = with_token(box)
    gone = (404, {"error": "there is no job 'somebodys'; GET /get_all_jobs lists them"})
    assert [root.ask("GET", "/get_job/somebodys"), root.ask("POST", "/scale/somebodys")] == [gone, gone]
    assert root.ask("GET", "/get_all_jobs") == (200, [])
    assert root.ask("GET", f"/get_job/{job}")[1]["job_name"] == "somebodys"
    ask(box, OWNER, "POST", f"/jobs/{job}/cancel")


def test_no_plain_port_acts_as_root(box: Service) -> None:
    said = ask(box, ADMIN, "POST", "/doors", {"name": "genai", "port": 0}).error
    assert said[0] == 422
    assert "could run jobs as root through that port; name another user" in said[2]
    said = ask(box, ADMIN, "POST", "/doors", {"name": "genai", "port": 0, "user": "nobody-at-all"}).error
    assert said == (422, "Rejected", "there is no user 'nobody-at-all' on this machine")


def test_a_plain_port_acts_as_the_user_it_was_opened_for(box: Service) -> None:
    opened = ask(box, ADMIN, "POST", "/doors", {"name": "genai", "port": 0, "user": name_of(OWNER)}).json
    assert opened["owner"] == name_of(OWNER)
    job = submit(box, OWNER, "through-the-port")
    try:
        assert "through-the-port" in str(call(opened["url"], "GET", "/get_all_jobs"))
    finally:
        ask(box, OWNER, "POST", f"/jobs/{job}/cancel")
        assert ask(box, ADMIN, "DELETE", f"/doors/{opened['port']}").status == 204


@pytest.fixture(scope="module")
def with_admins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A box of which OTHER is an administrator, without being root."""
    group = grp.getgrgid(pwd.getpwuid(OTHER).pw_gid).gr_name
    made = Service(tmp_path_factory.mktemp("box"), box=Box(group, runtime_folder=Path("/run/swell-test")))
    yield made
    made.close()


def test_only_root_opens_a_door_in_anothers_name(with_admins: Service) -> None:
    """An administrator who is not root could have run programs as everybody by `door open --as`."""
    box = with_admins
    asked = {"name": "kubeprofiler", "port": 0, "user": name_of(OWNER)}
    assert ask(box, OTHER, "POST", "/doors", asked).error == (
        403,
        "Denied",
        (
            f"a door that acts as {name_of(OWNER)!r} lets everyone act as that user, so only root may open it; "
            "without --as, it acts as you"
        ),
    )
    assert ask(box, OTHER, "POST", "/doors", {**asked, "user": "root"}).status == 403
    own = ask(box, OTHER, "POST", "/doors", {"name": "genai", "port": 0})
    assert (own.status, own.json["owner"]) == (201, name_of(OTHER))
    named = ask(box, ADMIN, "POST", "/doors", asked)
    assert (named.status, named.json["owner"]) == (201, name_of(OWNER))
    for opened in (own, named):
        assert ask(box, ADMIN, "DELETE", f"/doors/{opened.json['port']}").status == 204


def test_a_door_on_a_port_that_users_can_take_says_so(box: Service) -> None:
    opened = ask(box, ADMIN, "POST", "/doors", {"name": "genai", "port": 0, "user": name_of(OWNER)}).json
    assert opened["warning"] == (
        f"any user of this machine can listen on port {opened['port']} while the server is down, and receive "
        "the clients' requests; only root can take a port below 1024"
    )
    [listed] = ask(box, ADMIN, "GET", "/doors").json["doors"]
    assert listed == opened
    assert ask(box, ADMIN, "DELETE", f"/doors/{opened['port']}").status == 204
