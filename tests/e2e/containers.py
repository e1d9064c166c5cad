"""Real containers for tests: podman or docker, an image of one static program, nothing of ours left when it is over."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from server import Server

from .disks import need

#: crun refuses the hybrid cgroups of some sandboxes, and podman's own limits are above what we may have there.
RUNTIME = "podman --runtime runc --cgroup-manager cgroupfs"
OPTIONS = "--ulimit nofile=20000:20000 --ulimit nproc=10000:10000"
APPLETS = ("cat", "env", "id", "kill", "ls", "printenv", "pwd", "sh", "sleep", "touch", "true")
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin/python": "/usr/bin/python3"}  # dangling, unless /usr is mounted
PYTHON = ("--mount", "/usr:/usr:ro")  # the machine's own Python in an image that has none


class ContainerRuntime:
    """podman or docker as tests use it: what `swell up` is told, the image, what runs and what is left."""

    def __init__(self, command: str, options: str = "", env: dict[str, str] | None = None) -> None:
        self.command = command
        self.options = options
        self.env = env or {}  #: of the server, its worker and every command
        self.image = self._imported()

    @property
    def is_docker(self) -> bool:
        return self.command.startswith("docker")

    def up_with(self, *options: str) -> tuple[str, ...]:
        """`options`: of every `run` beside its own."""
        every = " ".join((self.options, *options)).strip()
        return ("--container-command", self.command, *(("--container-options", every) if every else ()))

    def call(self, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.command.split(), *words],
            input=stdin,
            capture_output=True,
            env={**os.environ, **self.env},
            check=False,
            timeout=60,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def _imported(self) -> str:
        """A static busybox, its names, and where libraries would be; imported once per machine."""
        recipe = repr((APPLETS, LINKS)).encode() + Path(_busybox()).read_bytes()
        name = f"localhost/swell-test:{hashlib.sha256(recipe).hexdigest()[:16]}"
        if self.call("image", "inspect", name).returncode != 0:
            done = self.call("import", "-", name, stdin=archive())
            assert done.returncode == 0, done.stderr
        return name

    def left(self, server: Server) -> list[str]:
        """Containers of this server that are still there, running or not."""
        named = f"name=swell-{server.store[:8]}"
        done = self.call("ps", "--all", "--format", "{{.Names}} {{.Status}}", "--filter", named)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def inspect(self, server: Server, job: int, attempt: int = 1, index: int = 0) -> dict[str, Any]:
        done = self.call("container", "inspect", f"swell-{server.store[:8]}-{job}.{attempt}-{index}")
        assert done.returncode == 0, done.stderr
        [found] = json.loads(done.stdout)
        return dict(found)

    def monitor(self, server: Server, job: int) -> int:
        """The process that knows how the container ends: podman's conmon, docker's containerd-shim."""
        state = self.inspect(server, job)["State"]
        return int(state["ConmonPid"] if not self.is_docker else _parent(state["Pid"]))


def podman() -> ContainerRuntime:
    need("runc", "runc")
    need("podman", "podman")
    return ContainerRuntime(RUNTIME, OPTIONS)


class ContainerServer(Server):
    """A server whose jobs run in containers of one runtime."""

    def __init__(self, folder: Path, runtime: ContainerRuntime, *options: str, gpus: int = 4) -> None:
        super().__init__(folder, *runtime.up_with(*options), gpus=gpus, env=runtime.env)
        self.runtime = runtime

    def shell(self, script: str) -> tuple[str, ...]:
        return ("--image", self.runtime.image, "--", "sh", "-c", script)

    def left(self) -> list[str]:
        return self.runtime.left(self)

    def inspect(self, job: int) -> dict[str, Any]:
        return self.runtime.inspect(self, job)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _busybox() -> str:
    return need("busybox", "busybox-static")


def archive() -> bytes:
    """The image's root folder as a tar."""
    from io import BytesIO

    busybox = _busybox()
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "usr"):
            tar.addfile(_entry(folder, tarfile.DIRTYPE))
        for link, to in {**LINKS, **{f"bin/{name}": "busybox" for name in APPLETS}}.items():
            tar.addfile(_entry(link, tarfile.SYMTYPE, to))
        tar.add(busybox, "bin/busybox")
    return made.getvalue()


def _entry(name: str, kind: bytes, to: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, 0o755, to
    return entry


def outside(server: Server) -> list[int]:
    """The keeper, and everything else of a task that is not in its container."""
    own = Path("/proc/self/ns/pid").readlink()
    found = []
    for line in server.processes():
        pid = int(line.partition(":")[0])
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/ns/pid").readlink() == own:
                found.append(pid)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BareServer(Server):
    """On a machine with a few programs, and neither podman nor docker among them."""

    def environment(self, **variables: str) -> dict[str, str]:
        programs = self.folder / "bin"
        if not programs.exists():
            programs.mkdir()
            for program in ("sh", "sleep", "cat"):
                (programs / program).symlink_to(str(shutil.which(program)))
        return {**super().environment(**variables), "PATH": str(programs)}
