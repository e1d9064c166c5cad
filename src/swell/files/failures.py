"""Which failures of a disk will be the same the next time, and what is said of one?"""

from __future__ import annotations

import errno
import os

from swell.files.listing import shown

LASTING = frozenset({errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM})


def is_lasting(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in LASTING


def in_words(error: Exception) -> str:
    """With a path of bounded length: a program chose it."""
    if not isinstance(error, OSError) or error.errno is None or error.filename is None:
        return str(error)[:1000]
    name = error.filename if isinstance(error.filename, str | bytes) else str(error.filename)
    return f"{shown(os.fsdecode(name))}: {error.strerror}"
