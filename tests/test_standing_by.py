"""What a server answers while it stands by, when it takes over, and whom it knows to have ended."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import json
import os
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from swell.machine import earlier_holders as holders
from swell.machine.earlier_holders import KEPT_MAX, earlier_holders
from swell.machine.listening import Listening, read_listening
from swell.machine.state_folder import StateFolder
from swell.server.forwarding import AT_ONCE, AT_ONCE_OF_ONE, Reads
from swell.server.standing_by import REFUSAL, Standby


def somewhere(*, is_plain: bool = True) -> Listening:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        address = f"127.0.0.2:{listener.getsockname()[1]}"
    found = read_listening(address, None if is_plain else f"https://{address}")
    assert found is not None
    return found


def ask(beyond: Listening, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(beyond.address, beyond.port, timeout=20)
    connection.request(method, path, body, {"Host": "anything"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_it_is_alive_and_ready_to_take_over_and_says_to_everybody_else_that_it_stands_by() -> None:
    beyond = somewhere()
    refused = (503, {"error": {"kind": "Unavailable", "message": REFUSAL}})
    with Standby(beyond) as standby:
        assert ask(beyond, "/healthz") == (200, {"status": "ok"})
        assert ask(beyond, "/readyz") == (200, {"status": "standby"})
        assert ask(beyond, "/api/v1/jobs") == refused
        assert ask(beyond, "/api/v1/jobs", "POST", bytes(100_000)) == refused
        assert ask(beyond, "/metrics") == refused

        assert standby.wait(lambda: True)
        assert ask(beyond, "/healthz") == (200, {"status": "ok"})
        assert ask(beyond, "/readyz") == (503, {"status": "starting"})


class Serving(http.server.BaseHTTPRequestHandler):
    """Says on a socket what it was asked."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
        if self.path.endswith("broken"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            self.close_connection = True
            return
        self.send_response(418 if "refused" in self.path else 200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("ETag", "one")
        self.end_headers()
        for part in (b'{"jobs":', b" []}"):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Path]:
    """The socket of a serving process."""
    path = tmp_path / "server.sock"
    server = socketserver.ThreadingUnixStreamServer(str(path), Serving)
    Serving.seen = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield path
    server.shutdown()
    server.server_close()
    thread.join()


def test_reads_are_answered_by_the_serving_process_with_the_callers_own_token(serving: Path) -> None:
    beyond = somewhere()
    with Standby(beyond, Reads(serving)):
        connection = http.client.HTTPConnection(beyond.address, beyond.port, timeout=20)
        headers = {"Authorization": "Bearer t", "Host": "anything", "X-Forwarded-For": "me", "Cookie": "c"}
        connection.request("GET", "/api/v1/jobs?all=true&name=a%20b", headers=headers)
        answer = connection.getresponse()
        found = (answer.status, answer.headers["ETag"], json.loads(answer.read()))
        connection.close()
        assert found == (200, "one", {"jobs": []})
        told = {"host": "localhost", "connection": "close", "accept-encoding": "", "authorization": "Bearer t"}
        [(_, path, seen)] = Serving.seen
        assert (path, seen) == (
            "/api/v1/jobs?all=true&name=a%20b",
            {name: text for name, text in told.items() if name != "accept-encoding"},
        )
        assert ask(beyond, "/api/v1/refused") == (418, {"jobs": []})
        assert ask(beyond, "/metrics")[0] == 200


def test_one_token_does_not_take_all_places_for_reads(tmp_path: Path) -> None:
    """64 open requests of one caller kept all others from reading."""

    async def story() -> list[bool]:
        server = await asyncio.start_unix_server(lambda *_: None, tmp_path / "silent.sock")
        reads, gone = Reads(tmp_path / "silent.sock"), asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(_: dict[str, Any]) -> None:
            raise AssertionError("nobody has answered")

        def ask_as(token: bytes) -> asyncio.Task[bool]:
            headers = [(b"authorization", b"Bearer " + token)] if token else []
            scope = {"method": "GET", "path": "/api/v1/jobs", "raw_path": b"/api/v1/jobs"}
            told = {**scope, "query_string": b"", "headers": headers}
            return asyncio.create_task(reads.answer(told, receive, send))

        refused = []
        for token in (b"a", b"b", b"", b"c", b"d"):
            asked = [ask_as(token) for _ in range(AT_ONCE)]
            done, _ = await asyncio.wait(asked, timeout=0.5)
            refused.append(sum(not task.result() for task in done))
        gone.set()
        while held := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            await asyncio.wait(held)
        again = ask_as(b"a")
        assert await again  # places are given back
        server.close()
        return refused

    assert asyncio.run(story()) == [AT_ONCE - AT_ONCE_OF_ONE] * 4 + [AT_ONCE]


def test_changes_and_what_is_no_read_of_the_api_never_reach_it(serving: Path) -> None:
    beyond = somewhere()
    refused = (503, {"error": {"kind": "Unavailable", "message": REFUSAL}})
    with Standby(beyond, Reads(serving)):
        for method in ("POST", "PUT", "PATCH", "DELETE", "HEAD"):
            connection = http.client.HTTPConnection(beyond.address, beyond.port, timeout=20)
            connection.request(method, "/api/v1/jobs")
            assert connection.getresponse().status == 503, method
            connection.close()
        assert ask(beyond, "/") == refused
        assert ask(beyond, "/readyz") == (200, {"status": "standby"})
    assert Serving.seen == []


def test_a_read_that_nobody_answers_is_refused_and_one_that_is_cut_off_is_not_ended_as_whole(
    serving: Path, tmp_path: Path
) -> None:
    beyond = somewhere()
    with Standby(beyond, Reads(tmp_path / "nowhere.sock")):
        assert ask(beyond, "/api/v1/jobs") == (503, {"error": {"kind": "Unavailable", "message": REFUSAL}})
    beyond = somewhere()
    with Standby(beyond, Reads(serving)), pytest.raises(http.client.HTTPException):
        ask(beyond, "/api/v1/broken")


def test_whoever_connects_while_it_hands_its_address_over_is_kept_for_the_server() -> None:
    beyond = somewhere()
    with Standby(beyond) as standby:
        ask(beyond, "/healthz")
        listener = standby.listener(beyond)
        assert listener is not None
    with listener, socket.create_connection((beyond.address, beyond.port)) as client:
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getpeername() == client.getsockname()


def test_it_leaves_an_address_that_speaks_tls_or_that_is_not_the_servers_any_more_to_the_server() -> None:
    beyond = somewhere()
    with Standby(beyond) as standby:
        assert standby.listener(None) is None
        assert standby.listener(somewhere()) is None
    with Standby(somewhere(is_plain=False)) as silent, Standby(None) as local:
        assert silent.listener(beyond) is None
        assert local.listener(beyond) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_never_takes_over(number: signal.Signals) -> None:
    """As the first process of a container, which the kernel ends by no signal that it does not handle."""
    before = signal.getsignal(number)
    looks = 0

    def is_taken() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            signal.raise_signal(number)
        return False

    with Standby(None) as standby:
        assert not standby.wait(is_taken)
    assert looks == 2
    assert signal.getsignal(number) == before


def test_who_has_been_answered_may_end_it_at_once() -> None:
    """SIGTERM between its first answer and its first look at the lock killed it: its pod had failed."""
    before = signal.getsignal(signal.SIGTERM)
    with Standby(None) as standby:
        signal.raise_signal(signal.SIGTERM)
        assert not standby.wait(lambda: True)
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_lock_goes_to_who_waits_when_its_holder_ends(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    first = state.lock("server")
    assert first is not None
    threading.Timer(0.3, first.release).start()
    with Standby(None) as standby:
        assert standby.wait(lambda: state.lock("server") is not None)
    assert state.lock_holder("server") == os.getpid()


# -- who has ended -----------------------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(tmp_path / "state")
    state.root.mkdir()
    assert state.lock("server") is not None
    return state


def test_who_held_the_lock_before_has_ended(state: StateFolder) -> None:
    assert earlier_holders(state, "a") == set()
    assert earlier_holders(state, "b") == {"a"}
    assert earlier_holders(state, "b") == {"a"}  # its container was started again
    assert earlier_holders(state, "a") == {"b"}


def test_so_many_names_are_kept(state: StateFolder) -> None:
    for number in range(3 * KEPT_MAX):
        earlier_holders(state, str(number))
    assert earlier_holders(state, "last") == {str(number) for number in range(2 * KEPT_MAX, 3 * KEPT_MAX)}


def test_nothing_is_known_of_who_held_the_lock_of_another_folder(state: StateFolder, tmp_path: Path) -> None:
    """A copy of the folder, whose server may live."""
    earlier_holders(state, "a")
    copy = StateFolder(tmp_path / "copy")
    copy.root.mkdir()
    (copy.root / "lock-holders.json").write_bytes((state.root / "lock-holders.json").read_bytes())
    assert copy.lock("server") is not None
    assert earlier_holders(copy, "b") == set()


def test_nothing_is_known_of_who_held_the_lock_on_another_machine(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was attached elsewhere: there the first server may still be running, cut off from it."""
    earlier_holders(state, "a")
    monkeypatch.setattr(holders, "boot_id", lambda: "another machine")
    assert earlier_holders(state, "b") == set()


@pytest.mark.parametrize("text", ["", "[]", '{"lock": 1}', '{"names": "ab"}', '{"lock": null, "names": [1]}', "\0"])
def test_a_file_that_says_nothing_sensible_names_nobody(state: StateFolder, text: str) -> None:
    (state.root / "lock-holders.json").write_text(text)
    assert earlier_holders(state, "a") == set()
    assert earlier_holders(state, "b") == {"a"}
