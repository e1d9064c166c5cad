"""Who greets over TLS and does not go on is bounded, and does not keep the others out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engines.kubernetes.certificates import self_signed
from swell.api.handshakes import HANDSHAKES_MAX, Handshakes, network_of

STRANGER, HONEST = "127.0.0.1", "127.0.0.2"  # two addresses of this machine
WAIT_S = 30.0


class Hello(asyncio.Protocol):
    """Says hello to whoever is through."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


class Port:
    """One that speaks TLS, and those that connect to it."""

    def __init__(self, tmp_path: Path) -> None:
        pair = self_signed(tmp_path, "server")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        listener = socket.create_server((STRANGER, 0), backlog=1024)
        self.address = listener.getsockname()
        self.made = 0
        self.handshakes = Handshakes(listener, lambda: tls, self._make)
        self._opened = contextlib.ExitStack()

    def _make(self) -> Hello:
        self.made += 1
        return Hello()

    def close(self) -> None:
        self._opened.close()
        self.handshakes.close()

    def connect(self, origin: str) -> socket.socket:
        """Without a word."""
        return self._opened.enter_context(socket.create_connection(self.address, WAIT_S, (origin, 0)))

    async def greet(self, connection: socket.socket) -> bytes:
        """What an honest client hears."""
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(sock=connection, ssl=trusting, server_hostname="localhost")
        try:
            return await reader.read(5)
        finally:
            writer.close()

    async def count_open(self, connections: list[socket.socket]) -> int:
        """Those that the server has not hung up on."""
        return sum([await self._is_open(one) for one in connections])

    async def _is_open(self, connection: socket.socket) -> bool:
        connection.setblocking(False)
        try:
            return connection.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False


@contextlib.asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[Port]:
    port = Port(tmp_path)
    try:
        async with asyncio.timeout(WAIT_S):
            yield port
    finally:
        port.close()


@pytest.mark.parametrize("origin", [HONEST, STRANGER])
def test_a_client_is_heard_while_a_stranger_keeps_connections_open_without_a_word(tmp_path: Path, origin: str) -> None:
    """120 of them kept clients of all machines out: the newest of the unfinished handshakes were dropped."""

    async def play() -> None:
        async with opened(tmp_path) as port:
            flood = [port.connect(STRANGER) for _ in range(2 * HANDSHAKES_MAX)]
            assert await port.greet(port.connect(origin)) == b"hello"
            assert await port.count_open(flood) <= HANDSHAKES_MAX

    asyncio.run(play())


def test_a_client_that_is_slow_is_not_pushed_out_by_connections_from_elsewhere(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as port:
            slow = port.connect(HONEST)
            flood = [port.connect(STRANGER) for _ in range(3 * HANDSHAKES_MAX)]
            assert await port.greet(port.connect(STRANGER)) == b"hello"  # all before it have been accepted
            assert await port.greet(slow) == b"hello"
            assert await port.count_open(flood[: 2 * HANDSHAKES_MAX]) == 0

    asyncio.run(play())


def test_who_says_something_that_is_not_tls_is_hung_up_on_and_harms_nobody(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as port:
            for _ in range(HANDSHAKES_MAX):
                port.connect(STRANGER).sendall(b"GET / HTTP/1.1\r\n\r\n")
                port.connect(STRANGER).close()
            assert await port.greet(port.connect(STRANGER)) == b"hello"

    asyncio.run(play())


def test_a_port_that_is_closed_drops_those_that_are_not_through(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as port:
            waiting = port.connect(STRANGER)
            assert await port.greet(port.connect(STRANGER)) == b"hello"
            port.handshakes.close()
            reader, writer = await asyncio.open_connection(sock=waiting)
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""
            writer.close()
            with pytest.raises(ConnectionError):
                await asyncio.to_thread(port.connect, STRANGER)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_one_machine_is_known_by_its_network_where_it_may_have_any_address(one: str, other: str, is_same: bool) -> None:
    assert (network_of(one) == network_of(other)) == is_same
