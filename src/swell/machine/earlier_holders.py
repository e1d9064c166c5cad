"""Under which names did servers act that held this folder's lock before, and so have ended?

Whoever holds the lock knows that every earlier holder of the same lock on the same kernel has ended: the kernel gave it
away. A file in the folder has their names. It says nothing where the folder is a copy, or the disk has come from
another machine: the lock is another one there, and an earlier holder may still live.
"""

from __future__ import annotations

from swell.machine.boot_clock import boot_id
from swell.machine.state_folder import StateFolder

KEPT_MAX = 16  # servers of one folder since the machine started; more often the wait for a Lease is short beside them


def earlier_holders(state: StateFolder, name: str) -> frozenset[str]:
    """Names other than ours, which is noted. For the process that holds the lock, before it acts under its name."""
    path, lock = state.root / "lock-holders.json", _lock(state)
    found = state.read_json(path)
    known = found.get("names") if found.get("lock") == lock else []
    names = [one for one in known if isinstance(one, str) and one != name] if isinstance(known, list) else []
    state.write_json(path, {"lock": lock, "names": [*names[-KEPT_MAX + 1 :], name]})
    return frozenset(names)


def _lock(state: StateFolder) -> list[str | int]:
    """Which kernel, file system and file it is."""
    found = (state.root / "server.lock").stat()
    return [boot_id(), found.st_dev, found.st_ino]
