"""How an address gets its notice: the one IP address that was asked about, in bounded time, and nothing is followed."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engines.kubernetes.certificates import self_signed
from swell.config import parse_config
from swell.errors import Rejected
from swell.model.webaddress import WebAddress
from swell.notifications import NotificationRules, rules_for
from swell.notifications.post import Destination, NotSent, post
from tls import Front

BODY = {"job": 12, "state": "failed"}


class Ear:
    """A web server on loopback that keeps what it was sent."""

    def __init__(self, number: str = "127.0.0.1", port: int = 0) -> None:
        self.got: list[tuple[str, str, Any]] = []
        self.status, self.headers = 200, {}  # type: ignore[var-annotated]
        ear = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                ear.got.append((self.headers["Host"], self.path, body))
                self.send_response(ear.status)
                for name, text in ear.headers.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(b"the secret of somebody else")

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer((number, port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    yield made
    made.close()


def cluster(*networks: str, addresses: tuple[str, ...] = ("http://hooks.lab:1/",)) -> NotificationRules:
    config = parse_config({"notices": {"addresses": list(addresses), "networks": list(networks)}})
    return rules_for(config.notices, on_box=False, on_cluster=True)


class Names:
    """A name server in somebody's hands: each question gets its next answer."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[Destination]:
        self.asked.append(host)
        return [(socket.AF_INET, (number, port)) for number in self.answers.pop(0)]


def lab(port: int, path: str = "/hook") -> WebAddress:
    return WebAddress.parse(f"http://hooks.lab:{port}{path}")


def test_the_name_is_resolved_once_and_that_ip_address_is_connected_to(ear):
    """A name server that says something else the second time (DNS rebinding) is not asked a second time."""
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    post(lab(ear.port), BODY, cluster("127.0.0.1"), resolve=names)
    assert (names.asked, ear.got) == (["hooks.lab"], [(f"hooks.lab:{ear.port}", "/hook", BODY)])


def test_of_several_ip_addresses_only_one_that_may_be_reached_is_connected_to(ear):
    beside = Ear("127.0.0.2", ear.port)
    try:
        post(lab(ear.port), BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.2", "127.0.0.1"]))
        assert (len(ear.got), beside.got) == (1, [])
    finally:
        beside.close()


@pytest.mark.parametrize("number", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "192.168.0.1"])
def test_a_name_that_leads_inside_is_refused_and_nothing_is_connected_to(ear, number):
    with pytest.raises(
        Rejected, match=f"http://hooks.lab:{ear.port} resolves to {number}, and this server sends no notices"
    ):
        post(lab(ear.port), BODY, cluster(), resolve=Names([number]))
    assert ear.got == []


@pytest.mark.parametrize("spelt", ["localhost", "127.1", "2130706433", "0x7f000001", "0"])
def test_the_machine_itself_is_refused_however_it_is_spelt(ear, spelt):
    with pytest.raises(Rejected, match="resolves to"):
        post(WebAddress.parse(f"http://{spelt}:{ear.port}/"), BODY, cluster())
    assert ear.got == []


class Public(NotificationRules):
    """As if every IP address were a public one."""

    def may_reach(self, _: object) -> bool:
        return True


def test_the_machine_itself_is_refused_also_under_an_ip_address_that_looks_public(ear):
    """A lab's machine often has a public IP address, at which root's services listen, too."""
    of = cluster()
    public = Public(of.runs_programs, of.reaches_own_network, of.addresses, of.networks)
    with pytest.raises(Rejected, match=r"is this machine itself \(127.0.0.1\)"):
        post(lab(ear.port), BODY, public, resolve=Names(["127.0.0.1"]))
    assert ear.got == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_followed(ear, status):
    ear.status, ear.headers = status, {"Location": f"http://127.0.0.1:{ear.port}/elsewhere"}
    with pytest.raises(NotSent) as problem:
        post(lab(ear.port), BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.1"]))
    said = f"http://hooks.lab:{ear.port} answered {status}, a redirect; name the address that it redirects to"
    assert (str(problem.value), [path for _, path, _ in ear.got]) == (said, ["/hook"])


def test_of_an_answer_only_its_status_is_told(ear):
    ear.status = 500
    with pytest.raises(NotSent) as problem:
        post(lab(ear.port), BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.1"]))
    assert str(problem.value) == f"http://hooks.lab:{ear.port} answered 500"


@pytest.mark.parametrize(("whom", "is_told"), [("DNS:hooks.lab", True), ("IP:127.0.0.1", False)])
def test_a_certificate_must_be_of_the_name_that_was_asked_for(ear, tmp_path, monkeypatch, whom, is_told):
    pair = self_signed(tmp_path, "front", whom=whom)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair.certificate))
    front = Front(pair)
    front.behind = ("127.0.0.1", ear.port)
    address = WebAddress.parse(f"https://hooks.lab:{front.port}/hook")
    try:
        tell(lambda: post(address, BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.1"])), is_told=is_told)
    finally:
        front.close()
    assert len(ear.got) == int(is_told)


def tell(act: Callable[[], None], *, is_told: bool) -> None:
    if is_told:
        act()
        return
    with pytest.raises(NotSent, match="Hostname mismatch, certificate is not valid for"):
        act()


def test_one_that_drips_is_left_when_its_time_is_over(monkeypatch):
    """Each byte begins a socket's time-out anew: an answer of one header a second would go on for ever."""
    monkeypatch.setattr("swell.notifications.post.WHOLE_S_MAX", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def drip() -> None:
        made, _ = listener.accept()
        with made:
            made.sendall(b"HTTP/1.1 200 OK\r\n")
            try:
                while not is_over.wait(0.05):
                    made.sendall(b"X-Drip: drop\r\n")
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    with pytest.raises(NotSent, match=f"http://hooks.lab:{port} did not answer in time"):
        post(lab(port), BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.1"]))
    thread.join(10)
    is_over.set()
    listener.close()
    assert not thread.is_alive()


def test_nobody_there_and_no_such_name_are_said():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotSent, match="could not be notified: Connection refused"):
        post(lab(port), BODY, cluster("127.0.0.1"), resolve=Names(["127.0.0.1"]))
    with pytest.raises(NotSent, match="could not be notified: "):
        post(WebAddress.parse("http://no-such-host.invalid/"), BODY, cluster())
    with pytest.raises(NotSent, match="has no IP address"):
        post(lab(port), BODY, cluster(), resolve=Names([]))
