"""Who may begin TLS, where anybody may connect?

Nobody has said who they are before the handshake is over, so few may be under way. A newer one takes the place of the
oldest of the address that has the most: whoever connects without going on pushes out their own connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable

HANDSHAKE_S = 5.0  # a client that is there greets within milliseconds
HANDSHAKES_MAX = 64  # nobody is counted before TLS has begun: these are of `crowd.DESCRIPTORS_KEPT`
ACCEPTED_AT_ONCE = 16  # before everything else has its turn again
ACCEPT_AGAIN_S = 0.5  # after the system had no descriptor left
NETWORK_GROUPS = 4  # of an IPv6 address: a machine has as many addresses as it likes with the same first four

log = logging.getLogger(__name__)


class Handshakes:
    """Makes connections of those that come to one socket, once TLS is agreed on. Used on one event loop."""

    def __init__(
        self, listener: socket.socket, tls: Callable[[], ssl.SSLContext], make: Callable[[], asyncio.Protocol]
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make = make
        self._under_way: dict[asyncio.Task[None], str] = {}  #: and from where; the oldest are first
        listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        self._accepting.add_done_callback(lambda _: listener.close())

    def close(self) -> None:
        """Nobody new comes; who is not through is dropped."""
        self._accepting.cancel()
        for one in list(self._under_way):
            one.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                for _ in range(ACCEPTED_AT_ONCE):
                    connection, address = await loop.sock_accept(self._listener)
                    self._begin(connection, network_of(str(address[0])))
                await asyncio.sleep(0)  # what waits to be accepted is accepted without a pause
            except ConnectionError:  # it has gone already
                continue
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)

    def _begin(self, connection: socket.socket, origin: str) -> None:
        if len(self._under_way) >= HANDSHAKES_MAX:
            self._drop_one()
        task = asyncio.get_running_loop().create_task(self._greet(connection))
        self._under_way[task] = origin
        task.add_done_callback(lambda done: self._end(done, connection))

    def _drop_one(self) -> None:
        """The oldest of the address that has the most."""
        crowded, _ = Counter(self._under_way.values()).most_common(1)[0]
        oldest = next(task for task, origin in self._under_way.items() if origin == crowded)
        del self._under_way[oldest]
        oldest.cancel()

    async def _greet(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._make, connection, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_S
        )

    def _end(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._under_way.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            connection.close()  # also of one that was dropped before it began
        if error is not None and not isinstance(error, OSError):  # `ssl.SSLError` is one
            log.error("a TLS connection could not begin", exc_info=error)


def network_of(address: str) -> str:
    """Which connections are counted together: of IPv6 those of a network, as one machine has all its addresses."""
    if ":" not in address or address.startswith("::ffff:"):
        return address
    packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    return packed[: 2 * NETWORK_GROUPS].hex()
