"""Real file systems that fill up, turn read-only, or are far away. All of it needs root."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 20.0
SFTP_SERVER = "/usr/lib/openssh/sftp-server"


def need(program: str, package: str) -> str:
    """A test that cannot run fails and says what to do; it is not skipped quietly."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found is not None, f"{program} is not installed; get it with `make system` or: apt-get install -y {package}"
    return found


def run(*words: str) -> None:
    assert os.geteuid() == 0, "mounting needs root: run `make test` as root, or in a container where you are root"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}"


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[None]:
    """A small file system in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder))
    try:
        yield
    finally:
        run("umount", str(folder))


class Ext4:
    """A disk in a file, on a loop device. It can be made to fail as real ones do."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.img")
        with self._image.open("wb") as file:
            file.truncate(mebibytes << 20)
        run(need("mkfs.ext4", "e2fsprogs"), "-q", "-F", str(self._image))
        folder.mkdir()

    def mount(self) -> None:
        run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder))

    def umount(self) -> None:
        """Everywhere, and until it is really gone: what is mounted again before that is the same file system, with its
        error. Who was started meanwhile in a mount namespace of its own has a copy of the mount, as a container has for
        a moment and a node of the test cluster for as long as it lives."""
        device = self._device()
        run("umount", str(self.folder))
        until = time.monotonic() + PATIENCE_S
        while (device / "loop/backing_file").exists():
            assert time.monotonic() < until, f"{device.name} is in use {PATIENCE_S:.0f} s after it was unmounted"
            for namespace in _namespaces_with(self.folder):
                words = [need("nsenter", "util-linux"), f"--mount={namespace}", "umount", str(self.folder)]
                subprocess.run(words, capture_output=True, check=False)  # it may be gone by now
            time.sleep(0.05)

    def fail(self) -> None:
        """An error as from a bad sector: the kernel makes the file system read-only, whoever has files open there."""
        Path(f"/sys/fs/ext4/{self._device().name}/trigger_fs_error").write_text("a test wants to see it fail")

    def repair(self) -> None:
        """What an administrator does afterwards."""
        subprocess.run([need("e2fsck", "e2fsprogs"), "-fy", str(self._image)], capture_output=True, check=False)
        self.mount()

    def close(self) -> None:
        with contextlib.suppress(AssertionError):
            self.umount()

    def _device(self) -> Path:
        device = self.folder.stat().st_dev
        return Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()


def _namespaces_with(mounted: Path) -> set[Path]:
    """One of each; who ends while we look has no mounts any more."""
    found: dict[str, Path] = {}
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            if f" {mounted} " in table.read_text():
                namespace = table.with_name("ns") / "mnt"
                found[str(namespace.readlink())] = namespace
    return set(found.values())


def fill(folder: Path) -> Path:
    """Use up every byte; delete the file to have them back."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1))
    return path


@contextmanager
def sshfs(source: Path, folder: Path) -> Iterator[None]:
    """A real network file system without a network: sshfs talks to an SFTP server through a pair of sockets."""
    program = need("sshfs", "sshfs")
    assert Path(SFTP_SERVER).exists(), (
        f"{SFTP_SERVER} is missing: `make system`, or apt-get install -y openssh-sftp-server"
    )
    assert Path("/dev/fuse").exists(), "/dev/fuse is missing; in a container run it with --device /dev/fuse"
    folder.mkdir()
    far, near = socket.socketpair()
    with far, near:
        server = subprocess.Popen([SFTP_SERVER], stdin=far, stdout=far)
        client = subprocess.Popen([program, "-f", "-o", "passive", f":{source}", str(folder)], stdin=near, stdout=near)
    try:
        _until_mounted(folder, client)
        yield
    finally:
        run("umount", str(folder))
        client.wait(PATIENCE_S)
        server.wait(PATIENCE_S)


def _until_mounted(folder: Path, client: subprocess.Popen[bytes]) -> None:
    """The kernel tells whoever polls the table of mounts when it changes."""
    with Path("/proc/self/mountinfo").open() as table:
        poller = select.poll()
        poller.register(table, select.POLLPRI)
        for _ in range(20):
            table.seek(0)
            if f" {folder} " in table.read():
                return
            assert client.poll() is None, f"sshfs ended with {client.returncode}"
            poller.poll(PATIENCE_S * 1000 / 20)
    raise AssertionError(f"sshfs did not mount {folder} within {PATIENCE_S} s")
