"""A real server for tests: own state folder, own processes, and nothing left when it is over.

with Server(tmp_path) as server:
    assert server.swell("run", "--", "true").code == 0
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.client import Client
from swell.client.connection import path
from swell.errors import NotFound, SwellError
from swell.machine.state_folder import StateFolder

SWELL = str(Path(sys.executable).with_name("swell"))
PATIENCE_S = 30.0  # for anything that takes a second; a loaded machine is slow
#: what a caller's own scheduler may have left in the environment, and what tests look at
FOREIGN = (
    "SWELL_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "JOB_",
    "NODE",
    "MASTER_",
    "CUDA_",
    "NUM_",
    "GROUP_RANK",
    "XDG_",
    "PYTHONUNB",
)


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def id(self) -> int:
        """Of `run -d`, which prints nothing but the job's id."""
        assert self.code == 0, self
        return int(self.stdout)

    @property
    def job(self) -> int:
        """Of `run`, which says the job's id before its output."""
        said = re.search(r"^swell: job (\d+) ", self.stderr, re.MULTILINE)
        assert said is not None, self
        return int(said[1])


class Server:
    """`swell up -d` in a folder of its own; on exit everything is cancelled, stopped and looked for."""

    def __init__(
        self, folder: Path, *options: str, gpus: int | None = 4, cpus: int = 8, env: dict[str, str] | None = None
    ) -> None:
        self.root = folder / "state"
        self.folder = folder
        declared = () if gpus is None else ("--gpus", str(gpus))  # None: those that the driver finds
        self._options = (*declared, "--cpus", str(cpus), *options)
        self._env = env or {}  #: of every command, and so of the server and its worker
        self.state = StateFolder(self.root)
        self.store = ""

    def __enter__(self) -> Server:
        self.up()
        self._janitor = subprocess.Popen(  # when we are killed (a test's time is up), our end of its pipe closes
            ["sh", "-c", 'read _ || "$0" down --cancel', SWELL],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=self.environment(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        """A server that a test killed is started again first: what it left must be found and ended by Swell itself."""
        try:
            if not self.is_up:
                self.up()
            self.cancel_all()
            done = self.swell("down", "--cancel")
            assert done.code == 0, done
            assert self.processes() == [], "processes are left"
        finally:
            self._janitor.communicate(b"all is well\n")
            self.kill_everything()  # whatever went wrong above, the next test begins on a clean machine

    # -- the server's life -------------------------------------------------------------------------------------

    def up(self) -> None:
        done = self.swell("up", "-d", *self._options)
        assert done.code == 0, done
        self.store = str(self.state.read_json(self.state.server_file)["store"])

    def down(self) -> Result:
        return self.swell("down")

    @property
    def is_up(self) -> bool:
        return self.state.lock_holder("server") is not None

    def kill(self, what: str = "server") -> None:
        """SIGKILL, and wait until it is gone."""
        pid = self.state.lock_holder(what)
        assert pid, f"no {what} runs"
        with ended(pid):
            os.kill(pid, signal.SIGKILL)

    def kill_everything(self) -> None:
        """As a power cut would: the server, its worker, and every task. The server first: it brings the worker back."""
        for what in ("server", "worker"):
            if self.state.lock_holder(what):
                self.kill(what)
        for pid in [int(line.partition(":")[0]) for line in self.processes()]:
            with contextlib.suppress(ProcessLookupError), ended(pid):
                os.kill(pid, signal.SIGKILL)

    def cancel_all(self) -> None:
        """At once: a test that failed half-way may have left a job that takes its time to end."""
        client = self.client()
        for job in client.jobs():
            if not job.has_ended:
                with contextlib.suppress(SwellError):
                    job.cancel(grace_s=0)

    def processes(self) -> list[str]:
        """Everything alive that belongs to this server: it, its worker, and whatever carries its store's mark."""
        mark = f"SWELL_STORE={self.store}".encode()
        return sorted(
            f"{pid}: {words.replace(bytes(1), b' ').decode(errors='replace')}"
            for pid, words, variables in _all_processes()
            if (self.store and mark in variables) or str(self.root).encode() in words.split(b"\0")
        )

    # -- asking it ---------------------------------------------------------------------------------------------

    def environment(self, **variables: str) -> dict[str, str]:
        """What a user's shell would pass on: nothing of another scheduler."""
        own = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
        return {**own, "SWELL_STATE": str(self.root), **self._env, **variables}

    def swell(
        self,
        *words: str | bytes,
        stdin: str | bytes | None = None,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float = 60.0,
        as_ordinary_user: bool = False,
    ) -> Result:
        """Run the command line to its end; `env` is added to the caller's.

        As an ordinary user we are still root, but without the right to read and write everybody's files.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        before = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if as_ordinary_user else []
        done = subprocess.run(
            [*before, SWELL, *words],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            cwd=cwd or self.folder,
            env=self.environment(**(env or {})),
            timeout=timeout_s,
            check=False,
        )
        return Result(
            done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")
        )

    def beside(self, command: str, *words: str, **variables: str) -> Result:
        """A command that is installed beside `swell`, run to its end; variables are added to the caller's."""
        done = subprocess.run(
            [str(Path(SWELL).with_name(command)), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(**variables),
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def spawn(self, *words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """The command line in the background, without a terminal."""
        return subprocess.Popen(
            [SWELL, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.folder,
            env=self.environment(**(env or {})),
        )

    def client(self) -> Client:
        return Client(self.state)

    def start(self, *words: str, **options: Any) -> int:
        """`swell run -d`: the job's id."""
        return self.swell("run", "-d", *words, **options).id

    def jobs(self) -> list[dict[str, Any]]:
        """`swell ps -a -o json`."""
        done = self.swell("ps", "-a", "-o", "json")
        assert done.code == 0, done
        found: list[dict[str, Any]] = done.json
        return found

    def settled(self) -> dict[str, Any]:
        """Everything that bad input must not change: jobs, settings, and which files there are."""
        client = self.client()
        return {
            "jobs": client.connection.json("GET", path("jobs", all=True))["jobs"],  # what `ps -a -o json` prints
            "config": self.state.config.read_text(),
            "files": sorted(file.name for file in self.root.iterdir() if not file.name.startswith("swell.db-")),
        }

    # -- waiting -----------------------------------------------------------------------------------------------

    def until(self, job: int, *states: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The job's document as soon as it is in one of these states."""
        return self.until_true(job, lambda document: document["state"] in states, patience_s=patience_s)

    def until_true(
        self, job: int, is_true: Callable[[dict[str, Any]], bool], *, patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The job's document as soon as it is so; long polls, bounded."""
        end = time.monotonic() + patience_s
        found = self.client().job(job)
        while not is_true(found.document):
            assert time.monotonic() < end, f"after {patience_s} s it is still {found.document}"
            found.refresh(wait_s=1.0)
        return found.document

    def until_named(self, name: str, *states: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """A job that comes another way than by us, as soon as there is one in one of these states."""
        end = time.monotonic() + patience_s
        while True:
            try:
                found = self.client().job(name)
                break
            except NotFound:
                assert time.monotonic() < end, f"after {patience_s} s there is no job {name}"
                time.sleep(0.05)
        return self.until(found.document["id"], *states, patience_s=max(1.0, end - time.monotonic()))

    def until_output(self, job: int, text: bytes, *, rank: int = 0, patience_s: float = PATIENCE_S) -> bytes:
        """A task's output as soon as it holds this; long polls, bounded."""
        end = time.monotonic() + patience_s
        client, read, offset = self.client(), b"", 0
        while text not in read:
            assert time.monotonic() < end, f"after {patience_s} s the log of {job} is only {read!r}"
            piece = client.read_log(job, rank=rank, offset=offset, wait_s=1.0)
            assert piece.data or not piece.is_complete, f"{text!r} never came, only {read!r}"
            read, offset = read + piece.data, piece.next
        return read


def up_before_and_empty_after(server: Server) -> Iterator[Server]:
    """For a fixture of tests that share a server, also those that kill it; none finds a job or a token of another's."""
    if not server.is_up:
        server.up()
    yield server
    if not server.is_up:
        server.up()
    server.cancel_all()
    client = server.client()
    for token in client.tokens():
        client.revoke_token(token["name"])


class Gate:
    """A file that a task reads from and waits at: `read line < PATH`. It never blocks the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def __str__(self) -> str:
        return str(self.path)

    def open(self) -> None:
        """Whoever waits, or comes next, may pass."""
        os.write(self._descriptor, b"go\n")

    def close(self) -> None:
        os.close(self._descriptor)


@contextlib.contextmanager
def ended(pid: int, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Do something that ends a process, and wait until it has."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(patience_s * 1000), f"process {pid} lives after {patience_s} s"
    finally:
        os.close(descriptor)


def wait_for_end(pid: int, patience_s: float = PATIENCE_S) -> None:
    """Until a process, not necessarily ours, is gone."""
    with contextlib.suppress(ProcessLookupError), ended(pid, patience_s):
        pass


def _all_processes() -> Iterator[tuple[int, bytes, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended meanwhile
                continue
