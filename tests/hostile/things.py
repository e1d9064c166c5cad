"""Everything that can lie under a name where a file is expected, and names that are no text."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe" * 100)


def huge(path: Path) -> None:
    """Eight exbibytes, of which none is on the disk; as far as the file system goes."""
    with path.open("wb") as file:
        for size in (2**63 - 1, 2**44 - 4096, 2**40):
            try:
                os.truncate(file.fileno(), size)
            except OSError:
                continue
            return


def _socket(path: Path) -> None:
    """Bound by a short name: a socket's may not be longer than 107 bytes."""
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def _hard_link(path: Path) -> None:
    source = path.with_name(f"{path.name}~")
    source.write_bytes(b"the same file under two names")
    path.hardlink_to(source)


def _tree(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


KINDS: dict[str, Callable[[Path], None]] = {
    "absent": lambda path: None,
    "empty": Path.touch,
    "garbage": garbage,
    "huge": huge,
    "folder": _tree,
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),  # /dev/zero: it never ends
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to somebody's file": lambda path: path.symlink_to("/etc/shadow"),
    "hard link": _hard_link,
}

NUMBERS = st.sampled_from(["0", "7", "-1", "007", "1e9", "²", "٣", "9" * 30, "9" * 240, "", " 1", "1\n", "0x1", "NaN"])
_BYTES = st.binary(min_size=1, max_size=40).filter(lambda name: b"/" not in name and b"\0" not in name)
#: any bytes that can be a name, as Python sees them
NAMES = _BYTES.filter(lambda name: name not in (b".", b"..")).map(os.fsdecode)
FACTS = st.builds(
    "{}.{}".format, st.sampled_from(["begun", "exit", "cause", "failed", "lock", "log", ""]), st.one_of(NUMBERS, NAMES)
)
MORE_FACTS = st.builds("{}.{}".format, FACTS, NUMBERS)


def is_name(name: str) -> bool:
    return name not in (".", "..", "") and "/" not in name and "\0" not in name and len(os.fsencode(name)) <= 255
