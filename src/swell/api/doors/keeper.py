"""Which ports serve a door without a token, and who listens there?

Each opened port is a small HTTP server in a thread of its own, on loopback only, with the application that
`entrance.py` makes for it. What is open stands in the store, so that it is open again after a restart.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn

from swell.api.connections import Connection
from swell.errors import Conflict
from swell.store import DoorRecord

LOOPBACK = "127.0.0.1"
CONNECTIONS_MAX = 500  # at once; more are told to come again
ENDS_S = 5.0

log = logging.getLogger(__name__)


class Doorkeeper:
    """Opens and closes ports. Used by requests, which come from one thread."""

    def __init__(self) -> None:
        self.application: Callable[[DoorRecord], Any] = lambda _: None  #: what a port serves; set by `create_app`
        self._serving: dict[int, tuple[uvicorn.Server, threading.Thread]] = {}
        self.problems: dict[int, str] = {}  #: ports that should be open and are not, and why

    def bind(self, port: int) -> socket.socket:
        """0: any that is free."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            listener.close()
            raise Conflict(
                f"port {port} cannot be used: {error.strerror}; choose another with --port, or end what listens there"
            ) from error
        listener.listen(128)
        return listener

    def serve(self, door: DoorRecord, listener: socket.socket) -> None:
        config = uvicorn.Config(
            self.application(door),
            http=Connection,
            ws="none",
            proxy_headers=False,
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name=f"door-{door.port}", daemon=True
        )
        self._serving[door.port] = server, thread
        thread.start()

    def reopen(self, doors: Sequence[DoorRecord]) -> None:
        """After a restart. A port that somebody else has taken meanwhile stays closed, and the listing says why."""
        for door in doors:
            try:
                self.serve(door, self.bind(door.port))
            except Conflict as problem:
                self.problems[door.port] = str(problem)
                log.error("door %s: %s", door.name, problem)

    def close(self, port: int) -> None:
        self.problems.pop(port, None)
        found = self._serving.pop(port, None)
        if found is not None:
            server, thread = found
            server.should_exit = True
            thread.join(ENDS_S)

    def close_all(self) -> None:
        for port in list(self._serving):
            self.close(port)
