"""How a door is reached, in whose name, and that otherwise nothing is there."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from api.service import USER, WORKER, Service
from swell.api.box import SCOPE_KEY, Caller

from .foreign import Foreign, of_job, of_user, running, with_token

PATHS = {
    "genai": (
        "/scale",
        "/scale/x",
        "/add_job",
        "/update_last_checkpoint",
        "/update_job_status",
        "/increment_restarts",
        "/update_job",
        "/delete_job",
        "/get_job/x",
        "/get_all_jobs",
        "/get_jobs_by_arrival",
        "/get_jobs_by_checkpoint_limit",
        "/get_jobs_by_difference/1",
        "/get_scale_down_jobs_by_checkpoint/1",
        "/freegpu",
        "/resourcequota/x",
    ),
    "kubeprofiler": ("/profiling/x", "/has_to_stop/x", "/end_epoch/x", "/signal_end/x", "/submit"),
}
EVERY = [path for paths in PATHS.values() for path in paths]
METHODS = ("GET", "POST", "PUT", "DELETE")
BAD_HOSTS = ("evil.example", "evil.example:{port}", "127.0.0.1", "localhost.evil.example:{port}", "")
BAD_ORIGINS = ("http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:{port}.evil.example")


def statuses(client: Foreign, paths: list[str] | tuple[str, ...] = tuple(EVERY)) -> set[int]:
    return {client.raw(method, path, b"{}")[0] for method, path in itertools.product(METHODS, paths)}


# -- on the main port ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "wrong", WORKER, USER + "x"])
def test_a_door_that_was_not_opened_answers_404_to_the_world(service, token):
    headers = () if token is None else (("Authorization", f"Bearer {token}"),)
    assert statuses(Foreign(f"http://{service.host}", headers)) == {404}
    assert statuses(Foreign(f"http://{service.host}", headers), ("/nowhere", "/")) == {404}


def test_a_jobs_token_in_a_header_opens_no_door(service):
    with running(service, "train") as job:
        token = of_job(service, job).address.rpartition("/")[2]
        assert statuses(Foreign(f"http://{service.host}", (("Authorization", f"Bearer {token}"),))) == {404}


def test_with_a_users_token_both_doors_are_there(service):
    client = with_token(service)
    assert client.ask("GET", "/get_all_jobs")[0] == 200
    assert client.ask("GET", "/has_to_stop/x") == (
        404,
        {"error": "there is no job 'x'; send JOB_UUID as the job has it"},
    )
    assert client.ask("GET", "/nowhere") == (404, {"error": "there is no GET /nowhere"})
    assert client.ask("GET", "/add_job") == (405, {"error": "there is no GET /add_job"})


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_another_host_is_refused_with_a_token_and_under_an_address(service, host):
    host = host.format(port=service.port)
    assert service_statuses(service, {"Host": host}) == {403}


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_a_page_of_another_site_is_refused_with_a_token_and_under_an_address(service, origin):
    assert service_statuses(service, {"Origin": origin.format(port=service.port)}) == {403}


def service_statuses(service: Service, headers: dict[str, str]) -> set[int]:
    clients = (with_token(service), of_user(service, "genai"), of_user(service, "kubeprofiler"))
    return {
        status
        for client in clients
        for status in statuses(Foreign(client.address, (*client.headers, *headers.items())), ("/freegpu", "/submit"))
    }


# -- addresses -----------------------------------------------------------------------------------------------------


def made(service: Service, **body: Any) -> Foreign:
    answer = service.ask("POST", "/doors/address", body)
    assert answer.status == 201, answer.data
    return Foreign(answer.json["address"])


def test_an_address_opens_one_door_and_no_other(service):
    genai, kubeprofiler = made(service, name="genai"), made(service, name="kubeprofiler", lasts_s=60)
    assert genai.ask("GET", "/freegpu")[0] == 200
    assert statuses(genai, PATHS["kubeprofiler"]) == {404}
    assert statuses(kubeprofiler, PATHS["genai"]) == {404}
    assert kubeprofiler.ask("POST", "/submit", {})[0] == 400
    assert statuses(genai, ("/api/v1/jobs", "/api/v1/server/stop", "/d/x/freegpu", "/", "//freegpu")) == {404}


def test_an_address_acts_in_the_name_of_its_user(service):
    with running(service, "anns"):
        names = [record["job_name"] for record in of_user(service, "genai").ask("GET", "/get_all_jobs")[1]]
        assert "anns" in names
        assert of_user(service, "genai", user="bob").ask("GET", "/get_all_jobs") == (200, [])
        assert of_user(service, "genai", user="bob").ask("GET", "/get_job/anns")[0] == 404


def test_records_are_kept_apart_by_user(service):
    record = {"job_name": "mine", "gpu_req": 1, "gpu_lim": 1, "gpu_assigned": 1}
    bob, eve = of_user(service, "genai", user="bob"), of_user(service, "genai", user="eve")
    assert [client.ask("POST", "/add_job", record)[0] for client in (bob, eve)] == [201, 201]
    assert eve.ask("DELETE", "/delete_job", {"job_name": "mine"})[0] == 200
    assert [client.ask("GET", "/get_job/mine")[0] for client in (bob, eve)] == [200, 404]


def test_an_address_that_has_expired_is_nobodys(service):
    assert statuses(of_user(service, "genai", lasts_s=-1)) == {404}
    with running(service, "train") as job:
        assert statuses(of_job(service, job, lasts_s=-1)) == {404}


def test_a_jobs_address_dies_with_its_attempt(service):
    with running(service, "train") as job:
        assert of_job(service, job).ask("GET", "/get_all_jobs")[0] == 200
        assert statuses(of_job(service, job, attempt=2)) == {404}
        service.worker.end(job)
        assert statuses(of_job(service, job)) == {404}
    assert statuses(of_job(service, 999_999)) == {404}


def text_of(client: Foreign) -> str:
    return client.address.rpartition("/")[2]


def test_an_address_that_was_changed_is_nobodys(service):
    good, other = text_of(of_user(service, "genai")), text_of(of_user(service, "kubeprofiler", user="bob"))
    (prefix, name, secret), (_, others_name, others_secret) = good.split("."), other.split(".")
    forged = [
        ".".join(parts)
        for parts in (
            (prefix, others_name, secret),
            (prefix, name, others_secret),
            ("swj", name, secret),
            ("swt", name, secret),
            (prefix, name, secret[:-1]),
            (prefix, name, secret + "A"),
            (prefix, name, ""),
            (prefix, "", secret),
            (prefix, name.upper(), secret.swapcase()),
        )
    ]
    for token in (*forged, "", "x", "....", "%C3%A9", "%2e%2e", USER, good + "/.."):
        assert Foreign(f"http://{service.host}/d/{token}").raw("GET", "/freegpu")[0] == 404, token
    assert Foreign(f"http://{service.host}/d/{good}").raw("GET", "/freegpu")[0] == 200


def test_an_address_is_listed_without_its_secret_and_can_be_revoked(service):
    """It could not be taken back before it expired."""
    client = made(service, name="genai", lasts_s=60)
    _, name, secret = text_of(client).split(".")
    answer = service.ask("GET", "/doors/addresses")
    [listed] = [one for one in answer.json["addresses"] if one["id"] == name]
    assert (listed["door"], listed["user"], listed["is_expired"]) == ("genai", "ann", False)
    assert secret.encode() not in answer.data
    assert client.ask("GET", "/freegpu")[0] == 200
    assert service.ask("DELETE", f"/doors/addresses/{name}").status == 204
    assert statuses(client) == {404}
    said = f"there is no address {name!r}; `swell door addresses` lists yours"
    assert service.ask("DELETE", f"/doors/addresses/{name}").error == (404, "NotFound", said)
    kinds = [event["kind"] for event in service.ask("GET", "/events").json["events"] if name in str(event["detail"])]
    assert kinds == ["DoorAddressMade", "DoorAddressRevoked"]


def test_an_address_in_a_header_opens_nothing(service):
    text = text_of(of_user(service, "genai"))
    assert service.ask("GET", "/jobs", token=text).status == 401
    assert service.ask("GET", "/freegpu", token=text, prefix="").status == 404


def test_refusals_are_logged_and_tokens_are_not(service, caplog):
    token = text_of(of_user(service, "genai"))[:-1]
    with caplog.at_level(logging.DEBUG):
        for _ in range(20):
            assert Foreign(f"http://{service.host}/d/{token}").raw("GET", "/freegpu")[0] == 404
        good = of_user(service, "genai")
        good.ask("GET", "/nowhere")
        good.ask("POST", "/add_job", b"{")
    said = [record.getMessage() for record in caplog.records if record.name.startswith("swell")]
    assert len(said) <= 2  # whoever guesses must not fill the disk
    assert not [line for line in said if "/d/" in line or token in line]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "genia"}, "there is no door 'genia'; did you mean 'genai'? (known: genai, kubeprofiler)"),
        ({"name": "x"}, "there is no door 'x'; known: genai, kubeprofiler"),
        ({"name": "genai", "lasts_s": 0}, "lasts must be more than 0, but is 0"),
        (
            {"name": "genai", "last_s": 5},
            "the request has no field 'last_s'; did you mean 'lasts_s'? (known: lasts_s, name)",
        ),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(service, body, said):
    assert service.ask("POST", "/doors/address", body).error == (422, "Rejected", said)


# -- opened ports --------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(service: Service) -> Iterator[Foreign]:
    """A plain port for genai."""
    answer = service.ask("POST", "/doors", {"name": "genai", "port": 0})
    assert answer.status == 201, answer.data
    yield Foreign(answer.json["url"])
    service.ask("DELETE", f"/doors/{answer.json['port']}")


def port_of(opened: Foreign) -> int:
    return int(opened.address.rpartition(":")[2])


def test_an_opened_port_serves_its_door_without_any_token(service, opened):
    with running(service, "train") as job:
        status, records = opened.ask("GET", "/get_all_jobs")
        assert (status, "train" in [record["job_name"] for record in records]) == (200, True)
        told = {"job_name": "train", "last_checkpoint_time": 1, "completed_epochs": 1}
        assert opened.ask("PUT", "/update_last_checkpoint", told)[0] == 200
        events = service.ask("GET", f"/jobs/{job}/show").json["training"]
        assert events["checkpoint"]["epochs_done"] == 1.0


def test_an_opened_port_serves_nothing_else(service, opened):
    elsewhere = (*PATHS["kubeprofiler"], "/api/v1/jobs", "/api/v1/health", "/api/v1/server/stop", "/", "/openapi.json")
    assert statuses(opened, elsewhere) == {404}
    address = of_user(service, "genai").address.partition("/d/")[2]
    assert statuses(opened, (f"/d/{address}/freegpu",)) == {404}
    with_header = Foreign(opened.address, (("Authorization", f"Bearer {USER}"),))
    assert statuses(with_header, elsewhere) == {404}
    assert not service.stopped.is_set()


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_an_opened_port_answers_to_no_other_host(opened, host):
    found = Foreign(opened.address, (("Host", host.format(port=port_of(opened))),))
    assert statuses(found, PATHS["genai"]) == {403}


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_an_opened_port_answers_to_no_page_of_another_site(opened, origin):
    found = Foreign(opened.address, (("Origin", origin.format(port=port_of(opened))),))
    assert statuses(found, PATHS["genai"]) == {403}


def test_an_opened_port_answers_to_localhost_and_its_own_pages(opened):
    port = port_of(opened)
    for headers in ((("Host", f"localhost:{port}"),), (("Origin", f"http://127.0.0.1:{port}"),)):
        assert Foreign(opened.address, headers).ask("GET", "/freegpu")[0] == 200


def test_opening_and_closing_are_audited_and_listed(service):
    door = service.ask("POST", "/doors", {"name": "kubeprofiler", "port": 0}).json
    listed = service.ask("GET", "/doors").json["doors"]
    assert [one for one in listed if one["port"] == door["port"]] == [door]
    assert (door["name"], door["owner"], door["problem"]) == ("kubeprofiler", "ann", None)
    assert service.ask("DELETE", f"/doors/{door['port']}").status == 204
    assert door["port"] not in [one["port"] for one in service.ask("GET", "/doors").json["doors"]]
    with pytest.raises(ConnectionRefusedError):
        Foreign(door["url"]).raw("GET", "/has_to_stop/x")
    events = service.ask("GET", "/events?limit=1000").json["events"]
    about = {"door": "kubeprofiler", "port": door["port"]}
    said = [(event["kind"], event["actor"]) for event in events if event["detail"] == about]
    assert said == [("DoorOpened", "ann"), ("DoorClosed", "ann")]


def test_a_port_that_is_taken_is_refused(service, opened):
    taken = port_of(opened)
    said = f"port {taken} already has a door; close it first: swell door close --port {taken}"
    assert service.ask("POST", "/doors", {"name": "genai", "port": taken}).error == (409, "Conflict", said)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, kind, said = service.ask("POST", "/doors", {"name": "genai", "port": port}).error
        words = (
            f"port {port} cannot be used: Address already in use; choose another port with --port, or stop the program "
            "that listens there"
        )
        assert (status, kind, said) == (409, "Conflict", words)
        assert port not in [door["port"] for door in service.ask("GET", "/doors").json["doors"]]


def test_a_port_that_is_not_open_cannot_be_closed(service):
    said = "no door is open on port 1; `swell door` lists the open ports"
    assert service.ask("DELETE", "/doors/1").error == (404, "NotFound", said)


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/doors"), ("DELETE", "/api/v1/doors/5")])
def test_only_an_admin_opens_and_closes_ports(service, method, path):
    status, answer = asyncio.run(ask_as(service, Caller("bob", is_admin=False), method, path))
    assert (status, answer["error"]["kind"]) == (403, "Denied")


async def ask_as(service: Service, caller: Caller, method: str, path: str) -> tuple[int, Any]:
    """Behind the guard, as whoever it found."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps({"name": "genai", "port": 0}).encode()}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers, SCOPE_KEY: caller}
    await service.app._app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])
