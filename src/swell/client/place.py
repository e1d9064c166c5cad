"""Which server is asked, and what is said when it does not answer?

That of a state folder or of this machine is here; remote.py has those elsewhere.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from swell.errors import Denied, SwellError, Unavailable
from swell.sockets import UnixConnection
from swell.state import StateFolder

TIMEOUT_S = 90.0  # above any long poll


class NoServer(Unavailable):
    """Nobody answers there."""


class Place(Protocol):
    """A server and the way to it; its text names it in the middle of a sentence."""

    @property
    def patience_s(self) -> float:
        """How long it may be away, at least, before whoever waits for a job gives up."""

    def connect(self) -> http.client.HTTPConnection:
        """Connected, or ready to connect."""

    def identity(self) -> str | None:
        """The token to show; None: the kernel says who we are."""

    def is_worth_repeating(self, status: int, shown: str | None) -> bool:
        """Told of every answer: True when it refused what we showed and there is something newer to show."""

    def refusal(self, status: int, location: str | None, error: SwellError) -> SwellError:
        """What a person is told of an error that it answered."""

    def nobody(self) -> NoServer: ...

    def gone(self, what: str) -> NoServer: ...

    def silent(self) -> Unavailable: ...

    def forbidden(self) -> Denied: ...


@dataclass(frozen=True, slots=True)
class Here:
    """The server of a state folder, or of this machine."""

    state: StateFolder
    patience_s: float = 0.0

    def __str__(self) -> str:
        return f"the server of {self.state}"

    def connect(self) -> http.client.HTTPConnection:
        if self.state.socket is not None:
            return UnixConnection(self.state.socket, timeout=TIMEOUT_S)
        address = urlsplit(str(self.state.read_json(self.state.server_file).get("url", "")))
        if not address.hostname:
            raise self.nobody()
        return http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_S)

    def identity(self) -> str | None:
        """A private server wants its token."""
        if self.state.socket is not None:
            return None
        token = self.state.token
        try:
            return token.read_text().strip()
        except PermissionError as error:
            raise Denied(f"the token {token} may not be read; this server belongs to somebody else") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.nobody() from error

    def is_worth_repeating(self, status: int, shown: str | None) -> bool:
        return False

    def refusal(self, status: int, location: str | None, error: SwellError) -> SwellError:
        return error

    def nobody(self) -> NoServer:
        if self.state.socket is not None:
            return NoServer(f"the box server of {self.state} does not answer; {self._what_to_do()}")
        return NoServer(
            f"no server runs for {self.state}; start one with `swell up -d`, or name another folder with --state"
        )

    def gone(self, what: str) -> NoServer:
        return NoServer(f"{self} {what}; {self._what_to_do()}")

    def silent(self) -> Unavailable:
        return Unavailable(f"{self} did not answer within {TIMEOUT_S:g} s; see {self.state.server_log}")

    def forbidden(self) -> Denied:
        return Denied(f"you may not use the socket {self.state.socket}; {self._what_to_do()}")

    def _what_to_do(self) -> str:
        if self.state.socket is not None:
            return "ask your administrator: systemctl status swell"
        return f"start it again with `swell up -d` ({self.state.server_log} may say why)"
