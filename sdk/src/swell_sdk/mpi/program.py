"""What does a task of an MPI job run: the user's launcher, or what that asks for?"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from swell_sdk.mpi.commands import Commands, exit_code, obey
from swell_sdk.mpi.connection import (
    BYE,
    CODE,
    END,
    ERR,
    HANDSHAKES_MAX,
    OUT,
    RUN,
    SLOTS_MAX,
    STOP,
    Gathering,
    Line,
    attempt_key,
    fail,
    reach_first,
    say,
)

LOST = 255  # the exit code of ssh where the connection is lost, which launchers know
SOCKET_PATH_MAX = 100  # bytes; the kernel takes 107
MEMORY = "/dev/shm"  # noqa: S108  a folder of its own is made there
#: where Open MPI keeps what the ranks of one host share
SHARED_MEMORY = tuple(f"OMPI_MCA_{part}_backing_directory" for part in ("btl_vader", "osc_sm", "osc_rdma"))
BINDING = "OMPI_MCA_hwloc_base_binding_policy"
#: what says which rank a task is: the ranks are those that MPI starts
OF_A_TASK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from swell_sdk.mpi.program import main; sys.exit(main(sys.argv[1:]))"
)
SHELL = """\
#!/bin/sh
exec {python} -I -c {start} {library} shell {socket} "$@"
"""


class Shells:
    """The remote shells that the launcher has started, and the tasks that run what they ask for."""

    def __init__(self, hosts: Mapping[str, Line]) -> None:
        self._hosts = hosts
        self._open: Dict[int, Tuple[Line, Line]] = {}  #: by number of the command: its shell, and its task
        self._numbers = iter(range(1, 1 << 32))
        for line in hosts.values():
            threading.Thread(target=self._hear, args=(line,), daemon=True).start()

    def listen(self, path: str) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(HANDSHAKES_MAX)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._take, args=(Line(connection, is_asking=False),), daemon=True).start()

    def _take(self, shell: Line) -> None:
        messages = shell.messages()
        asked = next(messages, None)
        if asked is None:
            return
        host, text = json.loads(asked.data)
        line = self._hosts.get(host)
        number = next(self._numbers)
        if line is None:
            self._end(shell, f"no task of this job is called {host}; $SWELL_HOSTFILE names them")
            return
        self._open[number] = (shell, line)
        with contextlib.suppress(OSError):
            line.send(RUN, number, text.encode())
            for _ in messages:  # it says no more; this waits until it is gone
                pass
            if self._open.pop(number, None) is not None:
                line.send(STOP, number)

    def _hear(self, line: Line) -> None:
        for message in line.messages():
            shell, _ = self._open.get(message.command, (None, None))
            if message.kind == END:
                self._open.pop(message.command, None)
            if shell is not None:
                with contextlib.suppress(OSError):
                    shell.send(message.kind, 0, message.data)
        for number, (shell, of) in list(self._open.items()):
            if of is line and self._open.pop(number, None) is not None:
                self._end(shell, "the connection to the task was lost")

    def _end(self, shell: Line, problem: str) -> None:
        with contextlib.suppress(OSError):
            shell.send(ERR, 0, f"swell: {problem}\n".encode())
            shell.send(END, 0, CODE.pack(LOST))


def host_name(task: int) -> str:
    """As launchers know it. It has no address: they leave it to the remote shell, and look it up nowhere."""
    return f"swell-task-{task}"


def hostfile(slots: Mapping[str, int]) -> str:
    return "".join(f"{host} slots={number}\n" for host, number in slots.items() if number)


def launcher_variables(hosts: Path, shell: Path, environ: Mapping[str, str]) -> Dict[str, str]:
    """For Open MPI 4. A binding that the user asks for is kept."""
    return {
        "SWELL_HOSTFILE": str(hosts),
        "OMPI_MCA_orte_default_hostfile": str(hosts),
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": f"/bin/sh {shell}",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only task 0 has the remote shell
        "OMPI_MCA_orte_leave_session_attached": "1",  # a daemon lives as long as its shell
        "OMPI_MCA_opal_if_do_not_resolve": "1",  # the names of tasks have no addresses
        "OMPI_MCA_ras": "^slurm,tm,lsf,gridengine",  # the worker may be in such a job, whose hosts are not ours
        # Two tasks on one machine would bind their ranks to the same cores.
        **({} if BINDING in environ else {BINDING: "none"}),
    }


def gather(key: bytes, place: Tuple[str, int], tasks: int) -> Dict[int, Tuple[int, Line]]:
    if tasks == 1:
        return {}
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    try:
        listener = socket.create_server(place, family=family, backlog=HANDSHAKES_MAX)
    except OSError as error:
        fail(f"cannot listen at {place[0]} port {place[1]}, where the tasks meet: {error}")
    with listener:
        return Gathering(key, tasks).run(listener)


def lead(words: List[str], key: bytes, place: Tuple[str, int], tasks: int, slots: int) -> int:
    """The exit code of the user's command."""
    others = sorted(gather(key, place, tasks).items())
    env = own_variables()
    folder = make_folder()
    hosts, shell, place_to_ask = folder / "hosts", folder / "rsh", folder / "socket"
    try:
        hosts.write_text(hostfile({os.uname().nodename: slots, **{host_name(task): n for task, (n, _) in others}}))
        told = {"python": sys.executable, "start": START, "library": sys.path[0], "socket": str(place_to_ask)}
        shell.write_text(SHELL.format(**{name: shlex.quote(text) for name, text in told.items()}))
        Shells({host_name(task): line for task, (_, line) in others}).listen(str(place_to_ask))
        signal.signal(signal.SIGTERM, lambda *_: None)  # the launcher is sent it, too, and its exit code counts
        code = run(words, {**env, **launcher_variables(hosts, shell, env)})
        for _, (_, line) in others:
            with contextlib.suppress(OSError):
                line.send(BYE)
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(words: List[str], env: Mapping[str, str]) -> int:
    try:
        return exit_code(subprocess.Popen(words, env=env).wait())
    except OSError as error:
        say(f"cannot start {words[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126


def make_folder() -> Path:
    """Open MPI cuts its remote shell at blanks and colons, and a socket's path is short."""
    folder = Path(tempfile.mkdtemp(prefix="swell-mpi-"))
    if len(os.fsencode(folder)) + len("/socket") <= SOCKET_PATH_MAX and not set(" :") & set(str(folder)):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="swell-mpi-", dir="/tmp"))


