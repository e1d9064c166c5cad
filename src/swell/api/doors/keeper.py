"""Which ports serve a door without a token, and who listens there?

Each opened port is a small HTTP server in a thread of its own, with the application that `entrance.py` makes for it.
What an admin has opened is on loopback and stands in the store, so that it is open again after a restart. What
config.json opens may be elsewhere, under further names: whoever wrote it keeps strangers away, as a NetworkPolicy does.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from swell.api.serving import BoundedServer
from swell.config import Door
from swell.errors import Conflict
from swell.machine.listening import listen
from swell.store import DoorRecord

LOOPBACK = "127.0.0.1"
ENDS_S = 5.0

log = logging.getLogger(__name__)


class Doorkeeper:
    """Opens and closes ports. Used by requests, which come from one thread."""

    def __init__(self) -> None:
        #: What a port serves, and to which names beside loopback's; set by `create_app`.
        self.application: Callable[[DoorRecord, Sequence[str]], Any] = lambda *_: None
        self._serving: dict[int, tuple[BoundedServer, threading.Thread]] = {}
        self.problems: dict[int, str] = {}  #: ports that should be open and are not, and why
        self.standing: list[DoorRecord] = []  #: of config.json

    def bind(self, port: int, address: str = LOOPBACK) -> socket.socket:
        """0: any that is free."""
        return listen(address, port, todo="choose another port with --port, or stop the program that listens there")

    def serve(self, door: DoorRecord, listener: socket.socket, hosts: Sequence[str] = ()) -> None:
        server = BoundedServer(self.application(door, hosts), keep_alive_s=30, ends_s=1)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name=f"door-{door.port}", daemon=True
        )
        self._serving[door.port] = server, thread
        thread.start()

    def reopen(self, doors: Sequence[DoorRecord]) -> None:
        """After a restart. A port that somebody else has taken meanwhile stays closed, and the listing says why."""
        for door in doors:
            self._try(door, LOOPBACK, ())

    def stand(self, door: Door, opened_at: float) -> None:
        """As long as the server runs."""
        record = DoorRecord(door.port, door.name, door.user, opened_at)
        self.standing.append(record)
        self._try(record, door.address, door.hosts)

    def _try(self, door: DoorRecord, address: str, hosts: Sequence[str]) -> None:
        try:
            self.serve(door, self.bind(door.port, address), hosts)
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
