"""How do real nodes and their pods reach each other and the API server? A bridge on this machine, one veth per node.

    10.N.0.1      the machine's end of the bridge: API server, CoreDNS, whatever a test starts for pods to call
    10.N.0.1I     node I (1 to 3), in a network namespace of its own
    10.N.I.0/24   the pods of node I

N is claimed with a lock, so several clusters fit on a machine, and what a killed one left, a bridge, cables and empty
cgroups, is removed by the next that starts.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from .processes import GLANCE_S, PATIENCE_S, Failed, run

LOCKS = Path("/run/lock")
CGROUPS = Path("/sys/fs/cgroup")
LINKS = Path("/sys/class/net")
CANDIDATES = range(201, 211)


class Network:
    """The addresses of one cluster with real nodes."""

    def __init__(self) -> None:
        self._lock, self.number = _claim()
        self.bridge = _bridge(self.number)
        self.gateway = f"10.{self.number}.0.1"

    def start(self) -> None:
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def stop(self) -> None:
        _remove(self.bridge)
        self._lock.close()

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
        cable, address = _cable(self.bridge, node), self.node_address(node)
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
    """The first number that no cluster has and no address of this machine uses; what dead clusters left is removed."""
    routes = [route["dst"] for route in json.loads(run("ip", "-json", "route")) if not _is_ours(route["dev"])]
    claimed: list[tuple[IO[str], int]] = []
    for number in CANDIDATES:
        if (lock := _lock(number)) is None:
            continue
        _remove(_bridge(number))
        if claimed or any(destination.startswith(f"10.{number}.") for destination in routes):
            lock.close()
        else:
            claimed.append((lock, number))
    if not claimed:
        networks = f"10.{CANDIDATES[0]} to 10.{CANDIDATES[-1]}"
        raise Failed(f"every network from {networks} is taken; end clusters that are not needed")
    return claimed[0]


def _lock(number: int) -> IO[str] | None:
    """Held while a cluster has the number; the kernel lets go of it when whoever holds it dies."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    file = (LOCKS / f"swell-cluster-{number}").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _bridge(number: int) -> str:
    return f"swell{number}"


def _cable(bridge: str, node: int | str) -> str:
    return f"{bridge}n{node}"


def _is_ours(device: str) -> bool:
    return device in {_bridge(number) for number in CANDIDATES}


def _remove(bridge: str) -> None:
    """A cable would go with its node's namespace, but for that the kernel takes its time."""
    for link in (*LINKS.glob(_cable(bridge, "*")), *LINKS.glob(bridge)):
        _remove_link(link)
    for folder in CGROUPS.glob(f"*/{bridge}-*"):
        _remove_cgroup(folder)


def _remove_link(link: Path) -> None:
    try:
        run("ip", "link", "delete", link.name)
    except Failed:
        if link.exists():  # otherwise the kernel was faster
            raise


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