def follow(line: Line) -> int:
    """Ranks of two tasks on one machine would give their shared memory the same names, so each task has a folder."""
    memory = tempfile.mkdtemp(prefix="swell-mpi-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    try:
        commands = Commands(line, {**own_variables(), **dict.fromkeys(SHARED_MEMORY, memory)})
        signal.signal(signal.SIGTERM, commands.leave)
        return obey(line, commands)
    finally:
        shutil.rmtree(memory, ignore_errors=True)


def ask(path: str, words: List[str]) -> int:
    """As `ssh [options] HOST COMMAND…`, for the options that launchers give it: none of them takes a value."""
    while words and words[0].startswith("-"):
        words = words[1:]
    if len(words) < 2:
        fail("the remote shell needs a host and a command")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        line = Line(connection, is_asking=True)
        line.send(RUN, 0, json.dumps([words[0], " ".join(words[1:])]).encode())
        for message in line.messages():
            if message.kind == END:
                return int(CODE.unpack(message.data)[0])
            stream = sys.stdout if message.kind == OUT else sys.stderr
            stream.buffer.write(message.data)
            stream.buffer.flush()
    return LOST


def own_variables() -> Dict[str, str]:
    return {name: text for name, text in os.environ.items() if name not in OF_A_TASK}


def own_slots(told: Mapping[str, str]) -> int:
    """How many ranks may start in this task: as many as it is told, or one for each of its GPUs."""
    asked = told.get("SWELL_MPI_SLOTS")
    if asked is None:
        return max(1, int(told["NUM_GPUS"]))
    if not (asked.isascii() and asked.isdigit() and int(asked) <= SLOTS_MAX):
        fail(f"SWELL_MPI_SLOTS is {asked[:100]!r}; it must be a number from 0 to {SLOTS_MAX}")
    return int(asked)


def main(words: List[str]) -> int:
    if words[0] == "shell":
        return ask(words[1], words[2:])
    told = os.environ
    key, place = attempt_key(told), (told["MASTER_ADDR"], int(told["MASTER_PORT"]))
    task, tasks, slots = int(told["SWELL_TASK_INDEX"]), int(told["SWELL_TASK_COUNT"]), own_slots(told)
    if task == 0:
        return lead(words[1:], key, place, tasks, slots)
    return follow(reach_first(key, place, task, slots))
