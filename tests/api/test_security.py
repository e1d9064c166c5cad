"""Who may ask, from where, and how much at once."""

from __future__ import annotations

import http.client
import itertools
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from api.service import USER, WORKER, Answer, Service
from swell.machine.sockets import UnixConnection

#: what stands for each parameter of a path; none of them exists, so that a request that passes changes nothing
PATH_VALUES = {"ref": "999999", "digest": "0" * 64, "attempt": "999999.1", "port": "1", "token": "0" * 10} | {
    "what": "missing",
    "folder": "0" * 64,
    "name": "none",
}
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH")
BAD_HOSTS = ("evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "")
BAD_ORIGINS = ("http://evil.example", "null", "https://{host}", "http://{host}.evil.example", "file://")


def routes(service: Service) -> list[tuple[str, str]]:
    """Every method and path the description lists, ready to be asked."""
    paths = service.ask("GET", "/openapi.json").json["paths"]
    filled = [(method.upper(), path.removeprefix("/api/v1")) for path, methods in paths.items() for method in methods]
    return sorted((method, path.format(**PATH_VALUES)) for method, path in filled)


def asked_with(service: Service, *, leave_out: tuple[str, ...] = (), **how: Any) -> dict[tuple[str, str], int]:
    """The status of every route, and of every other method on it."""
    paths = {path for _, path in routes(service)} | {"/openapi.json", "/nowhere", "/workers/nowhere"}
    every = itertools.product(METHODS, sorted(paths.difference(leave_out)))
    return {(method, path): service.ask(method, path, **how).status for method, path in every}


def without_health(found: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    return {key: status for key, status in found.items() if key[1] != "/health"}


def test_the_description_lists_every_route(service):
    described = {(method.upper(), path) for path, some in _paths(service).items() for method in some}
    served = {
        (method, route.path)
        for route in service.app._app.routes
        for method in route.methods
        if method != "HEAD" and route.include_in_schema
    }
    assert described == served
    assert ("POST", "/api/v1/jobs") in described
    assert len(described) >= 14


def _paths(service: Service) -> dict[str, Any]:
    return dict(service.ask("GET", "/openapi.json").json["paths"])


def test_the_description_says_how_every_error_looks(service):
    for path, methods in _paths(service).items():
        for method, about in methods.items():
            assert {"401", "403", "404", "422"} <= about["responses"].keys(), f"{method} {path}"


def test_without_a_token_every_route_but_health_is_refused(service):
    found = asked_with(service, token=None)
    assert found["GET", "/health"] == 200
    assert set(without_health(found).values()) == {401}


def asked_through(path: Path, token: str | None, *, host: str = "localhost") -> int:
    connection = UnixConnection(path, timeout=30)
    authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", "/api/v1/nodes", headers={"Host": host, **authorization})
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_socket_of_a_private_server_wants_its_token_too(service):
    """Whoever can write to its folder is trusted; a job in a container that sees the folder need not be."""
    path = service.state.server_socket
    made = service.ask("POST", "/tokens", {"name": "through-the-socket"}).json["token"]
    found = {token: asked_through(path, token) for token in (None, "", "wrong", WORKER, USER, made)}
    assert found == {None: 401, "": 401, "wrong": 401, WORKER: 403, USER: 200, made: 200}
    assert asked_through(path, USER, host="evil.example") == 403


def test_on_the_socket_of_a_private_server_all_connections_may_be_its_owners(service, monkeypatch):
    """One user of a box has a share. The jobs of a private server are all its owner's, and report through a socket."""
    monkeypatch.setattr("swell.api.connections.OWNER", os.geteuid())
    monkeypatch.setattr("swell.api.crowd.ROOT", -1)  # we are root, of whom none are too many
    monkeypatch.setattr("swell.api.security.ROOT", -1)
    monkeypatch.setattr("swell.api.crowd.USER_MAX", 3)
    kept = [UnixConnection(service.state.server_socket, timeout=30) for _ in range(10)]
    for connection in kept:
        connection.request("GET", "/api/v1/nodes", headers={"Authorization": f"Bearer {USER}"})
        response = connection.getresponse()
        assert (response.status, bool(response.read())) == (200, True)
    for connection in kept:
        connection.close()


@pytest.mark.parametrize("token", ["wrong", USER[:-1], USER + "x", USER.upper(), " ", "\u00e9", WORKER + USER])
def test_with_a_wrong_token_every_route_but_health_is_refused(service, token):
    assert set(without_health(asked_with(service, token=token)).values()) == {401}


@pytest.mark.parametrize("header", [USER, f"Basic {USER}", "Bearer", "Bearer ", f"Bearer{USER}", ""])
def test_a_token_in_another_shape_is_refused(service, header):
    answer = service.ask("GET", "/jobs", token=None, headers={"Authorization": header})
    assert answer.error == (
        401,
        "Denied",
        "a token is needed: send 'Authorization: Bearer …' with the one in the state folder",
    )


def test_a_workers_token_opens_nothing_but_the_workers_routes(service):
    found = without_health(asked_with(service, token=WORKER))
    users = {status for (_, path), status in found.items() if not path.startswith("/workers/")}
    workers = {status for (_, path), status in found.items() if path.startswith("/workers/")}
    assert users == {403}
    assert not workers & {401, 403}


def test_a_users_token_does_not_open_the_workers_routes(service):
    found = asked_with(service, token=USER, leave_out=("/server/stop", "/events/stream"))
    assert {status for (_, path), status in found.items() if path.startswith("/workers/")} == {403}
    assert found["GET", "/jobs"] == 200
    answer = service.ask("GET", f"/workers/environments/{'0' * 64}")
    assert answer.error == (
        403,
        "Denied",
        "this token does not allow this request: workers' and users' tokens differ",
    )


@pytest.mark.parametrize("host", BAD_HOSTS)
@pytest.mark.parametrize("token", [USER, WORKER])
def test_another_host_is_refused_on_every_route_with_any_token(service, host, token):
    """DNS rebinding: a page's own name is made to point at loopback, and its requests count as same-origin."""
    found = asked_with(service, token=token, host=host.format(port=service.port))
    assert set(found.values()) == {403}


def test_a_wrong_host_is_told_which_ones_are_good(service):
    status, kind, said = service.ask("GET", "/jobs", host="evil.example").error
    assert (status, kind) == (403, "Denied")
    assert said == (
        "this server does not answer to the Host 'evil.example'; "
        f"use one of: 127.0.0.1:{service.port}, localhost:{service.port}"
    )


@pytest.mark.parametrize("origin", BAD_ORIGINS)
@pytest.mark.parametrize("token", [USER, WORKER])
def test_a_page_of_another_site_is_refused_on_every_route_with_any_token(service, origin, token):
    found = asked_with(service, token=token, headers={"Origin": origin.format(host=service.host)})
    assert set(found.values()) == {403}


def test_our_own_origin_and_localhost_are_fine(service):
    own = {"Origin": f"http://{service.host}"}
    assert service.ask("GET", "/jobs", headers=own).status == 200
    assert service.ask("GET", "/jobs", host=f"localhost:{service.port}").status == 200


def test_no_answer_invites_other_sites(service):
    answer = service.ask("OPTIONS", "/jobs", headers={"Access-Control-Request-Method": "POST"})
    assert answer.status == 405
    headers = [name.lower() for name in service.ask("GET", "/jobs").headers]
    assert not [name for name in headers if name.startswith("access-control-")]


def test_health_tells_nothing_but_that_somebody_is_there(service):
    answer = service.ask("GET", "/health", token=None)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_a_refusal_changes_nothing(service):
    before = service.ask("GET", "/jobs?all=true").json
    asked_with(service, token=None)
    asked_with(service, token=USER, host="evil.example")
    assert service.ask("GET", "/jobs?all=true").json == before
    assert not service.stopped.is_set()


def test_stopping_the_server_needs_the_users_token_and_then_stops_it(service):
    assert service.ask("POST", "/server/stop", token=WORKER).status == 403
    assert not service.stopped.is_set()
    assert service.ask("POST", "/server/stop").status == 202
    assert service.stopped.is_set()
    service.stopped.clear()


@pytest.mark.parametrize("size", [3 * 1024 * 1024 + 1, 50_000_000])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(service, size):
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    with raw:
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {service.host}\r\nAuthorization: Bearer {USER}\r\n"
        raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_say_its_length_is_cut_off_when_it_is_too_large(service):
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with raw:
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {service.host}\r\nAuthorization: Bearer {USER}\r\n"
        raw.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(66):
            raw.sendall(piece)
        raw.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(raw)
        response.begin()
        found = Answer(response.status, response.headers, response.read())
    assert found.error == (413, "TooLarge", "the request has more than 3145728 bytes; send less at once")


def test_too_large_says_how_much_is_allowed(service):
    answer = service.ask("POST", "/jobs", b" " * (3 * 1024 * 1024 + 1))
    assert answer.error == (413, "TooLarge", "the request has more than 3145728 bytes; send less at once")


def test_a_manifest_of_a_mebibyte_and_a_large_environment_still_pass_the_door(service):
    body = {"manifest": '"' * (1024 * 1024), "workdir": "/", "env": {"A": "x" * 131_072}}
    status, _, said = service.ask("POST", "/jobs", body).error
    assert (status, said[:30]) == (422, "the manifest is not valid YAML")
