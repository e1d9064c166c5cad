"""A real docker engine for tests: its own folder, socket and bridge beside whatever the machine has, and an end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .containers import ContainerRuntime
from .disks import PATIENCE_S, need, run

#: Ports are led by docker's own proxy, so that no rule of the machine's firewall is touched.
ENGINE = ("--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
SUBNETS = 250  # 10.213.N.0/24; whose tests run beside ours has another N


@contextlib.contextmanager
def docker() -> Iterator[ContainerRuntime]:
    """With an engine and a bridge of its own."""
    with _bridge() as bridge, docker_engine(f"--bridge={bridge}") as engine:
        yield ContainerRuntime("docker", env=engine.env)


@contextlib.contextmanager
def docker_engine(*options: str) -> Iterator[DockerEngine]:
    """It ends with the test, and with whoever runs the test; nothing is left of it."""
    need("docker", "docker.io")
    folder = Path(tempfile.mkdtemp(prefix="swell-docker-"))
    try:
        with DockerEngine(folder, *options) as engine:
            yield engine
    finally:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            place = line.split()[4]
            if place.startswith(f"{folder}/"):  # the engine leaves the name of its own network there
                run("umount", place)
        shutil.rmtree(folder)


class DockerEngine:
    """dockerd, which brings a containerd of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        need("runc", "runc")
        self._log = folder / "log"
        self.env = {"DOCKER_HOST": f"unix://{folder}/docker.sock"}
        own = ("--data-root", folder / "root", "--exec-root", folder / "exec", "--pidfile", folder / "pid")
        words = [need("dockerd", "docker.io"), *ENGINE, *options, *map(str, own), "-H", self.env["DOCKER_HOST"]]
        # SIGTERM, not SIGKILL, when we are gone: an engine that may say goodbye ends its containers first.
        self._words = ["setpriv", "--pdeathsig", "TERM", "--", *words]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DockerEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """With live-restore containers would outlive it."""
        try:
            if self.process is None:
                self.start()
            left = self._call("ps", "--all", "--quiet").stdout.decode().split()
            self._call("rm", "--force", *left)
        finally:
            self.stop()

    def start(self) -> None:
        assert os.geteuid() == 0, "docker's engine needs root: run `make test` as root"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._words, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self.process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < until, f"docker's engine is not up: {self._log.read_text()[-2000:]}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE_S)
            self.process = None

    def _answers(self) -> bool:
        return self._call("version", "--format", "{{.Server.Version}}").returncode == 0

    def _call(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        env = {**os.environ, **self.env}
        return subprocess.run(["docker", *words], env=env, capture_output=True, check=False, timeout=PATIENCE_S)


@contextlib.contextmanager
def _bridge() -> Iterator[str]:
    name = f"swl{os.getpid()}"
    ip = need("ip", "iproute2")
    run(ip, "link", "add", name, "type", "bridge")
    try:
        run(ip, "address", "add", f"10.213.{os.getpid() % SUBNETS}.1/24", "dev", name)
        run(ip, "link", "set", name, "up")
        yield name
    finally:
        run(ip, "link", "delete", name)
