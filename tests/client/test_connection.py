"""How a request reaches a server, and what is said when it does not."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from swell.client.connection import NoServer, NotScaled, ServerConnection, path
from swell.client.embedded import ensure_server
from swell.client.place import OlderServer
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, Unavailable
from swell.machine.sockets import listen_on
from swell.machine.state_folder import StateFolder

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
HANG_UP = b"\0"  # at the end of what is said: and then the line is cut


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def error(status: int, kind: str, message: str) -> bytes:
    return answer(status, json.dumps({"error": {"kind": kind, "message": message}}).encode())


class Peer:
    """A server that says what it was told to, in that order, and remembers what it was asked."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.script: list[bytes] = []
        self.asked: list[bytes] = []
        self.tokens: list[str] = []  #: of each request
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Of one on loopback."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while head := lines.readline():
                self.asked.append(head.strip())
                length = 0
                while line := lines.readline().strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                    if line.lower().startswith(b"authorization: bearer "):
                        self.tokens.append(line.split()[2].decode())
                lines.read(length)
                said = self.script.pop(0) if self.script else OK
                connection.sendall(said.removesuffix(HANG_UP))
                if said.endswith(HANG_UP):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def state(tmp_path) -> StateFolder:
    made = StateFolder(tmp_path)
    made.secret(made.token)
    return made


@pytest.fixture
def peer(state) -> Iterator[Peer]:
    made = Peer(listen_on(state.server_socket, mode=0o600))
    yield made
    made.close()


def test_one_connection_is_kept_for_many_requests(state, peer):
    connection = ServerConnection(state)
    for _ in range(3):
        assert connection.json("GET", path("jobs")) == {}
    assert peer.connections == 1
    connection.close()


def test_a_kept_connection_that_was_closed_meanwhile_is_opened_again_for_a_question(state, peer):
    connection = ServerConnection(state)
    connection.json("GET", path("jobs"))
    peer.script = [HANG_UP, OK]
    assert connection.json("GET", path("nodes")) == {}
    assert peer.connections == 2


def test_a_submission_with_a_key_is_repeated_because_that_is_harmless(state, peer):
    connection = ServerConnection(state)
    connection.json("GET", path("jobs"))
    peer.script = [HANG_UP, OK]
    assert connection.json("POST", path("jobs"), {}, headers={"Idempotency-Key": "k"}) == {}


def test_a_change_that_may_have_happened_is_not_repeated_and_says_so(state, peer):
    connection = ServerConnection(state)
    connection.json("GET", path("jobs"))
    peer.script = [HANG_UP]
    with pytest.raises(
        NoServer,
        match="closed the connection during a request; check with `swell ps` whether the request was carried out",
    ):
        connection.json("POST", path("server", "stop"), {})
    assert peer.asked.count(b"POST /api/v1/server/stop HTTP/1.1") == 1


def test_a_server_that_hangs_up_on_a_new_connection_is_not_asked_again(state, peer):
    peer.script = [HANG_UP]
    with pytest.raises(NoServer, match="closed the connection during a request"):
        ServerConnection(state).json("GET", path("jobs"))
    assert len(peer.asked) == 1


def test_half_an_answer_is_no_answer(state, peer):
    peer.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}" + HANG_UP]
    with pytest.raises(NoServer, match="closed the connection during a request"):
        ServerConnection(state).json("GET", path("jobs"))


def _with_patience(connection: ServerConnection, timeout_s: float) -> object:
    http = connection.place.connect()
    http.timeout = timeout_s
    connection._http = http
    return connection.json("GET", path("jobs"))


def test_a_server_that_does_not_answer_in_time_is_said_to_be_so(state):
    silent = listen_on(state.server_socket, mode=0o600)
    with silent, pytest.raises(Unavailable, match=r"did not answer within 90 s; see .*/server\.log"):
        _with_patience(ServerConnection(state), 0.1)


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (403, "Denied", Denied),
        (413, "TooLarge", TooLarge),
        (422, "Rejected", Rejected),
        (503, "Unavailable", Unavailable),
        (500, "Bug", SwellError),
        (418, "Teapot", SwellError),
    ],
)
def test_an_error_of_the_server_is_the_same_error_here_with_the_same_words(state, peer, status, kind, raised):
    peer.script = [error(status, kind, "what was asked, what is true, what to do")]
    with pytest.raises(SwellError) as caught:
        ServerConnection(state).json("GET", path("jobs"))
    assert type(caught.value) is raised
    assert str(caught.value) == "what was asked, what is true, what to do"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"error": 5}', b"\xff"])
def test_an_error_in_another_shape_is_quoted(state, peer, body):
    peer.script = [answer(502, body)]
    with pytest.raises(SwellError, match="the server answers 502: "):
        ServerConnection(state).json("GET", path("jobs"))


