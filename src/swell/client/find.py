"""Which server does a command ask, and why that one?

    --state DIR                          said with the command
    SWELL_SERVER, or SWELL_STATE, or     said for this shell; the first two at once are refused: a job must not end up
    SWELL_SOCKET                         where nobody expects it
    swell login                          said once
    this machine's box server            found
    ~/.local/state/swell                 one's own

A login comes before what is merely found, whether or not that runs: where a job goes must not depend on which process
happens to be alive.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swell.errors import Rejected, SwellError
from swell.machine.state_folder import StateFolder

if TYPE_CHECKING:
    from swell.client.remote import Remote


@dataclass(frozen=True, slots=True)
class Choice:
    server: StateFolder | Remote
    why: str  #: goes on after "it is asked because"


def find_server(option: str | None = None) -> StateFolder | Remote:
    return choose(option).server


def choose(option: str | None = None) -> Choice:
    """Raises `Denied` for a folder that others may have prepared: their server would tell this command what to run."""
    chosen = _choose(option)
    if isinstance(chosen.server, StateFolder) and chosen.server.socket is None:
        chosen.server.refuse_if_others_may_write()
    return chosen


def _choose(option: str | None) -> Choice:
    if option:
        return Choice(StateFolder.locate(option), "--state names it")
    address, folder = os.environ.get("SWELL_SERVER"), os.environ.get("SWELL_STATE")
    if address and folder:
        raise Rejected(
            f"SWELL_SERVER names {address} and SWELL_STATE the folder {folder}, but a command uses one server; "
            "unset one of them, or add --state DIR"
        )
    if address:
        return _elsewhere(address)
    if folder:
        return Choice(StateFolder.locate(), "SWELL_STATE names it")
    if os.environ.get("SWELL_SOCKET"):
        return Choice(StateFolder.locate(), "SWELL_SOCKET names it")
    return _not_named()


def typed(words: str, server: StateFolder | Remote) -> str:
    """A command as a person types it here to reach this server: with --state where a bare one would ask another."""
    if not isinstance(server, StateFolder):
        return f"swell {words}"
    try:
        bare = find_server()
        is_found = isinstance(bare, StateFolder) and (bare.root, bare.socket) == (server.root, server.socket)
    except SwellError:  # nothing can be asked without --state
        is_found = False
    return f"swell {words}" if is_found else f"swell {words} --state {shlex.quote(str(server.root))}"


def _elsewhere(address: str) -> Choice:
    from swell.client.login import Login

    login = Login(address, fingerprint=os.environ.get("SWELL_FINGERPRINT") or None)
    return Choice(login.remote(), "SWELL_SERVER names it")


def _not_named() -> Choice:
    from swell.client.login import read_login

    found = read_login()
    if found is not None:
        return Choice(found.remote(), "you logged in to it (to stop using it, run: swell logout)")
    state = StateFolder.locate()
    return Choice(state, "no other server is named" if state.socket is None else "it serves all users of this machine")
