"""How does a program of the cluster live, and how is it certain to die? With whoever started it.

`setpriv --pdeathsig` has the kernel kill a program when the thread that started it ends, whatever ended that. So a
cluster is started from a thread that lives as long as the cluster is wanted: a test's main thread, or the keeper of
`python -m tests.cluster up`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE_S = 60.0  # for anything that takes seconds; a loaded machine is slow
GLANCE_S = 0.05  # between two looks at a program that cannot tell us when it is ready
LOG_TAIL = 3000  # characters of a log that a failure shows


Word = str | Path  # of a command line


class Failed(Exception):
    """A part of the cluster did not do what it must; the message quotes its log."""


class Process:
    """One program with its log in a file; may be paused, killed and started again with the same words."""

    def __init__(self, name: str, words: Sequence[Word], folder: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.words = [str(word) for word in words]
        self.log = folder / f"{name}.log"
        self._env = {**os.environ, **(env or {})}
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert not self.is_alive, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,  # a Ctrl-C at the terminal is for whoever stops us in order
            )

    @property
    def pid(self) -> int:
        assert self._popen, f"{self.name} was never started"
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def stop(self, grace_s: float = 5.0) -> None:
        """Ask it to end, and see to it that it does."""
        if self._popen is None or not self.is_alive:
            return
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused one hears nothing
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """At once, as a crash would; returns when it is gone."""
        if self._popen is not None and self.is_alive:
            self.signal(signal.SIGKILL)
            self._popen.wait()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self._popen, f"{self.name} was never started"
        self._popen.send_signal(number)

    def until(self, is_ready: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Wait for readiness; a program that ended meanwhile is told about at once, with its log."""
        end = time.monotonic() + patience_s
        while not _holds(is_ready):
            if not self.is_alive:
                raise Failed(f"{self.name} ended instead of becoming ready:\n{self.tail()}")
            if time.monotonic() > end:
                raise Failed(f"{self.name} was not ready after {patience_s:.0f} s:\n{self.tail()}")
            time.sleep(GLANCE_S)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL:] if self.log.exists() else "(no log)"


def run(*words: Word, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """A command to its end: what it printed, or everything it said as a failure."""
    done = subprocess.run(
        [str(word) for word in words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S * 5,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-LOG_TAIL:]
        raise Failed(f"{' '.join(str(word) for word in words)}: exit code {done.returncode}\n{said}")
    return done.stdout


_given: set[int] = set()


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, and that nobody here was given before; another process might get it too."""
    while True:
        with socket.socket() as listener:
            listener.bind((address, 0))
            port: int = listener.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port


def is_ready(url: str) -> bool:
    """Does it say 200 there?"""
    return _status(url) == 200


def is_served(url: str) -> bool:
    """Is there anybody under that path?"""
    return _status(url) != 404


def _status(url: str) -> int:
    """Whom we ask is known by its port: a certificate is not looked at."""
    at = urlsplit(url)
    connection: http.client.HTTPConnection
    if at.scheme == "https":
        unverified = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(at.netloc, timeout=5, context=unverified)
    else:
        connection = http.client.HTTPConnection(at.netloc, timeout=5)
    try:
        connection.request("GET", at.path)
        return connection.getresponse().status
    finally:
        connection.close()


def _holds(is_ready: Callable[[], bool]) -> bool:
    try:
        return is_ready()
    except (OSError, http.client.HTTPException):  # nobody listens yet, or not for long
        return False
