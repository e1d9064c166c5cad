"""Do the commands of examples/README.md run as they are written there?

Each is typed in the project's folder, by a shell whose `python` has what the row says it needs, and to its end. Only
the library is not installed but found: `pip install ./sdk` would change an environment that others use.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path

from server import Server

from .training import EXAMPLES, SDK

ROW = re.compile(r"^\| \[(?P<script>[\w/.-]+)\]")
COMMAND = re.compile(r"`(swell run [^`]+)`")
ENDED = re.compile(r"epoch 5: loss [\d.]+")
PATIENCE_S = 420.0  # torch takes a minute to import on two busy cores
QUIET = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def written() -> dict[str, list[str]]:
    """Script → the commands that its row shows; an `or with` another launcher is one more."""
    found = {}
    for line in (EXAMPLES / "README.md").read_text().splitlines():
        row = ROW.match(line)
        commands = COMMAND.findall(line)
        if row and commands:
            others = [commands[0].replace("--torchrun", "--accelerate")] if "or with `--accelerate`" in line else []
            found[row["script"]] = [*commands, *others]
    return found


def play_written(script: str, python: str) -> list[str]:
    """What went wrong with the commands of one script."""
    return [problem for command in written()[script] for problem in _play(command, python)]


def _play(command: str, python: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="swell-written-") as folder:
        shell = Path(folder) / "bin"
        shell.mkdir()
        (shell / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        (shell / "python").chmod(0o755)
        told = {"PATH": f"{shell}:{os.environ['PATH']}", "PYTHONPATH": str(SDK), **QUIET}
        with Server(Path(folder), gpus=2, cpus=4) as server:
            words = shlex.split(command)[1:]
            done = server.swell(*words, cwd=EXAMPLES.parent, env=told, timeout_s=PATIENCE_S)
    if done.code != 0 or not ENDED.search(done.stdout):
        return [f"{command} ends with {done.code}: {done.stdout[-1500:]} {done.stderr[-1500:]}"]
    return []
