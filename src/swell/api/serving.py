"""How is an application served over HTTP, so that connections stay bounded on all ports together?"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from swell.api.connections import Connection

ACCEPTED_AT_ONCE = 64  # asyncio accepts so many before the first is counted; well below DESCRIPTORS_KEPT
WAITING_MAX = 1024  # connections that the kernel keeps for us until they are accepted


class BoundedServer(uvicorn.Server):
    """The main one, and one for every opened door."""

    def __init__(self, app: Any, *, keep_alive_s: int, ends_s: int) -> None:
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio has one number for how many to accept at once and how many the kernel keeps; we want two."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(WAITING_MAX)
