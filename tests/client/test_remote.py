"""A server elsewhere: whom a token is sent to, and what is said when it cannot be reached or does not want us."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.kubernetes.certificates import Pair, self_signed
from swell.client.client import ASK_AGAIN_S, SILENT_S_MAX, Client
from swell.client.connection import NoServer, ServerConnection, path
from swell.client.remote import Remote, fetch_fingerprint
from swell.client.tokens import CommandSource, FileSource, Source, Token
from swell.errors import Denied, Rejected, SwellError, Unavailable
from swell.machine.certificate import Certificate
from swell.machine.server_address import read_url
from tls import Front

from .test_connection import HANG_UP, OK, Peer, answer, error
from .test_tokens import counting, jwt, runs

UNKNOWN = error(401, "Denied", "the cluster does not know whose this token is; make a new one: kubectl create token")


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer(socket.create_server(("127.0.0.1", 0)))
    yield made
    made.close()


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    (tmp_path / "token").write_text("first")
    return FileSource(tmp_path / "token")


def asking(url: str, source: Source, ca: Path | None = None) -> ServerConnection:
    return ServerConnection(Remote(url, Token(source), ca, patience_s=0.0))


# -- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://swell.example.org", "https://swell.example.org"),
        ("https://swell.example.org/", "https://swell.example.org"),
        ("https://10.1.2.3:8443", "https://10.1.2.3:8443"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://127.0.0.9:8080", "http://127.0.0.9:8080"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_a_token_may_go_over_tls_anywhere_and_over_http_on_this_machine(text, url):
    assert read_url(text, insecure_http=False) == url


@pytest.mark.parametrize("text", ["http://swell.example.org", "http://10.1.2.3:8080", "http://localhost.evil.test"])
def test_a_token_crosses_no_network_in_the_clear_unless_that_was_said(text):
    with pytest.raises(Rejected) as caught:
        read_url(text, insecure_http=False)
    assert str(caught.value) == (
        f"{text} would send your token unencrypted over the network; use https://, or "
        "http://localhost:8080 with a forwarded port (kubectl -n swell port-forward svc/swell 8080); on a "
        "network that you trust, use --insecure-http"
    )
    assert read_url(text, insecure_http=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "swell.example.org",
        "ftp://a",
        "https://",
        "https://a:x",
        "https://a:0",
        "https://u:p@a",
        "https://a/b",
        "https://a?b",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(Rejected, match="is not a server address; write https://NAME or https://NAME:PORT"):
        read_url(text, insecure_http=True)


# -- tokens --------------------------------------------------------------------------------------------------------


def test_a_token_that_has_worn_out_is_made_anew_and_what_was_asked_is_asked_again(peer, tmp_path):
    connection = asking(peer.url, CommandSource(counting(tmp_path)))
    connection.json("GET", path("jobs"))
    peer.script = [UNKNOWN, OK]
    assert connection.json("POST", path("jobs"), {"a": 1}) == {}
    assert (peer.tokens, runs(tmp_path)) == (["token-1", "token-1", "token-2"], 2)


def test_a_new_token_that_is_refused_is_not_tried_twice(peer, tmp_path):
    command = counting(tmp_path)
    peer.script = [UNKNOWN] * 3
    with pytest.raises(Denied) as caught:
        asking(peer.url, CommandSource(command)).json("GET", path("jobs"))
    assert str(caught.value) == (
        f"{peer.url} refuses the token that `{command}` printed: the cluster does not know whose this token is; "
        "run the command by hand to see whose token it prints, or log in with another: swell login"
    )
    assert (len(peer.asked), runs(tmp_path)) == (1, 1)


def test_a_token_file_that_somebody_renewed_is_read_again(peer, source):
    connection = asking(peer.url, source)
    connection.json("GET", path("jobs"))
    source.path.write_text("second")
    peer.script = [UNKNOWN, OK]
    connection.json("GET", path("jobs"))
    assert peer.tokens == ["first", "first", "second"]


def test_a_stream_is_opened_again_with_a_new_token(peer, source):
    connection = asking(peer.url, source)
    connection.json("GET", path("jobs"))
    source.path.write_text("second")
    peer.script = [UNKNOWN, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"]
    assert next(connection.lines(path("events", "stream"))) == b"one\n"


def test_a_token_that_has_expired_is_said_to_have(peer, source):
    source.path.write_text(jwt(exp=1_000_000))
    peer.script = [UNKNOWN]
    with pytest.raises(Denied) as caught:
        asking(peer.url, source).json("GET", path("jobs"))
    assert str(caught.value) == (
        f"{peer.url} refuses the token in {source.path}, which expired at 1970-01-12 13:46:40 UTC: "
        "the cluster does not know whose this token is; "
        f"write a new token to it, for example: kubectl create token NAME -n NAMESPACE > {source.path}"
    )


# -- what it answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (
            error(403, "Denied", "this server does not answer to the Host 'a'; use one of: b"),
            Denied,
            "this server does not answer to the Host 'a'; use one of: b",
        ),
        (error(503, "Unavailable", "the disk is full"), Unavailable, "the disk is full"),
        (
            answer(503, b"<html>"),
            NoServer,
            "{0} answers 503: the server behind it is down; check that the port is still forwarded",
        ),
        (answer(404, b"<html>"), SwellError, "{0}: the server answers 404: b'<html>'"),
        (answer(200, b"<html>"), SwellError, "the server {0} answers b'<html>', which is not an answer of Swell"),
        (
            b"HTTP/1.1 308 X\r\nLocation: https://a.test/\r\nContent-Length: 0\r\n\r\n",
            Rejected,
            "{0} answers 308 and redirects to https://a.test/; log in to the address of the Swell server itself",
        ),
        (
            HANG_UP,
            NoServer,
            (
                "the server {0} closed the connection during a request; check that the port is still forwarded, for "
                "example: "
            ),
        ),
    ],
)
def test_what_something_in_between_answers_is_not_taken_for_swells_word(peer, source, said, kind, text):
    peer.script = [said]
    with pytest.raises(SwellError) as caught:
        asking(peer.url, source).json("GET", path("jobs"))
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text.format(peer.url))


def test_who_waits_for_a_job_waits_while_the_server_is_replaced(peer, source):
    client = Client(Remote(peer.url, Token(source)))
    document = b'{"id": 1, "state": "%s", "version": 1}'
    peer.script = [
        answer(200, document % b"running"),
        answer(503, b"<html>"),
        HANG_UP,
        answer(200, document % b"failed"),
    ]
    assert client.job(1).wait().state == "failed"


def test_who_waits_for_long_is_told_once_that_the_server_is_away_and_once_that_it_is_back(peer, source):
    """`swell run` showed nothing for up to five minutes."""
    told: list[str] = []
    client = Client(Remote(peer.url, Token(source)), on_away=told.append)
    document = b'{"id": 1, "state": "%s", "version": 1}'
    away_for = int((SILENT_S_MAX + 1) / ASK_AGAIN_S)
    peer.script = [answer(200, document % b"running"), *[HANG_UP] * away_for, answer(200, document % b"failed")]
    assert client.job(1).wait().state == "failed"
    assert told == [
        f"the server {peer.url} does not answer; waiting up to 5m (jobs keep running)",
        f"the server {peer.url} answers again",
    ]


# -- reaching it ---------------------------------------------------------------------------------------------------


def test_nobody_at_the_address_is_said_with_what_to_look_at(source):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NoServer) as caught:
        asking(f"http://127.0.0.1:{port}", source).json("GET", path("jobs"))
    assert str(caught.value) == (
        f"http://127.0.0.1:{port} cannot be reached: Connection refused; "
        "check that the port is still forwarded, for example: kubectl -n swell port-forward svc/swell 8080"
    )


def test_a_name_that_nobody_knows_is_named(source):
    with pytest.raises(NoServer) as caught:
        asking("https://swell.invalid", source).json("GET", path("jobs"))
    assert str(caught.value) == (
        "https://swell.invalid cannot be reached: host name 'swell.invalid' is unknown; check the name and your network"
    )


def test_an_http_server_called_with_tls_is_told_apart(source):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].sendall(answer(400, b"")), daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        said = re.escape(f"{url} does not use TLS; is the address http:// instead?")
        with pytest.raises(Rejected, match=said):
            asking(url, source).json("GET", path("jobs"))


@pytest.mark.parametrize(("text", "why"), [(None, "No such file or directory"), ("x", "it contains no certificate")])
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path, source, text, why):
    if text is not None:
        (tmp_path / "ca").write_text(text)
    with pytest.raises(Rejected, match=f"the CA file {tmp_path}/ca cannot be used: {why}; name a readable PEM file"):
        asking("https://127.0.0.1:1", source, tmp_path / "ca").json("GET", path("jobs"))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return self_signed(tmp_path, "ours")


@pytest.fixture
def front(pair: Pair, peer: Peer) -> Iterator[Front]:
    made = Front(pair)
    made.behind = ("127.0.0.1", int(peer.url.rpartition(":")[2]))
    yield made
    made.close()


@pytest.mark.slow  # needs openssl
def test_a_server_is_trusted_when_the_named_authority_vouches_for_it(front, pair, source, peer):
    connection = asking(front.url, source, pair.certificate)
    assert connection.json("GET", path("jobs")) == {}
    assert peer.tokens == ["first"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ca", "host", "said"),
    [
        (None, "127.0.0.1", "self-signed certificate; give the fingerprint that `swell up` printed on the server: "),
        (
            "theirs",
            "127.0.0.1",
            "self-signed certificate; {1}/theirs.crt did not sign it; name another CA file: swell login {0} --ca ",
        ),
        (
            "ours",
            "localhost",
            "Hostname mismatch, certificate is not valid for 'localhost'.; use a host name that is in its",
        ),
    ],
)
def test_a_server_that_nobody_vouches_for_gets_no_token(front, source, peer, tmp_path, ca, host, said):
    self_signed(tmp_path, "theirs")
    url = front.url.replace("127.0.0.1", host)
    with pytest.raises(Rejected) as caught:
        asking(url, source, ca and tmp_path / f"{ca}.crt").json("GET", path("jobs"))
    assert str(caught.value).startswith(f"the certificate of {url} is not trusted: {said.format(url, tmp_path)}")
    assert (peer.asked, peer.tokens) == ([], [])


@pytest.mark.slow
def test_a_server_whose_fingerprint_was_named_is_trusted_by_any_name_and_no_other_is(
    front, pair, source, peer, tmp_path
):
    shown = Certificate(pair.certificate, pair.key, is_own=True).fingerprint
    url = front.url.replace("127.0.0.1", "localhost")
    assert fetch_fingerprint(url) == shown
    assert (peer.asked, peer.tokens) == ([], [])
    other = Certificate(self_signed(tmp_path, "theirs").certificate, pair.key, is_own=True).fingerprint
    with pytest.raises(Denied) as caught:
        ServerConnection(Remote(url, Token(source), fingerprint=other)).json("GET", path("jobs"))
    assert str(caught.value) == (
        f"the certificate of {url} has changed: its fingerprint is {shown}, not {other}. Someone "
        "may be intercepting the connection; if the operator has a new certificate, log in again: "
        f"swell login {url} --fingerprint …"
    )
    assert (peer.asked, peer.tokens) == ([], [])
    assert ServerConnection(Remote(url, Token(source), fingerprint=shown)).json("GET", path("jobs")) == {}
    assert peer.tokens == ["first"]
