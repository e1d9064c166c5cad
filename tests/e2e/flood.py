"""What does somebody send who means no good, or whose script has gone mad?"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

REQUESTS = 10_000
THREADS = 4
HUGE = b"x" * 10_000_000
#: Bodies that mean nothing, cannot be true, or are true and too many.
BODIES = (
    b"",
    b"{",
    b"\xff\xfe\x00garbage",
    b"[" * 5000,
    b"null",
    b'{"rank": -1}',
    b'{"rank": 0, "begun": 1e400}',
    b'{"rank": 0, "epochs_done": NaN}',
    b'{"rank": 0, "epochs_done": 0}',
    b'{"rank": 0, "epochs_done": 1, "sevrer": true}',
    b'{"rank": 0, "checkpoint": {"epochs_done": 1, "path": "../../../etc/passwd"}}',
    b'{"rank": 0, "checkpoint": {"epochs_done": 0, "path": null}}',
    b'{"rank": 0, "metrics": {"' + b"x" * 1000 + b'": 1}}',
    b'{"rank": 0}',
)


class Flood:
    """Sent from four threads; over when all has been answered or cut off."""

    def __init__(self, url: str, token: str, attempt: str) -> None:
        self._host = urlsplit(url).netloc
        self._path = f"/api/v1/attempts/{attempt}/report"
        self._tokens = (token, token[:-1] + ("0" if token[-1] != "0" else "1"), "swj.1.2.3", "")
        self.answers: Counter[int] = Counter()  #: by status
        self.sent = 0
        self._mutex = threading.Lock()
        self._threads = [threading.Thread(target=self._send_share, args=(n,)) for n in range(THREADS)]

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def is_under_way(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _send_share(self, share: int) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=30)
        for number, body, token in zip(
            range(share, REQUESTS, THREADS), itertools.cycle(BODIES), itertools.cycle((*self._tokens, self._tokens[0]))
        ):
            path = self._path if number % 50 else self._path.replace("/report", "9/report")
            self._send(connection, path, HUGE if number % 500 == 1 else body, token)
        connection.close()

    def _send(self, connection: http.client.HTTPConnection, path: str, body: bytes, token: str) -> None:
        headers: dict[str, Any] = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        status = None
        with contextlib.suppress(OSError, http.client.HTTPException):  # cut off in the midst of 10 MB
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            status = answer.status
        with self._mutex:
            self.sent += 1
            if status is not None:
                self.answers[status] += 1
        if status is None:
            connection.close()
