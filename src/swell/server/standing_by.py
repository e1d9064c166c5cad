"""What does a server do while another one serves its state folder? It waits, and takes over when that one ends.

Jobs are in one SQLite database on one disk, and one process has it open. The others would read only half of what a
user asks for: why a job waits is computed from the last plan, which is in that process. A standby therefore opens
nothing but its address. There it is alive and ready to take over; reads it asks of the serving process, through the
socket in the folder (`forwarding.py`), and everything else it refuses with a sentence.

Which of several waiting processes is next, the kernel decides: it gives the folder's lock to one, at once when the last
holder has ended, however it ended. So all of them are on one machine. A store that several machines reach would have a
lock of its own; that, as another `take`, and an answer to reads are all that a standby on another machine needs.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from swell.api.security import ALIVE_PATH, READY_PATH
from swell.api.serving import BoundedServer
from swell.machine.listening import Listening
from swell.server.forwarding import Reads

log = logging.getLogger(__name__)

LOOK_S = 0.2  # a try to get the lock costs microseconds
ENDS_S = 2.0  # of an HTTP server that has nothing to finish
STANDBY, STARTING = "standby", "starting"
REFUSAL = (
    "this server stands by, and another one serves the same state folder; only reads of the API are answered here, as "
    "long as that one does; ask that one, or try again: this one takes over within seconds when the other ends"
)


class Standby:
    """Answers at the server's address until it is closed. The listener is the server's afterwards: nobody who connects
    in between is turned away."""

    def __init__(self, beyond: Listening | None, reads: Reads | None = None) -> None:
        """`reads`: where reads are asked; None: they are refused, too."""
        is_plain = beyond is not None and not beyond.is_secure  # the certificate is the serving process's to make
        self._beyond = beyond
        self._listener = beyond.open() if beyond is not None and is_plain else None
        self._is_told_to_stop = threading.Event()
        self._earlier: dict[signal.Signals, Any] = {}  #: the handlers of before
        self._answers = Answers(reads)
        self._http = BoundedServer(self._answers, keep_alive_s=1, ends_s=1)
        self._thread = threading.Thread(target=self._serve, name="standby", daemon=True)

    def __enter__(self) -> Standby:
        """For the main thread. Whoever has been answered may send a signal at once."""
        self._earlier = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        if self._listener is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._restore_handlers()
        self.close()

    def wait(self, take: Callable[[], bool]) -> bool:
        """Until `take` says that it is our turn, or until SIGTERM or SIGINT: False. For the main thread."""
        try:
            log.info("another server serves this state folder; standing by")
            while not self._is_told_to_stop.is_set():
                if take():
                    self._answers.state = STARTING
                    log.info("taking over")
                    return True
                self._is_told_to_stop.wait(LOOK_S)
            return False
        finally:
            self._restore_handlers()

    def listener(self, beyond: Listening | None) -> socket.socket | None:
        """The one that is open already, for a server with that address; None: it opens its own."""
        if self._listener is None or beyond is None or self._beyond is None:
            return None
        is_same = (beyond.address, beyond.port) == (self._beyond.address, self._beyond.port)
        return self._listener if is_same else None

    def close(self) -> None:
        """From here on nothing is answered, until the server does."""
        self._http.should_exit = True
        if self._thread.is_alive():
            self._thread.join(ENDS_S)

    def _restore_handlers(self) -> None:
        while self._earlier:
            signal.signal(*self._earlier.popitem())

    def _stop(self, *_: object) -> None:
        self._is_told_to_stop.set()

    def _serve(self) -> None:
        assert self._listener is not None
        self._http.run(sockets=[self._listener.dup()])  # it closes what it is given


class Answers:
    """An ASGI application: probes are told what is true. Tokens are looked at by the serving process."""

    def __init__(self, reads: Reads | None = None) -> None:
        self.state = STANDBY
        self._reads = reads

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if self._reads is not None and await self._reads.answer(scope, receive, send):
            return
        status, body = self._answer(scope["path"])
        data = json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
            (b"connection", b"close"),  # the next request may be the server's
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path == ALIVE_PATH:
            return 200, {"status": "ok"}
        if path == READY_PATH:
            return (200 if self.state == STANDBY else 503), {"status": self.state}
        return 503, {"error": {"kind": "Unavailable", "message": REFUSAL}}
