"""Which commit is checked out in the folder of a manifest?

A repository may be somebody else's, and its configuration names programs. Only two commands are run, which look up an
object and print it: no hook, pager, file system monitor or signature is asked for, nothing is fetched, and a
repository that belongs to another user is git's to refuse.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

GIT = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "cat-file")
#: A partial clone would fetch a missing object, over a transport that its configuration names.
ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
SECONDS_MAX = 5.0  # milliseconds, unless the disk is far away; without an answer the job has no commit
BYTES_MAX = 64 * 1024  # of a commit; its signature and all its parents are in it
CHARACTERS_MAX = 4096  # of a message that every task is told
FOUND = re.compile(r"([0-9a-f]{40,64}) commit ([0-9]{1,18})")


def find_commit(files: Collection[str]) -> dict[str, str] | None:
    """`sha` and `message` of the one that all these files' folders have checked out; None: there is none, or two.

    The file `-` is standard input, which is written in the current folder.
    """
    folders = {Path() if name == "-" else Path(os.path.realpath(name)).parent for name in files}
    found = [_commit_of(folder) for folder in folders]
    return found[0] if found and all(one == found[0] for one in found) else None


def _commit_of(folder: Path) -> dict[str, str] | None:
    seen = FOUND.fullmatch(_answer(folder, "--batch-check", stdin="HEAD\n").strip())
    if seen is None or int(seen[2]) > BYTES_MAX:
        return None
    _, _, message = _answer(folder, "commit", seen[1]).partition("\n\n")
    return {"sha": seen[1], "message": message.partition("\0")[0].strip()[:CHARACTERS_MAX]}


def _answer(folder: Path, *words: str, stdin: str = "") -> str:
    """Empty: git is not there, or refuses."""
    told = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}  # in a hook: of its own
    try:
        done = subprocess.run(
            [*GIT, *words],
            cwd=folder,
            env={**told, **ENVIRONMENT},
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[: 2 * BYTES_MAX].decode(errors="replace") if done.returncode == 0 else ""
