"""Where do benchmarks work, so that one does not slow the next down?

ext4 does not hand out an inode again for one to five minutes after its file was deleted, and searches for another
one: in a block group in which thousands were deleted lately, making a file costs 150 µs instead of 10. So the
working folder is marked as the top of a hierarchy, which makes ext4 spread its subfolders over the disk (`chattr
+T`), every measurement has a subfolder of its own, and nothing is deleted before the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.interrupts import undisturbed

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, 64 bits
TOP_OF_HIERARCHY = 0x20000


@contextlib.contextmanager
def working_folder(parent: Path | None) -> Iterator[Path]:
    """Removed afterwards; None: in the temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="swell-bench-", dir=parent))
    try:
        with contextlib.suppress(OSError):  # another file system has another way, or no such problem
            _spread_subfolders(folder)
        yield folder
    finally:
        with undisturbed():
            shutil.rmtree(folder)


def subfolder(folder: Path, purpose: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=folder))


def _spread_subfolders(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        [flags] = struct.unpack("l", fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))
        fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags | TOP_OF_HIERARCHY))
    finally:
        os.close(descriptor)