@pytest.mark.parametrize(
    ("status", "body", "raised", "said"),
    [
        (404, b'{"error": "there is no job"}', NotFound, "there is no job"),
        (409, b'{"error": "it runs"}', Conflict, "it runs"),
        (409, b'["Did not scale",401]', NotScaled, "Did not scale"),
    ],
)
def test_a_doors_errors_are_understood_too(state, peer, status, body, raised, said):
    peer.script = [answer(status, body)]
    with pytest.raises(SwellError) as caught:
        ServerConnection(state).json("POST", "/scale/x")
    assert (type(caught.value), str(caught.value)) == (raised, said)


def test_an_answer_that_points_elsewhere_is_not_taken_for_success(state, peer):
    peer.script = [answer(307, b"")]
    with pytest.raises(SwellError, match="the server answers 307"):
        ServerConnection(state).json("DELETE", path("jobs", ""))


def _nothing(state: StateFolder) -> None:
    pass


def _stale_socket(state: StateFolder) -> None:
    listen_on(state.server_socket, mode=0o600).close()


def _no_token(state: StateFolder) -> None:
    _stale_socket(state)
    state.token.unlink()


def _broken_address(state: StateFolder) -> None:
    state.server_file.write_text("{")


@pytest.mark.parametrize("given", [_nothing, _stale_socket, _no_token, _broken_address])
def test_without_a_server_it_is_said_how_to_start_one(state, given: Callable[[StateFolder], None]):
    given(state)
    with pytest.raises(NoServer) as caught:
        ServerConnection(state).json("GET", path("jobs"))
    assert str(caught.value) == (
        f"no server is running for {state}; start one with `swell up -d --state {state}`, or name another "
        "folder with --state"
    )


def test_a_port_that_is_written_down_is_never_asked(state):
    """Any user of the machine can take the port of a server that has died, and was shown the owner's token there."""
    stranger = Peer(socket.create_server(("127.0.0.1", 0)))
    state.write_json(state.server_file, {"url": stranger.url, "pid": 1})
    with pytest.raises(NoServer, match="no server is running for"):
        ServerConnection(state).json("GET", path("jobs"))
    stranger.close()
    assert (stranger.connections, stranger.tokens) == (0, [])


def test_a_server_of_an_earlier_version_is_named_and_not_trusted(state):
    """It has a port and no socket: who upgrades while it runs is told to start it anew, at once."""
    stranger = Peer(socket.create_server(("127.0.0.1", 0)))
    held = state.lock("server")
    state.write_json(state.server_file, {"url": stranger.url, "pid": os.getpid(), "version": "0.0.1"})
    asked: list[Callable[[], object]] = [lambda: ServerConnection(state).raw("GET", "/"), lambda: ensure_server(state)]
    for ask in asked:
        with pytest.raises(OlderServer) as caught:
            ask()
        assert str(caught.value) == (
            f"the server of {state} (process {os.getpid()}) is from an earlier version, which this version "
            f"cannot talk to; restart it: `swell down --state {state}`, then `swell up -d --state {state}`; "
            "running jobs keep running"
        )
    held.release()
    stranger.close()
    assert stranger.connections == 0


def test_a_server_that_is_not_ready_is_waited_for_no_longer_than_a_start_takes(state, monkeypatch):
    """It listens on its socket before it answers there; whoever asked then waited as long as for an answer."""
    monkeypatch.setattr("swell.client.embedded.START_S_MAX", 0.2)
    held, silent = state.lock("server"), listen_on(state.server_socket, mode=0o600)
    silent.setblocking(False)
    with pytest.raises(Unavailable, match="did not answer within"):
        ensure_server(state)
    with silent, pytest.raises(BlockingIOError):  # nobody has asked
        silent.accept()
    held.release()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (path("jobs", "a/b?c#d e"), "/api/v1/jobs/a%2Fb%3Fc%23d%20e"),
        (path("jobs", "ü"), "/api/v1/jobs/%C3%BC"),
        (path("jobs", 5, "logs", rank=None, offset=-3, follow=True), "/api/v1/jobs/5/logs?offset=-3&follow=true"),
        (path("events", job="a&b=c"), "/api/v1/events?job=a%26b%3Dc"),
    ],
)
def test_everything_in_an_address_is_escaped(made, expected):
    assert made == expected


def test_a_stream_says_so_when_the_server_goes_away(state, peer):
    peer.script = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\none\ntw\r\n" + HANG_UP]
    lines = ServerConnection(state).lines(path("events", "stream"))
    assert next(lines) == b"one\n"
    with pytest.raises(NoServer, match="closed the connection; restart it with `swell up -d --state "):
        list(lines)


def test_a_stream_that_is_refused_says_why(state, peer):
    peer.script = [error(404, "NotFound", "there is no job 'x'")]
    with pytest.raises(NotFound, match="there is no job 'x'"):
        next(ServerConnection(state).lines(path("events", "stream", job="x")))
