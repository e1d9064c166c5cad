"""Where does a server listen beside loopback, and by which names is it called there?

A token is needed there as everywhere. A page that somebody visits can be made to call any name or address that their
browser reaches, so the server answers to the names it was told of and to no others.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swell.config import Config
from swell.errors import Conflict, Rejected

DEFAULT_PORTS = {"http": 80, "https": 443}  # what a Host header leaves out
LOOPBACK_NAMES = ("127.0.0.1", "localhost")  # how a forwarded port is called at its other end
NAME = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
#: The first port that users may listen on. An administrator can lower it, and the network of a container has 0.
PORTS_OF_USERS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
WAITING_MAX = 1024  # connections that the kernel keeps for us until they are accepted


@dataclass(frozen=True, slots=True)
class Listening:
    """Beyond loopback."""

    address: str  #: of this machine; 0.0.0.0 or ::: all that it has
    port: int
    url: str  #: what jobs are told
    hosts: frozenset[str]  #: what a Host header may say
    is_secure: bool = False  #: we speak TLS there ourselves

    def open(self) -> socket.socket:
        return listen(self.address, self.port, todo="choose another address with --listen")


def listen(address: str, port: int, *, todo: str) -> socket.socket:
    """Raises `Conflict` where somebody else has the port, or the machine not the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Named as TCP, or asyncio does not switch off Nagle's algorithm and every answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise Conflict(f"port {port} cannot be used: {error.strerror}; {todo}") from error
    listener.listen(WAITING_MAX)
    return listener


def first_port_of_users() -> int:
    """Ports below are root's alone."""
    try:
        return min(1024, int(PORTS_OF_USERS.read_text()))
    except (OSError, ValueError):
        return 1024  # a kernel from before 4.11 has no other


def read_listening(
    listen: str | None,
    advertise: str | None,
    allowed: Iterable[str] = (),
    *,
    has_certificate: bool = False,
    plain_http: bool = False,
) -> Listening | None:
    """None: on loopback only."""
    if listen is None:
        if advertise is not None or tuple(allowed) or has_certificate or plain_http:
            raise Rejected(
                "--advertise, --allowed-host, --tls-cert and --plain-http need --listen; add --listen ADDRESS:PORT"
            )
        return None
    address, port = read_address(listen)
    named = f"[{address}]" if ":" in address else address
    is_any = ipaddress.ip_address(address).is_unspecified
    if advertise is None and is_any:
        raise Rejected(
            f"--listen {listen} means all addresses of this machine, but jobs elsewhere need one name or "
            "address; add --advertise https://NAME:PORT"
        )
    said = None if advertise is None else _read_url(advertise)
    is_secure = _is_secure(address, port, said, has_certificate=has_certificate, plain_http=plain_http)
    url = f"{'https' if is_secure else 'http'}://{named}:{port}" if said is None else said
    own = LOOPBACK_NAMES if is_any else (*LOOPBACK_NAMES, named)
    hosts = {f"{name}:{port}" for name in own} | _hosts_of(url) | _allowed(allowed, port)
    return Listening(address, port, url, frozenset(hosts), is_secure)


def listening_of(config: Config) -> Listening | None:
    return read_listening(
        config.listen,
        config.advertise,
        config.allowed_hosts,
        has_certificate=config.tls_cert is not None,
        plain_http=config.plain_http,
    )


def _is_secure(address: str, port: int, advertised: str | None, *, has_certificate: bool, plain_http: bool) -> bool:
    """Beyond loopback we speak TLS, unless the operator says that nobody does, or that something before us does."""
    scheme = None if advertised is None else urlsplit(advertised).scheme
    if has_certificate and (plain_http or scheme == "http"):
        said = "--plain-http" if plain_http else f"--advertise {advertised}"
        raise Rejected(f"--tls-cert asks for TLS and {said} for none; leave one of them out")
    if has_certificate or plain_http:
        return has_certificate
    if advertised is None:
        return not ipaddress.ip_address(address).is_loopback
    # At another port than ours it is somebody else's TLS that is advertised: a proxy, which reaches us without.
    return scheme == "https" and (urlsplit(advertised).port or DEFAULT_PORTS["https"]) == port


def read_address(text: str) -> tuple[str, int]:
    """'0.0.0.0:8080' or '[::]:8080'."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
        is_bracketed = host.startswith("[")
    except ValueError:
        raise Rejected(_no_address(text)) from None
    if is_bracketed != (address.version == 6) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise Rejected(_no_address(text))
    return str(address), int(port)


def _no_address(text: str) -> str:
    return f"--listen {text!r} is not an address with a port; write 0.0.0.0:8080, 10.1.2.3:8080 or [::]:8080"


def _read_url(text: str) -> str:
    try:
        found = urlsplit(text)
        is_good = found.scheme in DEFAULT_PORTS and found.port != 0 and NAME.fullmatch(_name(found.netloc)) is not None
    except ValueError:  # a port that is no number
        is_good = False
    if not is_good or found.path not in ("", "/") or found.query or found.fragment or found.username is not None:
        raise Rejected(f"--advertise {text!r} is not a server address; write http://NAME:PORT or https://NAME")
    return f"{found.scheme}://{found.netloc.removesuffix(':')}"


def _hosts_of(url: str) -> set[str]:
    """A client leaves out the port that its scheme means anyway, or does not."""
    found = urlsplit(url)
    default = DEFAULT_PORTS[found.scheme]
    if found.port in (None, default):
        return {_name(found.netloc), f"{_name(found.netloc)}:{default}"}
    return {found.netloc}


def _allowed(names: Iterable[str], port: int) -> set[str]:
    """One without a port is meant with ours, and as a proxy in front of us may pass it on."""
    found: set[str] = set()
    for given in names:
        text = f"[{given}]" if given.count(":") > 1 and not given.startswith("[") else given  # an IPv6 address
        name = _name(text)
        own = text.removeprefix(name).removeprefix(":")
        if not NAME.fullmatch(name) or (own and not own.isdigit()):
            raise Rejected(f"--allowed-host {given!r} is not a host name; write NAME or NAME:PORT")
        found |= {text} if own else {name, f"{name}:{port}"}
    return found


def _name(netloc: str) -> str:
    return re.sub(r":\d*$", "", netloc)
