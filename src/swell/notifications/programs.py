"""How is a user's program run that a server waits for, and how does nothing of it stay?

It has a short time, in which others do not wait for it. On a box it runs as its user, in a control group of its own,
which nothing of it can leave; elsewhere as the server's own user, found by session and by what is in its environment.
When it has ended, when its time is over or when the server ends, everything that it has started is ended, too.
A server on Kubernetes has none of this.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swell.machine.processes import in_folder, ready
from swell.machine.state_folder import StateFolder
from swell.machine.users import User
from swell.notifications.facts import printable
from swell.notifications.post import NotSent
from swell.worker import asuser, cgroups, processes
from swell.worker.cgroups import Groups
from swell.worker.limits import TaskLimits, make_groups


class Closing:
    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  #: readable from `set` on

    def set(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    @property
    def is_set(self) -> bool:
        return self.wait(0)

    def wait(self, timeout_s: float) -> bool:
        """True: it ends. False: it has not begun to within so long."""
        return self.descriptor in ready(timeout_s, self.descriptor)


LIMIT_S = 30.0
#: a shell, curl, sendmail, and room for a script of Python's
LIMITS = TaskLimits(processes=256, memory_mib=1024)
SWEEP_S_MAX = 2.0  # so long what is left is killed again and again; what then still is there, the kernel holds
SWEEP_AGAIN_S = 0.02
READ_BYTES = 65536
QUICK_BYTES_MAX = 256 * 1024  # above this its output is read at a pace, so that it cannot keep the server busy
PACE_S = 0.05
LAST_BYTES = 4096  # of its output is kept
SHOWN_MAX = 300  # letters of that in an event
MARK = "SWELL_NOTICE"  # in the environment of what a notice has started


class Interrupted(Exception):
    """The server ends; what was to be told stays due."""


@dataclass(frozen=True, slots=True)
class Program:
    job: int
    argv: tuple[str, ...]
    folder: str  #: where it is run; / where its user may not enter it
    variables: dict[str, str]
    user: User | None  #: None: as the server itself


class Programs:
    """Of one server. Made once: what a server before it, killed in the middle, has left is ended."""

    def __init__(self, state: StateFolder, store: str, *, limit_s: float = LIMIT_S) -> None:
        self._store = store
        self._limit_s = limit_s
        self._for_clients = _where_to_ask(state)
        self._numbers = itertools.count()
        self._groups = None if state.socket is None else _find_groups(state, store)  #: None: no control groups

    def run(self, program: Program, closing: Closing) -> None:
        """Raises `NotSent` when it did not go well, `Interrupted` when the server ends before it does."""
        try:
            marks = self._marks(program)
            with self._made_groups(program.job) as groups, _Output() as output:
                process = self._start(program, marks, groups, output)
                try:
                    is_in_time = _watch(process, output, closing, self._limit_s)
                finally:
                    self._end(process, program, marks, groups)
        except OSError as problem:
            raise NotSent(f"{program.argv[0]} could not be started: {problem.strerror or problem}") from None
        if not is_in_time:
            raise NotSent(_with(f"it did not finish within {self._limit_s:g} s and was killed", output))
        if process.returncode:
            code = process.returncode
            raise NotSent(_with(f"exit code {code}" if code > 0 else f"ended by signal {-code}", output))

    def _start(
        self, program: Program, marks: dict[str, str], groups: tuple[Path, ...], output: _Output
    ) -> subprocess.Popen[bytes]:
        argv = in_folder(program.folder, program.argv)
        own = {**program.variables, **self._for_clients, **marks}
        if program.user is not None:
            env = {**program.user.variables, **own}
            return asuser.send(tuple(argv), env, program.user, groups, output=output.writing)
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("SWELL_")}
        return subprocess.Popen(
            argv,
            cwd="/",
            env={**inherited, **own},
            stdin=subprocess.DEVNULL,
            stdout=output.writing,
            stderr=output.writing,
            start_new_session=True,
        )

    def _marks(self, program: Program) -> dict[str, str]:
        """Of this run alone: a job that ended twice may have two notices under way."""
        return {"SWELL_STORE": self._store, "SWELL_JOB_ID": str(program.job), MARK: str(next(self._numbers))}

    @contextlib.contextmanager
    def _made_groups(self, job: int) -> Iterator[tuple[Path, ...]]:
        """The first holds all of its processes; none where no control group can be made."""
        if self._groups is None:
            yield ()
            return
        name = f"notice-{job}-{next(self._numbers)}"
        try:
            yield make_groups(self._groups, name, LIMITS)
        finally:
            self._groups.remove(name)

    def _end(
        self, process: subprocess.Popen[bytes], program: Program, marks: dict[str, str], groups: tuple[Path, ...]
    ) -> None:
        """Everything of it. Its own end is taken note of last: until then nobody else can have its number."""
        with contextlib.suppress(PermissionError):  # it has become somebody else, as sudo does: it ends by itself
            os.kill(process.pid, signal.SIGKILL)
        uid = os.getuid() if program.user is None else program.user.uid
        confined = processes.Confined(uid, groups[:1] or None)
        wanted = tuple(f"{name}={text}".encode() for name, text in marks.items())
        killed: set[int] = set()
        _repeat(lambda: processes.kill(process.pid, wanted, confined, killed))
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that the kernel holds is left behind
            process.wait(SWEEP_S_MAX)


class _Output:
    """What a program says: read as it comes, slowly when it is much, and forgotten but for the last of it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reading, False)
        self.last = b""
        self._bytes_read = 0

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reading)
        os.close(self.writing)

    @property
    def is_much(self) -> bool:
        return self._bytes_read > QUICK_BYTES_MAX

    def read(self) -> None:
        try:
            data = os.read(self.reading, READ_BYTES)
        except BlockingIOError:
            return
        self._bytes_read += len(data)
        self.last = (self.last + data)[-LAST_BYTES:]


