"""One request: over a Unix socket where the server's address is out of reach, over TLS to the one that was named."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from engines.kubernetes.certificates import self_signed
from swell_sdk.orders import Asked
from swell_sdk.wire import Answer, Verdict, Wire

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"stop_after_epoch": 4}'


def test_a_report_goes_through_the_socket_where_there_is_one(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "jobs.sock"))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as line:
                data = b""
                while not data.endswith(b"\r\n\r\n{}"):
                    data += line.recv(65536)
                asked.append(data)
                line.sendall(ANSWER)

        server = threading.Thread(target=serve)
        server.start()
        wire = Wire("http://127.0.0.1:9", token="secret", attempt_id="7.1", socket_path=str(tmp_path / "jobs.sock"))
        answer = wire.send_report({}, within_s=5)
        server.join()
    assert answer == Answer(Verdict.TAKEN, Asked(stop_after_epoch=4))
    head = asked[0].split(b"\r\n")
    assert head[0] == b"POST /api/v1/attempts/7.1/report HTTP/1.1"
    assert b"Authorization: Bearer secret" in head
    wire.close()


def test_a_socket_that_nobody_serves_means_that_the_server_is_away(tmp_path: Path) -> None:
    wire = Wire("http://127.0.0.1:9", token="secret", attempt_id="7.1", socket_path=str(tmp_path / "none"))
    assert wire.send_report({}, within_s=1).verdict is Verdict.AWAY


@pytest.mark.slow  # needs openssl
@pytest.mark.parametrize("is_it", [True, False])
def test_over_tls_a_token_goes_only_to_the_server_whose_certificate_was_named(tmp_path: Path, is_it: bool) -> None:
    """Nobody vouches for a certificate that a server has made by itself."""
    pair, other = self_signed(tmp_path, "ours"), self_signed(tmp_path, "others")
    named = (pair if is_it else other).certificate
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(named.read_text())).hexdigest().upper()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with context.wrap_socket(listener.accept()[0], server_side=True) as line:
                data = line.recv(65536)
                while data and not data.endswith(b"\r\n\r\n{}"):
                    data += line.recv(65536)
                asked.append(data)
                if data:
                    line.sendall(ANSWER)

        server = threading.Thread(target=serve)
        server.start()
        url = f"https://localhost:{listener.getsockname()[1]}"
        wire = Wire(url, token="secret", attempt_id="7.1", fingerprint=fingerprint)
        answer = wire.send_report({}, within_s=5)
        wire.close()
        server.join()
    if is_it:
        assert answer == Answer(Verdict.TAKEN, Asked(stop_after_epoch=4))
        assert b"Bearer secret" in asked[0]
    else:
        assert answer.verdict is Verdict.AWAY
        assert "does not match SWELL_URL_FINGERPRINT" in answer.reason
        assert asked == [b""]
