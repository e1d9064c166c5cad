"""What would keep a job from starting on this machine, as far as whoever submits it can see?

A folder, a mount or a program that is not there is found out when the job starts, which may be hours later. The server
must not look into users' folders, so the client looks, as the user, where jobs run on its own machine. What is missing
may come before the job starts: it is told, and the job is accepted.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.machine.state_folder import StateFolder


def runs_here(server: object) -> bool:
    """Are the jobs of this server started on this machine?"""
    return isinstance(server, StateFolder) and (
        server.socket is not None or server.read_json(server.config).get("cluster") is None
    )


def refuse_one_word(command: Sequence[str], path: str | None) -> None:
    """`swell run 'echo a b'`: a shell has made one word of it, and no program is called so."""
    if len(command) != 1 or " " not in command[0].strip() or shutil.which(command[0], path=path):
        return
    try:
        words = shlex.split(command[0])
    except ValueError:
        words = command[0].split()
    if words and shutil.which(words[0], path=path):
        raise Rejected(
            f"there is no program {command[0]!r}: the quotes make it one word; leave them out (swell run -- "
            f"{command[0]}), or use a shell: swell run -- sh -c {shlex.quote(command[0])}"
        )


def missing(spec: Mapping[str, Any], here: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """`spec`: of our own notation."""
    folder = here / str(spec.get("workdir") or ".")
    if spec.get("image"):
        yield from (
            f"mount source {source} does not exist" for source in _sources(spec, folder) if not _is_there(source)
        )
        return
    if not _is_there(folder):
        yield f"folder {folder} does not exist"
        return
    path = str((spec.get("env") or {}).get("PATH") or environment.get("PATH") or os.defpath)
    if spec.get("tensorboard") and not shutil.which("tensorboard", path=path):
        yield "--tensorboard needs the program 'tensorboard', which is not on PATH (pip install tensorboard)"
    if (told := _notified(spec.get("notify"))) and (why := _no_program(told, folder, path)):
        yield f"--notify: {why}"
    if not spec.get("launcher") and (why := _no_program(str(spec["command"][0]), folder, path)):
        yield why


def _notified(notify: object) -> str:
    """The program that is told of the end; empty: none is. What cannot be read the server explains."""
    try:
        words = shlex.split(notify) if isinstance(notify, str) else list(notify) if isinstance(notify, list) else []
    except ValueError:
        return ""
    is_command = bool(words) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|mailto:", str(words[0]))
    return str(words[0]) if is_command else ""


def _sources(spec: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Of mounts 'SRC:DST[:ro]', and of volumes; what is written otherwise the server explains."""
    for mount in spec.get("mounts") or ():
        source, colon, _ = str(mount).partition(":")
        if colon and source:
            yield folder / source
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict) and isinstance(volume.get("folder"), str):
            yield folder / volume["folder"]


def _no_program(name: str, folder: Path, path: str) -> str:
    """Why it cannot be run; empty: it can."""
    if "/" not in name:
        return "" if shutil.which(name, path=path) else f"there is no program {name!r} on PATH"
    file = folder / name
    if not _is_there(file):
        return f"there is no program {file}"
    return "" if os.access(file, os.X_OK) and file.is_file() else f"{file} cannot be run: it is not an executable file"


def _is_there(path: Path) -> bool:
    """What may not be looked at is not known to be missing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
