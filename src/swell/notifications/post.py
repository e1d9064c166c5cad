"""How does an address get its notice?

The name is resolved once, the IP address that comes out is asked about, and exactly that one is connected to; TLS still
asks for a certificate of the name. Nothing is followed anywhere else. Of the answer only its status is told to the
user: what stands in it may be somebody else's.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from swell import __version__
from swell.errors import Rejected
from swell.model.webaddress import IpAddress, WebAddress
from swell.notifications.rules import NotificationRules

CONNECT_S_MAX = 5.0
WHOLE_S_MAX = 15.0  # from connected to answered, however slowly it drips
ANSWER_BYTES = 1024  # read so that the other side is not cut off; thrown away

Destination = tuple[socket.AddressFamily, Any]  # a family, and what `connect` takes for it
Resolve = Callable[[str, int], list[Destination]]


class NotSent(Exception):
    """It may work another time; says what went wrong."""


def resolve(host: str, port: int) -> list[Destination]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, destination) for family, _, _, _, destination in found]


def post(
    address: WebAddress, body: Mapping[str, object], rules: NotificationRules, *, resolve: Resolve = resolve
) -> None:
    """Raises `Rejected` where this server does not send, `NotSent` where it could not."""
    try:
        with _connected(address, rules, resolve) as connection:
            status = _exchange(connection, address, json.dumps(body).encode())
    except TimeoutError:
        raise NotSent(f"{address.origin} did not answer in time") from None
    except (OSError, http.client.HTTPException, UnicodeError) as problem:
        raise NotSent(f"{address.origin} could not be notified: {_words(problem)}") from None
    if 300 <= status < 400:
        raise NotSent(f"{address.origin} answered {status}, a redirect; name the address that it redirects to")
    if not 200 <= status < 300:
        raise NotSent(f"{address.origin} answered {status}")


def _exchange(connection: socket.socket, address: WebAddress, body: bytes) -> int:
    with _ends_in_time(connection) as wrapped_in_time:
        secure = wrapped_in_time if address.scheme == "http" else _secured(wrapped_in_time, address.host)
        speaker = http.client.HTTPConnection(address.host, address.port)
        speaker.sock = secure
        headers = {"Content-Type": "application/json", "User-Agent": f"swell/{__version__}", "Connection": "close"}
        speaker.request("POST", address.target, body, {"Host": address.authority, **headers})
        answer = speaker.getresponse()
        answer.read(ANSWER_BYTES)
        return answer.status


def _secured(connection: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(connection, server_hostname=host)


@contextlib.contextmanager
def _connected(address: WebAddress, rules: NotificationRules, resolve: Resolve) -> Iterator[socket.socket]:
    """To the first IP address that this server may reach. Several are not tried: a notice is tried again anyway."""
    family, destination = _choose(address, rules, resolve(address.host, address.port))
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(CONNECT_S_MAX)
        made.connect(destination)
        ip = _ip(destination)
        if made.getsockname()[0] == made.getpeername()[0] and not rules.may_reach_itself(ip):
            raise Rejected(
                f"notify: {address.origin} is this machine itself ({ip}), to which the server sends no notices; "
                "the operator can allow it under notices.networks in config.json"
            )
        made.settimeout(WHOLE_S_MAX)
        yield made


def _choose(address: WebAddress, rules: NotificationRules, found: list[Destination]) -> Destination:
    for family, destination in found:
        if rules.may_reach(_ip(destination)):
            return family, destination
    for _, destination in found:
        rules.refuse_ip(address, _ip(destination))
    raise NotSent(f"{address.origin} has no IP address")


def _ip(destination: Any) -> IpAddress:
    return ipaddress.ip_address(destination[0])


@contextlib.contextmanager
def _ends_in_time(connection: socket.socket) -> Iterator[socket.socket]:
    """A time-out of a socket begins anew with each byte. The copy stays ours when TLS takes the socket over."""
    with connection.dup() as copy:
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            with contextlib.suppress(OSError):
                copy.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(WHOLE_S_MAX, end)
        timer.daemon = True
        timer.start()
        try:
            yield connection
        except (OSError, http.client.HTTPException):
            if not is_late.is_set():
                raise
        finally:
            timer.cancel()
        if is_late.is_set():  # also of an answer that looked whole when its end was cut off
            raise TimeoutError


def _words(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return problem.verify_message
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
