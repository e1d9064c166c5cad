"""What is there, and what would keep Swell from working well here?

Public: `examine`, `Finding`, `Level`. It looks and leaves nothing changed, runs without a server and tells more with
one. Each file answers for one part of the machine. What repairs something does not belong here: a finding says what to
do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.client.find import Choice
from swell.doctor.containers import examine_containers
from swell.doctor.gpus import examine_gpus
from swell.doctor.machine import Finding, Level, examine_machine, ok
from swell.doctor.service import examine_service, is_seen_from_outside, not_enforced, offered_nodes
from swell.errors import Denied
from swell.machine.state_folder import StateFolder

if TYPE_CHECKING:
    from swell.client.remote import Remote

__all__ = ["Finding", "Level", "examine"]


def examine(chosen: Choice, *, containers: bool = False) -> list[Finding]:
    """Of a server elsewhere this machine's GPUs and folders say nothing. `containers`: somebody wants to use some."""
    asked = ok("asked", f"{_named(chosen.server)}, because {chosen.why}")
    if not isinstance(chosen.server, StateFolder):
        from swell.doctor.elsewhere import examine_elsewhere

        return [asked, *examine_elsewhere(chosen.server)]
    state = chosen.server
    machine = examine_machine(not_enforced(state), is_own=not is_seen_from_outside(state))
    gpus = examine_gpus(_store(state), _simulated(state))
    return [asked, *gpus, examine_containers(state, are_asked_for=containers), *machine, *examine_service(state)]


def _simulated(state: StateFolder) -> int:
    """How many GPUs its server pretends to have."""
    return sum(bool(gpu.get("simulated")) for node in offered_nodes(state) for gpu in node["gpus"])


def _named(server: StateFolder | Remote) -> str:
    return f"the server of {server}" if isinstance(server, StateFolder) else str(server)


def _store(state: StateFolder) -> str:
    """What marks the processes of this folder's jobs; empty: none, or not ours to read."""
    try:
        return str(state.read_json(state.server_file).get("store", ""))
    except Denied:
        return ""