def _watch(process: subprocess.Popen[bytes], output: _Output, closing: Closing, limit_s: float) -> bool:
    """True: it has ended by itself. Its end is not taken note of here (`_end`)."""
    until = time.monotonic() + limit_s
    ending = os.pidfd_open(process.pid)
    try:
        while (left_s := until - time.monotonic()) > 0:
            listened = [] if output.is_much else [output.reading]
            found = ready(min(left_s, PACE_S) if output.is_much else left_s, ending, closing.descriptor, *listened)
            output.read()
            if ending in found:
                return True
            if closing.descriptor in found:
                raise Interrupted
        return False
    finally:
        os.close(ending)


def _with(how: str, output: _Output) -> str:
    said = printable(output.last.decode(errors="replace"))[-SHOWN_MAX:]
    return f"{how}: {said}" if said else how


def _repeat(kill: Callable[[], int]) -> None:
    """What dies may still fork; until nobody is left, or for so long."""
    until = time.monotonic() + SWEEP_S_MAX
    while kill() and time.monotonic() < until:
        time.sleep(SWEEP_AGAIN_S)


def _kill_in(group: Path) -> int:
    cgroups.kill(group)
    found = cgroups.pids(group)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _where_to_ask(state: StateFolder) -> dict[str, str]:
    """So that `swell logs` in a notice asks the server that runs it."""
    return {"SWELL_STATE": str(state.root)} if state.socket is None else {"SWELL_SOCKET": str(state.socket)}


def _find_groups(state: StateFolder, store: str) -> Groups | None:
    """What an earlier life of ours has left in its own is ended, wherever they were."""
    noted = state.root / "notices.cgroup"
    before = tuple(Path(line) for line in noted.read_text().splitlines()) if noted.exists() else ()
    for group in [group for base in before for group in base.glob("notice-*")]:
        _repeat(partial(_kill_in, group))
        cgroups.remove(group)
    found = cgroups.find(f"notices-{store}", before)
    if found is not None:
        noted.write_text("\n".join(str(base.folder) for base in found.bases))
    return found
