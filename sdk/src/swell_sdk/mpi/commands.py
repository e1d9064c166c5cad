"""What does a task run for task 0, and when does that end?"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import threading
from typing import IO, Dict, List, Mapping

from swell_sdk.mpi.connection import BYE, CODE, END, ERR, OUT, RUN, STOP, Line, say

OUTPUT_BYTES = 1 << 16  # in one message
STOP_S = 5.0  # for commands to end when their launcher has


class Commands:
    """Those that task 0 has this task run, by their numbers."""

    def __init__(self, line: Line, env: Mapping[str, str]) -> None:
        self._line, self._env = line, env
        self._groups: Dict[int, int] = {}  #: process groups of those whose leader is there
        self._changed = threading.Condition()
        self._is_stopping = False  #: Swell has asked everybody to end, and waits for this task

    def run(self, number: int, text: str) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        words = [login_shell(), "-c", text]
        try:
            process = subprocess.Popen(
                words, stdin=nothing, stdout=pipe, stderr=pipe, env=self._env, start_new_session=True
            )
        except OSError as error:
            self._line.send(ERR, number, f"swell: {error}\n".encode())
            self._line.send(END, number, CODE.pack(126))
            return
        with self._changed:
            self._groups[number] = process.pid
        threading.Thread(target=self._see_through, args=(number, process), daemon=True).start()

    def _see_through(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        streams = ((OUT, process.stdout), (ERR, process.stderr))
        pumps = [threading.Thread(target=self._pass_on, args=(kind, number, one), daemon=True) for kind, one in streams]
        for pump in pumps:
            pump.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # until it is reaped its number is nobody else's
        with self._changed:
            del self._groups[number]
            self._changed.notify_all()
        code = exit_code(process.wait())
        for pump in pumps:
            pump.join(STOP_S)  # a daemon that it has left behind may keep its output
        with contextlib.suppress(OSError):
            self._line.send(END, number, CODE.pack(code))
        if self._is_stopping and not self._groups:
            os.kill(os.getpid(), signal.SIGTERM)  # the thread that waits for orders leaves, too

    def _pass_on(self, kind: int, number: int, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            while True:
                piece = os.read(stream.fileno(), OUTPUT_BYTES)
                if not piece:
                    return
                self._line.send(kind, number, piece)

    def stop(self, number: int) -> None:
        with self._changed:
            self._signal([number], signal.SIGTERM)

    def end_all(self, *, may_take_its_time: bool) -> None:
        """`may_take_its_time`: they end by themselves, and are only told to when they have not in a while."""
        for wanted in (*((0,) if may_take_its_time else ()), signal.SIGTERM, signal.SIGKILL):
            with self._changed:
                self._signal(list(self._groups), wanted)
                if self._changed.wait_for(lambda: not self._groups, STOP_S):
                    return

    def _signal(self, numbers: List[int], wanted: int) -> None:
        for number in numbers:
            if number in self._groups:
                with contextlib.suppress(OSError):
                    os.killpg(self._groups[number], wanted)

    def leave(self, *_: object) -> None:
        """At SIGTERM, which all processes of the task are sent: when the commands have ended."""
        self._is_stopping = True
        if not self._groups:
            raise SystemExit(128 + signal.SIGTERM)


def login_shell() -> str:
    """Launchers write the command for the shell of their user, and know two kinds."""
    with contextlib.suppress(KeyError):
        shell = pwd.getpwuid(os.getuid()).pw_shell
        if os.path.basename(shell) in ("csh", "tcsh"):  # noqa: PTH119
            return shell
    return "/bin/sh"


def obey(line: Line, commands: Commands) -> int:
    for message in line.messages():
        if message.kind == RUN:
            commands.run(message.command, message.data.decode())
        elif message.kind == STOP:
            commands.stop(message.command)
        elif message.kind == BYE:
            commands.end_all(may_take_its_time=True)
            return 0
    commands.end_all(may_take_its_time=False)
    say("the connection to task 0 was lost")
    return 1


def exit_code(code: int) -> int:
    """As a shell has it."""
    return code if code >= 0 else 128 - code
