"""A box server in the foreground, and three Unix users who use it; nothing of either is left when it is over.

with Machine() as box:
    anna, ben, cleo = box.people
    assert anna.swell("run", "--", "id", "-un").stdout == f"{anna.name}\n"
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

import swell
from box.ports import keep_port, reserved_port
from server import PATIENCE_S, SWELL, Result, ended
from swell.client import Client
from swell.machine.sockets import UnixConnection
from swell.machine.state_folder import StateFolder
from swell.server.listeners import BOX_PORTS

#: of this test run alone: another one on the same machine has its own
NAMES = tuple(f"{name}-{os.getpid()}" for name in ("anna", "ben", "cleo"))
SHARED_GROUP = f"lab-{os.getpid()}"  # anna's and ben's
ADMIN_GROUP = f"ops-{os.getpid()}"  # cleo's
SYSTEM_PYTHON = "/usr/bin/python3"  # ours may lie where only root can go
PATH = "/usr/local/bin:/usr/bin:/bin"


def refuse_what_is_missing() -> None:
    assert os.geteuid() == 0, "box tests make Unix users, which needs root: sudo make test"
    programs = ("useradd", "userdel", "groupadd", "groupdel", "setpriv", "prlimit", SYSTEM_PYTHON)
    missing = [name for name in programs if not shutil.which(name)]
    packages = "apt-get install -y passwd util-linux python3"
    assert not missing, f"box tests need {', '.join(missing)}; get them with `make system` or: {packages}"


class Person:
    """One of the machine's users, at a shell."""

    def __init__(self, name: str, box: Machine) -> None:
        self.name = name
        self._box = box
        entry = pwd.getpwnam(name)
        self.uid, self.gid, self.home = entry.pw_uid, entry.pw_gid, Path(entry.pw_dir)

    def run(self, *argv: str, env: dict[str, str] | None = None, stdin: bytes = b"", umask: int = 0o022) -> Result:
        """Any program, as this user, in their home."""
        done = subprocess.run(
            [*self.becoming, *argv],
            input=stdin,
            capture_output=True,
            cwd=self.home,
            env=self.environment(**(env or {})),
            timeout=60,
            check=False,
            umask=umask,
        )
        return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    @property
    def becoming(self) -> list[str]:
        """Words before a command. Told to become somebody, `subprocess` copies all of pytest's memory first."""
        groups = ",".join(map(str, os.getgrouplist(self.name, self.gid)))
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", f"--groups={groups}", "--"]

    def environment(self, **variables: str) -> dict[str, str]:
        own = {"PATH": PATH, "HOME": str(self.home), "USER": self.name, "PYTHONPATH": str(self._box.client_folder)}
        return {**own, "SWELL_SOCKET": str(self._box.socket), **variables}

    def swell(self, *words: str, **how: Any) -> Result:
        return self.run(SYSTEM_PYTHON, "-c", "from swell.cli import main; main()", *words, **how)

    def beside(self, command: str, *words: str, **how: Any) -> Result:
        """A command that is installed beside `swell`."""
        module, _, name = entry_points(group="console_scripts")[command].value.partition(":")
        return self.run(SYSTEM_PYTHON, "-c", f"from {module} import {name} as main; main()", *words, **how)

    def start(self, *words: str, **how: Any) -> int:
        return self.swell("run", "-d", *words, **how).id

    def job(self, job: int) -> dict[str, Any]:
        found = self.swell("show", str(job), "-o", "json")
        assert found.code == 0, found
        document: dict[str, Any] = found.json
        return document


