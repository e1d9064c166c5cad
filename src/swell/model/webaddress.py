"""Where does an http(s) address lead, and which addresses does a pattern name?

An address is read once, here. What is compared with a list is what is connected to: nothing is read a second time, by
another reader with other ideas of where the host ends.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
CHARACTERS = re.compile(r"[!-~]+")  # ASCII without spaces; anything else is written in percent
LENGTH_MAX = 2048
ANY_BELOW = "*."  # before a pattern's host: every name that ends with the rest

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadAddress(ValueError):
    """Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    scheme: str
    host: str  #: lower case; an IP address of version 6 without brackets
    port: int
    path: str  #: begins with a slash
    query: str  #: empty: none

    @classmethod
    def parse(cls, text: str) -> WebAddress:
        if len(text) > LENGTH_MAX:
            raise BadAddress(f"it is longer than {LENGTH_MAX} characters")
        if not CHARACTERS.fullmatch(text) or "\\" in text:
            raise BadAddress("it holds spaces, backslashes or letters that are not ASCII; write them in percent")
        if not text.startswith(("http://", "https://")):
            raise BadAddress("it does not begin with http:// or https://")
        try:
            parts = urlsplit(text)
            port = PORTS[parts.scheme] if parts.port is None else parts.port
        except ValueError:  # a port or brackets that are none
            raise BadAddress("its host or its port is none") from None
        if "@" in parts.netloc:
            raise BadAddress("it holds a user or a password, which are not sent; leave them out")
        path = parts.path or "/"
        if {".", ".."} & set(re.split(r"[/\\]", unquote(path))):
            raise BadAddress("its path climbs (. or ..); write the path that is meant")
        return cls(parts.scheme, _host(parts.hostname, port, is_bracketed="[" in parts.netloc), port, path, parts.query)

    @property
    def ip(self) -> IpAddress | None:
        """None: its host is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def authority(self) -> str:
        """What a Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """What may be shown: the path of many a webhook is its password."""
        return f"{self.scheme}://{self.authority}"

    @property
    def target(self) -> str:
        """What a request line says."""
        return self.path + (f"?{self.query}" if self.query else "")


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """`https://hooks.example.org/services/`: one scheme, host and port, and whatever lies below a path."""

    below: WebAddress
    is_any_below: bool = False  #: every host whose name ends with a dot and this one's

    @classmethod
    def parse(cls, text: str) -> AddressPattern:
        scheme, separator, rest = text.partition("://")
        is_any_below = rest.startswith(ANY_BELOW)
        below = WebAddress.parse(scheme + separator + rest.removeprefix(ANY_BELOW))
        if below.query or "#" in text:
            raise BadAddress("it names a query; write only what every address begins with")
        if is_any_below and below.ip is not None:
            raise BadAddress("below an IP address there is nothing; write the network under networks")
        return cls(below, is_any_below)

    def __str__(self) -> str:
        scheme, _, authority = self.below.origin.partition("://")
        return f"{scheme}://{ANY_BELOW if self.is_any_below else ''}{authority}{self.below.path}"

    def names(self, address: WebAddress) -> bool:
        own = self.below
        if (own.scheme, own.port) != (address.scheme, address.port):
            return False
        is_host = address.host.endswith(f".{own.host}") if self.is_any_below else address.host == own.host
        path = own.path.rstrip("/")
        return is_host and (address.path == path or address.path.startswith(f"{path}/"))


def _host(name: str | None, port: int, *, is_bracketed: bool) -> str:
    if not name or port == 0:
        raise BadAddress("its host or its port is none")
    host = name.lower()
    if is_bracketed:
        try:
            return str(ipaddress.IPv6Address(host.replace("%", "/")))  # an interface of ours is not theirs to name
        except ValueError:
            raise BadAddress("what is in its brackets is no IP address of version 6") from None
    if not HOST.fullmatch(host):
        raise BadAddress("its host is no name and no IP address; names of other letters are written as xn--")
    return host.rstrip(".")
