"""One request over a Unix socket: where the server's address is out of a container's reach."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

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
    assert answer == Answer(Verdict.TAKEN, stop_after_epoch=4)
    head = asked[0].split(b"\r\n")
    assert head[0] == b"POST /api/v1/attempts/7.1/report HTTP/1.1"
    assert b"Authorization: Bearer secret" in head
    wire.close()


def test_a_socket_that_nobody_serves_means_that_the_server_is_away(tmp_path: Path) -> None:
    wire = Wire("http://127.0.0.1:9", token="secret", attempt_id="7.1", socket_path=str(tmp_path / "none"))
    assert wire.send_report({}, within_s=1).verdict is Verdict.AWAY
