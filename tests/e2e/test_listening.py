"""A server that others reach: beside loopback, by the names it was told of, never without a token."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from server import PATIENCE_S, Server, ended

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.2"  # every address of 127/8 is this machine's; nothing but --listen serves this one


def free_port() -> int:
    with socket.create_server((ELSEWHERE, 0)) as listener:
        return int(listener.getsockname()[1])


def status(port: int, path: str, *, host: str, token: str | None = None) -> int:
    connection = http.client.HTTPConnection(ELSEWHERE, port, timeout=PATIENCE_S)
    headers = {"Host": host} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    connection.request("GET", path, headers=headers)
    found = connection.getresponse().status
    connection.close()
    return found


def test_a_server_that_listens_elsewhere_is_reached_by_its_names_and_tells_jobs_the_advertised_one(tmp_path: Path):
    port = free_port()
    words = ("--listen", f"{ELSEWHERE}:{port}", "--advertise", f"http://swell.test:{port}", "--allowed-host", "swell")
    with Server(tmp_path, *words) as server:
        token = server.state.token.read_text().strip()
        names = (f"swell.test:{port}", f"swell:{port}", "swell", f"{ELSEWHERE}:{port}", f"localhost:{port}")
        for name in names:
            assert status(port, "/api/v1/jobs", host=name, token=token) == 200, name
            assert status(port, "/api/v1/jobs", host=name) == 401, name
        assert status(port, "/api/v1/jobs", host="evil.example", token=token) == 403
        assert [status(port, path, host="10.0.0.1:1") for path in ("/healthz", "/readyz")] == [200, 200]
        told = server.swell("run", "--", "sh", "-c", "echo $SWELL_URL")
        assert told.stdout == f"http://swell.test:{port}\n"

        assert server.down().code == 0
        assert server.swell("up", "-d").code == 0  # it is remembered
        assert status(port, "/readyz", host="swell") == 200

        assert server.down().code == 0
        assert server.swell("up", "-d", "--listen", "none").code == 0
        with pytest.raises(ConnectionRefusedError):
            status(port, "/readyz", host="swell")


def test_what_cannot_be_meant_starts_no_server(tmp_path: Path):
    with Server(tmp_path) as server:
        server.down()
        refused = server.swell("up", "-d", "--listen", "0.0.0.0:8080")
        assert (refused.code, server.is_up) == (2, False)
        assert refused.stderr == (
            "swell: --listen 0.0.0.0:8080 means all addresses of this machine, but jobs elsewhere need one name "
            "or address; add --advertise https://NAME:PORT\n"
        )


def test_a_server_takes_its_settings_and_its_token_from_files_that_others_write(tmp_path: Path):
    """As in a pod: a ConfigMap and a Secret."""
    config, token, log = tmp_path / "config.json", tmp_path / "token", tmp_path / "log"
    port, door = free_port(), free_port()
    owner = os.environ.get("LOGNAME", "root")
    standing = {"name": "genai", "port": door, "user": owner, "address": ELSEWHERE}
    config.write_text(json.dumps({"doors": [standing]}))
    token.write_text("a-secret-of-the-cluster\n")
    words = ["--state", str(tmp_path / "state"), "--config", str(config), "--token-file", str(token)]
    words += ["--listen", f"{ELSEWHERE}:{port}"]
    with log.open("wb") as out:
        environment = {**os.environ, "LOGNAME": owner}
        server = subprocess.Popen([sys.executable, "-m", "swell.server", *words], stderr=out, env=environment)
    try:
        until_listening(port, server)
        host = f"{ELSEWHERE}:{port}"
        assert status(port, "/api/v1/jobs", host=host, token="a-secret-of-the-cluster") == 200
        until_listening(door, server)
        assert status(door, "/get_all_jobs", host=f"localhost:{door}") == 200
    finally:
        with ended(server.pid):
            server.terminate()
    assert server.wait() == 0


def until_listening(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection((ELSEWHERE, port), timeout=PATIENCE_S).close()
        except ConnectionRefusedError:
            continue
        return
    raise AssertionError(f"the server ended with {server.returncode}")
