"""Which port does a private server take on loopback? tests/box/test_port.py has those of a box."""

from __future__ import annotations

import socket
from pathlib import Path

from swell.machine.state_folder import StateFolder
from swell.server.listeners import open_listeners


def port_taken(state: StateFolder) -> int:
    found = open_listeners(state, 0, None)
    taken: int = found.loopback.getsockname()[1]
    for listener in found.plain:
        listener.close()
    return taken


def test_a_private_server_takes_any_free_port_and_the_same_one_again(tmp_path: Path):
    state = StateFolder(tmp_path / "state")
    state.prepare()
    first = port_taken(state)
    assert first >= 1024
    assert port_taken(state) == first
    with socket.create_server(("127.0.0.1", first)):
        assert port_taken(state) not in (0, first)
