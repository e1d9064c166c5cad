"""How is an application served over HTTP, so that connections stay bounded on all ports together?"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn

from swell.api.connections import ClientConnection
from swell.api.handshakes import Handshakes

ACCEPTED_AT_ONCE = 64  # asyncio accepts so many before the first is counted; well below DESCRIPTORS_KEPT
WAITING_MAX = 1024  # connections that the kernel keeps for us until they are accepted


class BoundedServer(uvicorn.Server):
    """The main one, and one for every opened door."""

    def __init__(self, app: Any, *, keep_alive_s: int, ends_s: int) -> None:
        self._secure: Sequence[socket.socket] = ()
        self._tls: Callable[[], ssl.SSLContext] | None = None
        self._handshakes: list[Handshakes] = []
        super().__init__(
            uvicorn.Config(
                app,
                http=ClientConnection,
                ws="none",
                proxy_headers=False,  # nobody may say for us from where they come
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=ends_s,
                timeout_keep_alive=keep_alive_s,
                backlog=ACCEPTED_AT_ONCE,
            )
        )

    def secure(self, listeners: Sequence[socket.socket], tls: Callable[[], ssl.SSLContext]) -> None:
        """Speak TLS there, beside what `run` is given; `tls` is asked for each connection."""
        self._secure, self._tls = listeners, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio has one number for how many to accept at once and how many the kernel keeps; we want two."""
        await super().startup(sockets)
        for listener in (*(sockets or ()), *self._secure):
            listener.listen(WAITING_MAX)
        if self._tls is not None:
            self._handshakes = [Handshakes(listener, self._tls, self._protocol) for listener in self._secure]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in self._handshakes:
            one.close()
        await super().shutdown(sockets)

    def _protocol(self) -> ClientConnection:
        return ClientConnection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=None
        )
