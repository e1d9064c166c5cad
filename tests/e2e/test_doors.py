"""Doors of a real server: opened with the command line, there again after a restart, silent about tokens."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from server import PATIENCE_S, Server

from .disks import need

pytestmark = pytest.mark.slow


def ask(address: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    connection.request(method, parts.path + path, None if body is None else json.dumps(body))
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def test_a_port_that_an_admin_opened_is_there_again_after_a_restart_until_it_is_closed(own_server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    opened = own_server.swell("door", "open", "genai", "--port", port)
    assert (opened.code, opened.stdout) == (0, f"http://127.0.0.1:{port}\n"), opened
    address = opened.stdout.strip()
    assert ask(address, "GET", "/get_all_jobs") == (200, [])
    assert own_server.down().code == 0
    own_server.up()
    assert ask(address, "GET", "/get_all_jobs") == (200, [])
    own_server.kill()
    own_server.up()
    assert ask(address, "GET", "/get_all_jobs") == (200, [])

    listed = own_server.swell("door", "--state", str(own_server.root))
    assert own_server.swell("door", "--state", str(own_server.root), "list").stdout == listed.stdout
    assert [line.split()[:2] for line in listed.stdout.splitlines()] == [["PORT", "DOOR"], [port, "genai"]]
    assert own_server.swell("door", "list", "-o", "json").json[0]["url"] == address
    closed = own_server.swell("door", "close", "--port", port)
    assert (closed.code, closed.stderr) == (0, f"swell: port {port} is closed\n")
    with pytest.raises(ConnectionRefusedError):
        ask(address, "GET", "/get_all_jobs")
    assert own_server.swell("door").stdout == "no door is open; to open one, run: swell door open genai --port 5000\n"
    events = own_server.client().events(limit=1000)
    assert [event["kind"] for event in events if event["kind"].startswith("Door")] == ["DoorOpened", "DoorClosed"]


def curl(*words: str) -> tuple[int, str]:
    """The real one: status and body."""
    command = [need("curl", "curl"), "--silent", "--max-time", "20", "--write-out", "\n%{http_code}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_a_plain_curl_works_where_an_admin_opened_the_door_and_nowhere_else(own_server: Server) -> None:
    job = own_server.start("--name", "train", "--", "sh", "-c", "read line < /dev/zero")
    own_server.until(job, "running")
    main = json.loads(own_server.state.server_file.read_text())["url"]
    door = own_server.swell("door", "open", "genai", "--port", "0").stdout.strip()
    status, body = curl(f"{door}/get_all_jobs")
    assert (status, [record["job_name"] for record in json.loads(body)]) == (200, ["train"])
    told = {"job_name": "train", "last_checkpoint_time": 1, "completed_epochs": 1}
    put = ("--request", "PUT", "--header", "Content-Type: application/json", "--data", json.dumps(told))
    assert curl(*put, f"{door}/update_last_checkpoint")[0] == 200
    assert curl(f"{main}/get_all_jobs")[0] == 404
    assert curl("--header", "Host: evil.example", f"{door}/get_all_jobs")[0] == 403


def test_a_port_that_was_taken_meanwhile_is_named_and_does_no_harm(own_server: Server) -> None:
    port = int(own_server.swell("door", "open", "kubeprofiler", "--port", "0").stdout.rpartition(":")[2])
    assert own_server.down().code == 0
    with socket.create_server(("127.0.0.1", port)):
        own_server.up()
        [door] = own_server.swell("door", "list", "-o", "json").json
        assert door["problem"].startswith(f"port {port} cannot be used: Address already in use")
    assert own_server.swell("door", "close", "--port", str(port)).code == 0


def test_an_address_needs_no_header_and_no_token_is_ever_logged(own_server: Server) -> None:
    made = own_server.swell("door", "address", "genai", "--lasts", "1h")
    address = made.stdout.strip()
    assert (made.code, ask(address, "GET", "/get_all_jobs")) == (0, (200, []))
    job = own_server.start("--", "sh", "-c", 'echo "door $SWELL_DOOR"; read line < /dev/zero')
    door = own_server.until_output(job, b"\n").decode().split()[1]
    assert [record["job_name"] for record in ask(door, "GET", "/get_all_jobs")[1]] == ["sh"]
    told = {"job_name": "sh", "last_checkpoint_time": time.time(), "completed_epochs": 1.0, "total_epochs": 3}
    status, answer = ask(door, "PUT", "/update_last_checkpoint", told)
    assert (status, answer["job"]["completed_epochs"]) == (200, 1.0), answer
    ask(f"{address}x", "GET", "/get_all_jobs")
    ask(door, "POST", "/add_job", {"job_name": "x"})
    assert own_server.down().code == 0
    log = own_server.state.server_log.read_text()
    assert "forged or over" in log
    assert not [token for token in (address.rpartition("/")[2], door.rpartition("/")[2]) if token in log]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("open", "gennai", "--port", "0"), 2, "there is no door 'gennai'; did you mean 'genai'?"),
        (("open", "genai"), 2, "Missing option '--port'"),
        (("close", "--port", "1"), 2, "no door is open on port 1; `swell door` lists the open ports"),
        (("address", "genai", "--lasts", "soon"), 2, "--lasts: 'soon' is not a duration"),
        (("address", "genai", "--lasts", "2000d"), 2, "lasts must be at most 366d, but is 2000d"),
    ],
)
def test_what_cannot_be_meant_is_refused(server: Server, words: tuple[str, ...], code: int, said: str) -> None:
    done = server.swell("door", *words)
    assert (done.code, said in done.stderr) == (code, True), done
