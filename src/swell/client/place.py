"""Which server is asked, and what is said when it does not answer?

That of a state folder or of this machine is here; remote.py has those elsewhere.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Protocol

from swell.client.find import typed
from swell.errors import Denied, SwellError, Unavailable
from swell.machine.state_folder import StateFolder

TIMEOUT_S = 90.0  # above any long poll
BOX_AWAY_S_MAX = 60.0  # systemd starts it again after two seconds; on a busy machine a start takes some more


class NoServer(Unavailable):
    """Nobody answers there."""


class OlderServer(NoServer):
    """One of an earlier version, which has only a port: nobody can be sure who listens there."""


class ServerPlace(Protocol):
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

    @property
    def patience_s(self) -> float:
        """A private server is started again by whoever needs it, a machine's by systemd."""
        return 0.0 if self.state.socket is None else BOX_AWAY_S_MAX

    def __str__(self) -> str:
        return f"the server of {self.state}"

    def connect(self) -> http.client.HTTPConnection:
        return self.state.connection(timeout=TIMEOUT_S)

    def identity(self) -> str | None:
        """A private server wants its token."""
        if self.state.socket is not None:
            return None
        try:
            return self.state.token.read_text().strip()
        except PermissionError as error:
            raise Denied(self.state.foreign()) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.nobody() from error

    def is_worth_repeating(self, status: int, shown: str | None) -> bool:
        return False

    def refusal(self, status: int, location: str | None, error: SwellError) -> SwellError:
        return error

    def nobody(self) -> NoServer:
        if self.state.socket is not None:
            return NoServer(f"the box server of {self.state} does not answer; {self._what_to_do()}")
        older = self.state.older_server()
        if older is not None:
            return OlderServer(
                f"the server of {self.state} (process {older}) is from an earlier version, which this version "
                f"cannot talk to; restart it: `{typed('down', self.state)}`, then "
                f"`{typed('up -d', self.state)}`; running jobs keep running"
            )
        return NoServer(
            f"no server is running for {self.state}; start one with `{typed('up -d', self.state)}`, "
            "or name another folder with --state"
        )

    def gone(self, what: str) -> NoServer:
        return NoServer(f"{self} {what}; {self._what_to_do()}")

    def silent(self) -> Unavailable:
        return Unavailable(f"{self} did not answer within {TIMEOUT_S:g} s; see {self.state.server_log}")

    def forbidden(self) -> Denied:
        if self.state.socket is None:
            return Denied(self.state.foreign())
        return Denied(f"you do not have permission to use the socket {self.state.socket}; {self._what_to_do()}")

    def _what_to_do(self) -> str:
        if self.state.socket is not None:
            return "ask your administrator: systemctl status swell"
        return f"restart it with `{typed('up -d', self.state)}` ({self.state.server_log} may say why)"
