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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swell.errors import Rejected
from swell.state import StateFolder

if TYPE_CHECKING:
    from swell.client.remote import Remote


@dataclass(frozen=True, slots=True)
class Choice:
    server: StateFolder | Remote
    why: str  #: goes on after "it is asked because"


def find_server(option: str | None = None) -> StateFolder | Remote:
    return choose(option).server


def choose(option: str | None = None) -> Choice:
    if option:
        return Choice(StateFolder.locate(option), "--state names it")
    address, folder = os.environ.get("SWELL_SERVER"), os.environ.get("SWELL_STATE")
    if address and folder:
        raise Rejected(
            f"SWELL_SERVER names {address} and SWELL_STATE the folder {folder}, and only one can be asked; "
            "unset one of them, or say --state DIR"
        )
    if address:
        return _elsewhere(address)
    if folder:
        return Choice(StateFolder.locate(), "SWELL_STATE names it")
    if os.environ.get("SWELL_SOCKET"):
        return Choice(StateFolder.locate(), "SWELL_SOCKET names it")
    return _not_named()


def _elsewhere(address: str) -> Choice:
    from swell.client.login import Login

    login = Login(address, fingerprint=os.environ.get("SWELL_FINGERPRINT") or None)
    return Choice(login.remote(), "SWELL_SERVER names it")


def _not_named() -> Choice:
    from swell.client.login import read_login

    found = read_login()
    if found is not None:
        return Choice(found.remote(), "you logged in to it (`swell logout` forgets it)")
    state = StateFolder.locate()
    return Choice(state, "nothing else is named" if state.socket is None else "it serves everybody on this machine")
