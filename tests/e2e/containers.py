"""Real containers for tests: podman, an image of one static program, and nothing of ours left when it is over."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
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
UP = ("--container-command", RUNTIME, "--container-options", OPTIONS)
APPLETS = ("cat", "env", "id", "kill", "ls", "printenv", "pwd", "sh", "sleep", "touch", "true")
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin/python": "/usr/bin/python3"}  # dangling, unless /usr is mounted
PYTHON = ("--mount", "/usr:/usr:ro")  # the machine's own Python in an image that has none


@functools.cache
def image() -> str:
    """A static busybox, its names, and where libraries would be; imported once per machine."""
    busybox = _programs()
    recipe = repr((APPLETS, LINKS)).encode() + Path(busybox).read_bytes()
    name = f"localhost/swell-test:{hashlib.sha256(recipe).hexdigest()[:16]}"
    if podman("image", "exists", name).returncode != 0:
        done = subprocess.run(
            [*RUNTIME.split(), "import", "-", name], input=archive(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
    return name


def _programs() -> str:
    """What containers need here; where busybox is."""
    need("runc", "runc")
    need("podman", "podman")
    return need("busybox", "busybox-static")


def archive() -> bytes:
    """The image's root folder as a tar."""
    from io import BytesIO

    busybox = _programs()
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


def podman(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUNTIME.split(), *words], capture_output=True, text=True, check=False, timeout=60)


def left(server: Server) -> list[str]:
    """Containers of this server that are still there, running or not."""
    done = podman("ps", "--all", "--format", "{{.Names}} {{.Status}}", "--filter", f"name=swell-{server.store[:8]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def inspect(server: Server, job: int, attempt: int = 1, index: int = 0) -> dict[str, Any]:
    done = podman("container", "inspect", f"swell-{server.store[:8]}-{job}.{attempt}-{index}")
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)
    return dict(found)


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
