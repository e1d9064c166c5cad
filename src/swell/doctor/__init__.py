"""What is there, and what would keep Swell from working well here?

Public: `examine`, `Finding`, `Level`. It looks and changes nothing, runs without a server and tells more with one. Each
file answers for one part of the machine. What repairs something does not belong here: a finding says what to do.
"""

from __future__ import annotations

from swell.doctor.finding import Finding, Level
from swell.doctor.gpus import examine_gpus
from swell.doctor.machine import examine_machine
from swell.doctor.service import examine_service
from swell.errors import Denied
from swell.state import StateFolder

__all__ = ["Finding", "Level", "examine"]


def examine(state: StateFolder) -> list[Finding]:
    return [*examine_gpus(_store(state)), *examine_machine(), *examine_service(state)]


def _store(state: StateFolder) -> str:
    """What marks the processes of this folder's jobs; empty: none, or not ours to read."""
    try:
        return str(state.read_json(state.server_file).get("store", ""))
    except Denied:
        return ""
