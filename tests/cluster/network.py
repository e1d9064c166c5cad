"""How do real nodes and their pods reach each other and the API server? A bridge on this machine, one veth per node.

    10.N.0.1      the machine's end of the bridge: API server, CoreDNS, whatever a test starts for pods to call
    10.N.0.1I     node I (1 to 3), in a network namespace of its own
    10.N.I.0/24   the pods of node I

N is claimed with a lock, so several clusters fit on a machine, and whatever a killed one left under its N is removed
by the next that claims it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from .processes import GLANCE_S, PATIENCE_S, Failed, run

LOCKS = Path("/run/lock")
CGROUPS = Path("/sys/fs/cgroup")
CANDIDATES = range(201, 250)


class Network:
    """The addresses of one cluster with real nodes."""

    def __init__(self) -> None:
        self._lock, self.number = _claim()
        self.bridge = f"swell{self.number}"
        self.gateway = f"10.{self.number}.0.1"

    def start(self) -> None:
        self.remove_leftovers()
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def stop(self) -> None:
        self.remove_leftovers()
        self._lock.close()

    def remove_leftovers(self) -> None:
        if Path(f"/sys/class/net/{self.bridge}").exists():
            run("ip", "link", "delete", self.bridge)
        for folder in CGROUPS.glob(f"*/{self.bridge}-*"):
            _remove_cgroup(folder)

    def node_address(self, node: int) -> str:
        return f"10.{self.number}.0.{10 + node}"

    def pods(self, node: int) -> str:
        return f"10.{self.number}.{node}.0/24"

    def cgroup(self, node: int) -> str:
        """The name under each controller that a node's pods live below."""
        return f"{self.bridge}-{node}"

    def make_cgroups(self, node: int) -> None:
        """Without a root of its own each kubelet would remove the others' pods' groups."""
        for controller in CGROUPS.iterdir():
            if (controller / "tasks").exists():  # cgroup v1; the unified hierarchy has none
                (controller / self.cgroup(node)).mkdir(exist_ok=True)

    def connect(self, node: int, pid: int, nodes: int) -> None:
        """Give the namespace of a process the node's address, and everybody the way to its pods."""
        cable, address = f"{self.bridge}n{node}", self.node_address(node)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", cable, "master", self.bridge, "up")
        inside = ("nsenter", "--target", str(pid), "--net", "ip")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "route", "add", "default", "via", self.gateway)
        for other in set(range(1, nodes + 1)) - {node}:
            run(*inside, "route", "add", self.pods(other), "via", self.node_address(other))
        run("ip", "route", "replace", self.pods(node), "via", address)


def _claim() -> tuple[IO[str], int]:
    """The first number that no cluster has and no address of this machine uses."""
    taken = {route["dst"] for route in json.loads(run("ip", "-json", "route")) if not route["dev"].startswith("swell")}
    LOCKS.mkdir(parents=True, exist_ok=True)
    for number in CANDIDATES:
        if any(destination.startswith(f"10.{number}.") for destination in taken):
            continue
        file = (LOCKS / f"swell-cluster-{number}").open("w")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file, number
        file.close()
    raise Failed(
        f"every network from 10.{CANDIDATES[0]} to 10.{CANDIDATES[-1]} is taken; end clusters that are not needed"
    )


def _remove_cgroup(folder: Path) -> None:
    """Depth first; a group is busy for a moment after its last process was killed."""
    end = time.monotonic() + PATIENCE_S
    for path, _, _ in os.walk(folder, topdown=False):
        while True:
            try:
                Path(path).rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(GLANCE_S)
