"""How is a script run as a task of its own, and stopped at the line a test wants?

`gate()` in a script says where it is and waits for the test: no test needs to guess how long something takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import swell_sdk

from .server import BOUND_S

SDK = Path(swell_sdk.__file__).parent.parent

PREAMBLE = """
import os, signal, sys
def gate(*words):
    print(*words, flush=True)
    sys.stdin.readline()
"""


class Script:
    def __init__(self, text: str, environ: dict[str, str], cwd: Path, python: str = sys.executable) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.process = subprocess.Popen(
            [python, "-c", PREAMBLE + textwrap.dedent(text)],
            env={**kept, "PYTHONPATH": str(SDK), **environ},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_gate(self) -> str:
        """What it said at the gate it is waiting at; empty when it ended instead."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Exit code, the rest of stdout, stderr."""
        try:
            out, err = self.process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
