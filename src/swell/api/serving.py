"""How is an application served over HTTP, so that connections stay bounded on all ports together?"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn

from swell.api.connections import Connection

ACCEPTED_AT_ONCE = 64  # asyncio accepts so many before the first is counted; well below DESCRIPTORS_KEPT
HANDSHAKE_S = 5.0  # a client that is there greets within milliseconds
HANDSHAKES_MAX = 64  # nobody is counted before TLS has begun: these are of DESCRIPTORS_KEPT
WAITING_MAX = 1024  # connections that the kernel keeps for us until they are accepted


class BoundedServer(uvicorn.Server):
    """The main one, and one for every opened door."""

    def __init__(self, app: Any, *, keep_alive_s: int, ends_s: int) -> None:
        self._secure: Sequence[socket.socket] = ()
        self._tls: ssl.SSLContext | None = None
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
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

    def secure(self, listeners: Sequence[socket.socket], tls: ssl.SSLContext) -> None:
        """Speak TLS there, beside what `run` is given."""
        self._secure, self._tls = listeners, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio has one number for how many to accept at once and how many the kernel keeps; we want two."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for listener in self._secure:
            made = await loop.create_server(
                Handshakes(self._protocol),
                sock=listener,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S,
                backlog=ACCEPTED_AT_ONCE,
            )
            self.servers.append(made)
        for listener in (*(sockets or ()), *self._secure):
            listener.listen(WAITING_MAX)

    def _protocol(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=None)


class Handshakes:
    """Makes a connection for whoever greets, unless too many have greeted and not gone on."""

    def __init__(self, make: Callable[[], Connection], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._monotonic = monotonic
        self._pending: list[tuple[float, Connection]] = []  #: until when it may take

    def __call__(self) -> Connection:
        """Raises where it is one too many: asyncio then drops that socket."""
        now = self._monotonic()
        self._pending = [(until, one) for until, one in self._pending if until > now and one.transport is None]
        if len(self._pending) >= HANDSHAKES_MAX:
            raise ConnectionAbortedError("too many TLS handshakes at once")
        made = self._make()
        self._pending.append((now + HANDSHAKE_S, made))
        return made
