"""How do pods find each other by name? CoreDNS on the machine's end of the bridge, answering from the API server.

Headless Services resolve to pods' addresses, which is all that jobs need. Nothing else is forwarded anywhere.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from .binaries import program
from .controlplane import LOOPBACK
from .processes import Process, free_port, is_ready

COREFILE = """.:53 {{
    bind {address}
    errors
    ready {loopback}:{port}
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
"""


class Dns:
    """CoreDNS as a process."""

    def __init__(self, folder: Path, kubeconfig: Path, address: str) -> None:
        self._port = free_port()
        corefile = folder / "Corefile"
        values = {"address": address, "loopback": LOOPBACK, "port": self._port, "kubeconfig": kubeconfig}
        corefile.write_text(COREFILE.format(**values))
        self.process = Process("coredns", [program("coredns"), "-conf", corefile], folder)

    def start(self) -> None:
        self.process.start()
        self.process.until(partial(is_ready, f"http://{LOOPBACK}:{self._port}/ready"))

    def stop(self) -> None:
        self.process.stop()