class Machine:
    """`swell service run` with folders of its own; users see only what they would on a real machine."""

    def __init__(self, *, descriptors: int | None = None, **config: Any) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="swell-box-"))
        self.root.chmod(0o755)
        self.client_folder = self.root / "client"
        self.socket = self.root / "run" / "swell.sock"
        self.state = StateFolder(self.root / "state", self.socket)
        self._config = {"admin_group": ADMIN_GROUP, **config}
        self._descriptors = descriptors
        self._server: subprocess.Popen[bytes] | None = None
        self._kept = contextlib.ExitStack()  #: until the end
        self.people: tuple[Person, ...] = ()  #: none yet

    def __enter__(self) -> Machine:
        with contextlib.ExitStack() as undone:
            undone.callback(self._remove)  # users of a machine on which no server starts were left
            self._make()
            self.up()
            undone.pop_all()
        return self

    def _make(self) -> None:
        port = self._kept.enter_context(reserved_port(BOX_PORTS))
        self.client_folder.mkdir()
        for package in (swell, click):
            shutil.copytree(Path(package.__file__).parent, self.client_folder / package.__name__)
        for group in (SHARED_GROUP, ADMIN_GROUP):
            _do("groupadd", "--force", group)
        for name, groups in zip(NAMES, ([SHARED_GROUP], [SHARED_GROUP], [ADMIN_GROUP]), strict=True):
            _do("useradd", "--create-home", "--home-dir", str(self.root / "home" / name), *_in(groups), name)
            (self.root / "home" / name).chmod(0o700)
        self.people = tuple(Person(name, self) for name in NAMES)
        keep_port(self.state.root, port)
        self.state.config.write_text(json.dumps(self._config))

    def __exit__(self, *_: object) -> None:
        try:
            if self._server is None or self._server.poll() is not None:
                self.up()
            self.cancel_all()
            self.down()
        finally:
            self._remove()

    def _remove(self) -> None:
        self._kill_what_is_left()
        self._remove_groups()
        self._remove_people()
        shutil.rmtree(self.root)
        self._kept.close()

    @contextlib.contextmanager
    def passer_by(self) -> Iterator[Person]:
        """Somebody whose account `leave` removes while their jobs are still here."""
        name = f"dora-{os.getpid()}"
        _do("useradd", "--no-create-home", "--home-dir", "/", name)
        try:
            yield Person(name, self)
        finally:
            subprocess.run(["userdel", "--force", name], capture_output=True, check=False)

    # -- the server's life -------------------------------------------------------------------------------------

    def up(self) -> None:
        limit = [] if self._descriptors is None else ["prlimit", f"--nofile={self._descriptors}", "--"]
        argv = [*limit, SWELL, "service", "run", "--state", str(self.state.root), "--socket", str(self.socket)]
        with (self.root / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [*argv, "--gpus", "4", "--cpus", "16"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        until = time.monotonic() + PATIENCE_S
        while not self.answers():
            assert self._server.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)

    def down(self, how: signal.Signals = signal.SIGTERM) -> None:
        """The server; SIGTERM takes its worker along, SIGKILL does not."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait(PATIENCE_S)

    def cancel_all(self) -> None:
        for job in self.client().cancel_all(all_users=True, grace_s=0):
            job.wait(timeout_s=PATIENCE_S)

    def kill_worker(self) -> None:
        pid = self.state.lock_holder("worker")
        assert pid
        with ended(pid):
            os.kill(pid, signal.SIGKILL)

    def answers(self) -> bool:
        connection = UnixConnection(self.socket, timeout=5)
        try:
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def log(self) -> str:
        return (self.root / "server.log").read_text(errors="replace")

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", int((self.state.root / "port").read_text())

    def client(self) -> Client:
        """Root's."""
        return Client(self.state)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def connect_to_socket(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(10)
        made.connect(str(self.socket))
        return made

    # -- waiting -----------------------------------------------------------------------------------------------

    def until(self, job: int, *states: str) -> dict[str, Any]:
        return self.until_true(job, lambda document: document["state"] in states)

    def until_true(self, job: int, is_true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        found = self.client().job(job)
        while not is_true(found.document):
            assert time.monotonic() < end, f"it is still {found.document}"
            found.refresh(wait_s=1.0)
        return found.document

    def until_output(self, job: int, text: bytes) -> bytes:
        end = time.monotonic() + PATIENCE_S
        read = b""
        while text not in read:
            assert time.monotonic() < end, f"the log of {job} is only {read!r}"
            piece = self.client().read_log(job, offset=len(read), wait_s=1.0)
            assert piece.data or not piece.is_complete, f"{text!r} never came, only {read!r}"
            read += piece.data
        return read

    # -- cleaning up -------------------------------------------------------------------------------------------

    def _kill_what_is_left(self) -> None:
        for what in ("server", "worker"):
            pid = self.state.lock_holder(what)
            if pid:
                with contextlib.suppress(ProcessLookupError), ended(pid):
                    os.kill(pid, signal.SIGKILL)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                os.kill(pid, signal.SIGKILL)
                select.select([descriptor], [], [], PATIENCE_S)
                os.close(descriptor)

    def _remove_groups(self) -> None:
        for noted in (self.state.tasks / ".cgroups", self.state.root / "notices.cgroup"):
            for base in map(Path, noted.read_text().splitlines() if noted.exists() else ()):
                for group in [*base.glob("*/"), base] if base.exists() else ():
                    group.rmdir()

    def processes(self) -> list[int]:
        """Everything alive of the three."""
        uids = {person.uid for person in self.people}
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                status = (entry / "status").read_text()
                fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
                if int(fields["Uid"].split()[0]) in uids and not fields["State"].startswith("Z"):
                    found.append(int(entry.name))
        return sorted(found)

    def processes_of(self, person: Person) -> list[int]:
        """Everything alive that is one's own; what ends while we look is not."""
        return [pid for pid in self.processes() if _owner(pid) == person.uid]

    def _remove_people(self) -> None:
        for name in NAMES:
            _do("userdel", "--force", name)
        for group in (SHARED_GROUP, ADMIN_GROUP):
            _do("groupdel", group)


def up_before_and_empty_after(machine: Machine) -> Iterator[Machine]:
    """For a fixture of tests that take a shared machine's server down; none finds a job of the one before."""
    if not machine.answers():
        machine.up()
    yield machine
    if not machine.answers():
        machine.up()
    machine.cancel_all()


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return None


def standing(sockets: list[socket.socket]) -> int:
    """How many of them nobody has hung up on."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN | select.POLLHUP | select.POLLERR)
    return len(sockets) - len(poll.poll(0))


def wait_for(is_true: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < until, f"{what} did not come within {within_s} s"
        time.sleep(0.05)


def _in(groups: list[str]) -> list[str]:
    return ["--groups", ",".join(groups)] if groups else []


def _do(*argv: str) -> None:
    """Tried again while somebody else changes the same file."""
    until = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert "lock" in done.stderr, done.stderr
        assert time.monotonic() < until, done.stderr
        time.sleep(0.2)
