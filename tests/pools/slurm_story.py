"""A pool on the real Slurm of slurm_cluster.py, as a person starts it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from pools.slurm_cluster import SlurmCluster
from server import PATIENCE_S, SWELL, Server

TRAIN = """
import time
from pathlib import Path
import swell_sdk
run = swell_sdk.attach()
print("from", Path(run.checkpoint_path).read_text() if run.restarted else 0, flush=True)
for epoch in run.epochs():
    time.sleep(0.1)
    print("epoch", epoch, flush=True)
    run.save(lambda path: Path(path).write_text(str(epoch + 1)))
"""


class SlurmPool:
    """`swell pool start slurm` with a token of its own; on exit it is stopped with its workers."""

    def __init__(self, server: Server, slurm: SlurmCluster, folder: Path, name: str, *options: str) -> None:
        self.server, self.slurm, self.name = server, slurm, name
        self.folder = folder / f"pool-{name}"
        token = folder / f"{name}.token"
        token.write_text(server.swell("token", "create", name, "--scope", "pool").stdout)
        url = str(server.state.read_json(server.state.server_file)["url"])
        self.words = (
            *("pool", "start", "slurm", "--name", name, "--server", url, "--token-file", str(token)),
            *("--folder", str(self.folder), "--work-dir-prefix", str(folder), "--executable", SWELL),
            *("--cpus", "4", "--memory", "1GiB", "--sleep-seconds", "1", "--launch-seconds", "1"),
            *("--idle-seconds", "2", "--checkin-frequency-seconds", "2", "--lease-seconds", "10", *options),
        )

    def __enter__(self) -> SlurmPool:
        done = self.server.swell(*self.words)
        assert done.code == 0, (done, self.log)
        return self

    def __exit__(self, *_: object) -> None:
        done = self.server.swell("pool", "stop", self.name, "--workers")
        assert done.code == 0, (done, self.log)
        self.until(lambda: self.document is None, "it has stopped")
        self.until(lambda: not self.slurm.jobs(), "no worker is left", 60)

    @property
    def document(self) -> dict[str, Any] | None:
        """As `swell pool ps` shows it; None: it is not there."""
        found = self.server.swell("pool", "ps", "-o", "json").json
        return next((pool for pool in found if pool["name"] == self.name), None)

    @property
    def log(self) -> str:
        path = self.folder / "pool.log"
        return path.read_text() if path.exists() else ""

    def logs(self, name: str) -> str:
        """`swell pool logs`."""
        return self.server.swell("pool", "logs", name, "--folder", str(self.folder)).stdout

    def until(self, is_true: Any, what: str, patience_s: float = PATIENCE_S) -> Any:
        until = time.monotonic() + patience_s
        while not (found := is_true()):
            assert time.monotonic() < until, f"never: {what}; {self.document}; {self.log[-3000:]}; {self.worker_logs()}"
            time.sleep(0.1)
        return found

    def until_it_has_looked(self, times: int) -> None:
        """With each look the time since its last report begins anew."""
        silences = [0.0]

        def has_reported() -> bool:
            document = self.document
            assert document is not None
            silences.append(document["silent_s"])
            return silences[-1] < silences[-2]

        for _ in range(times):
            self.until(has_reported, "another report")

    def worker_logs(self) -> str:
        logs = sorted((self.folder / "logs").glob("*.out")) if self.folder.exists() else []
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in logs[-3:])


class Counter(threading.Thread):
    """The most jobs that Slurm had at once, while it is open."""

    def __init__(self, slurm: SlurmCluster) -> None:
        super().__init__(daemon=True)
        self._slurm, self._is_over = slurm, threading.Event()
        self.most = 0

    def run(self) -> None:
        while not self._is_over.wait(0.2):
            self.most = max(self.most, len(self._slurm.jobs()))

    def __enter__(self) -> Counter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
