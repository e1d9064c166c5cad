"""How does a contender's program run? As a process of ours that ends when we do, whatever ends us.

Programs of others are looked for in the folder that `--programs` names, as `python -m tests.cluster build` leaves them:

    DIR/coscheduling-0.34.7/coscheduling                          the program, of the module of that version
    DIR/coscheduling-0.34.7/module/manifests/coscheduling/crd.yaml    files of the module that it needs
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swell.errors import Rejected, Unavailable

LOOPBACK = "127.0.0.1"
READY_S_MAX = 60.0
ENDED_S_MAX = 10.0
LOOK_S = 0.1
QUOTED = 600  # characters of a log
LOG_BYTES_MAX = 2**20  # that are kept of one; a scheduler that logs each of 10,000 pods writes many times that
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
HOW_TO_GET = (
    "build it from its pinned module in Swell's source folder with `.venv/bin/python -m tests.cluster build {name}` "
    "and add --programs ~/.cache/swell-tests/bin"
)


@dataclass(frozen=True, slots=True)
class Module:
    """A program that was built from its module."""

    program: Path
    files: Path
    version: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Of the processes of a contender."""

    cpu_s: float
    memory_mib: float  #: at their peak

    def since(self, before: Usage) -> Usage:
        return Usage(self.cpu_s - before.cpu_s, self.memory_mib)


def find_module(programs: Path | None, name: str) -> Module:
    """Of several versions the last by name."""
    how = HOW_TO_GET.format(name=name)
    if programs is None:
        raise Rejected(f"contender {name} is started from its program, and --programs names no folder: {how}")
    found = sorted(path for path in programs.glob(f"{name}-*/{name}") if os.access(path, os.X_OK))
    if not found:
        raise Rejected(f"contender {name} needs its program, and {programs} has no {name}-VERSION/{name}: {how}")
    folder = found[-1].parent
    return Module(found[-1], folder / "module", folder.name.removeprefix(f"{name}-"))


class ContenderProgram:
    """One process with its log in a file."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.argv = [str(word) for word in argv]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """In a session of its own: a Ctrl-C at our terminal is for us, who stop it in order."""
        dies_with_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us, *self.argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Raises `Unavailable`, with the end of its log, where it ends or takes too long."""
        until = time.monotonic() + READY_S_MAX
        while not is_ready():
            if self._process is None or self._process.poll() is not None:
                raise Unavailable(f"{self.name} ended instead of becoming ready: {self._tail()}")
            if time.monotonic() > until:
                raise Unavailable(f"{self.name} was not ready after {READY_S_MAX:.0f} s: {self._tail()}")
            time.sleep(LOOK_S)

    @property
    def trouble(self) -> str:
        """Why it does not run; empty: it does."""
        if self._process is None or self._process.poll() is None:
            return ""
        return f"{self.name} ended with {self._process.returncode} while it was measured: {self._tail()}"

    def usage(self) -> Usage:
        assert self._process is not None
        return usage_of(self._process.pid)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(ENDED_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self) -> bytes:
        """Its beginning and its end, where it is long."""
        return shortened(self._log, LOG_BYTES_MAX)

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace")[-QUOTED:].strip().splitlines()
        return " | ".join(lines[-3:]) or f"it said nothing; see {self._log}"


def shortened(path: Path, bytes_max: int) -> bytes:
    """The first and the last half of so many bytes of a file; one that is not there is empty."""
    try:
        with path.open("rb") as file:
            size, half = os.fstat(file.fileno()).st_size, bytes_max // 2
            if size <= bytes_max:
                return file.read(bytes_max)
            begin = file.read(half)
            file.seek(size - half)
            return b"%b\n... %d bytes are left out here ...\n%b" % (begin, size - 2 * half, file.read(half))
    except FileNotFoundError:
        return b""


def usage_of(pid: int) -> Usage:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return Usage(0.0, 0.0)
    peak = next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:")), 0.0)
    return Usage((int(fields[11]) + int(fields[12])) / TICKS_PER_S, peak)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
        return port


def says_ok(url: str) -> bool:
    """The program is known by its port; its certificate is its own."""
    at = urlsplit(url)
    connection: http.client.HTTPConnection
    if at.scheme == "https":
        connection = http.client.HTTPSConnection(at.netloc, timeout=5, context=_unverified())
    else:
        connection = http.client.HTTPConnection(at.netloc, timeout=5)
    try:
        connection.request("GET", at.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
