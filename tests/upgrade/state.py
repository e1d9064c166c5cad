"""What a server of an older version left behind, brought to this machine.

`make.py` says how `schema-NNNN.tar.gz` was made. Only what belongs to a machine is replaced: its name, its boot, and
where the folder was.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upgrade.make import BOOT, FOLDER, HOST

ARCHIVES = Path(__file__).parent
#: that name a machine or a folder
COLUMNS = (
    ("job", "nodes"),
    ("job", "reason_evidence"),
    ("attempt", "slots"),
    ("attempt", "placements"),
    ("task", "node"),
    ("event", "detail"),
)


@dataclass(frozen=True)
class Before:
    """An unpacked folder: the state of a server that was killed while jobs ran."""

    folder: Path
    told: list[dict[str, Any]]  #: every job as that version showed it, by `swell show -o json`

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def ids(self) -> dict[str, int]:
        """The jobs by name."""
        return {job["name"]: job["id"] for job in self.told}

    def revive(self, command: str) -> list[subprocess.Popen[bytes]]:
        """Run a shell command in place of every task that was alive, under the keeper of that version."""
        begun = [path for path in self.state.glob("tasks/*/*/begun.*") if not list(path.parent.glob("exit.*"))]
        return [self._revive(path, command) for path in sorted(begun)]

    def _revive(self, begun: Path, command: str) -> subprocess.Popen[bytes]:
        """The log is locked before the fork, and the lock is the task's while it lives."""
        task, lane = begun.parent, begun.name.split(".")[2]
        begun.unlink()
        env = {
            "PATH": os.environ["PATH"],
            "SWELL_STORE": (self.state / "tasks/.store").read_text(),
            "SWELL_ATTEMPT": task.parent.name,
            "SWELL_TASK_INDEX": task.name,
        }
        keeper = (self.folder / "keeper.sh").read_text()
        words = ["sh", "-c", keeper, "swell-keeper", str(task), lane, "/", "0022", "--", "sh", "-c", command]
        with (task / "log").open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, process_group=0)


def unpack(name: str, folder: Path) -> Before:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    words = {str(FOLDER): str(folder), HOST: socket.gethostname(), BOOT: _boot_id()}
    for document in (folder / "told.json", *folder.glob("state/tasks/*/launch.json")):
        document.write_text(_replaced(document.read_text(), words))
    _replace_in_database(folder / "state/swell.db", words)
    return Before(folder, json.loads((folder / "told.json").read_text()))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _replaced(text: str, words: dict[str, str]) -> str:
    for before, now in words.items():
        text = text.replace(before, now)
    return text


def _replace_in_database(path: Path, words: dict[str, str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, column in COLUMNS:
            for before, now in words.items():
                connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (before, now))


def lost(told: Any, now: Any, where: str = "") -> list[str]:
    """What was told before and is not told now, or is told otherwise; what is told beside it is no loss."""
    if isinstance(told, dict):
        return [one for key in told for one in lost(told[key], now.get(key, "nothing"), f"{where}.{key}")]
    if isinstance(told, list) and len(told) == len(now):
        return [one for place, value in enumerate(told) for one in lost(value, now[place], f"{where}[{place}]")]
    return [] if told == now else [f"{where} was {told}, is {now}"]
