"""EC2's address for a machine's own data, on loopback: a fake that announces when a test says so."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOTICE = {"action": "terminate", "time": "2026-11-18T10:00:00Z"}


class MachineData:
    """Wants a token first, as EC2 does where IMDSv2 is required."""

    def __init__(self) -> None:
        self.notice: Any = None  #: None: nothing is announced
        self.token = "first"
        self.seen: list[tuple[str, int]] = []  #: method and status
        self.asked = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                status, body = outer.answer(self.command, self.path, self.headers)
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, bytes]:
        status, body = 404, b"not found"
        if method == "PUT" and path == "/latest/api/token" and headers["X-aws-ec2-metadata-token-ttl-seconds"]:
            status, body = 200, self.token.encode()
        elif headers["X-aws-ec2-metadata-token"] != self.token:
            status, body = 401, b"unauthorized"
        elif path == "/latest/meta-data/spot/instance-action" and self.notice is not None:
            status, body = 200, json.dumps(self.notice).encode()
        with self.asked:
            self.seen.append((method, status))
            self.asked.notify_all()
        return status, body

    def await_asked(self, *wanted: tuple[str, int]) -> None:
        """Until that was asked and answered so, in this order."""
        with self.asked:
            assert self.asked.wait_for(lambda: tuple(self.seen[-len(wanted) :]) == wanted, 20), self.seen

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
