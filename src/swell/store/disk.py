"""Is it the disk, and what should a person know then?"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from swell.errors import Unavailable
from swell.state import disk_problem

#: how SQLite's name for an error begins → the system's name for it
ERRORS = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_CANTOPEN": errno.EACCES,
    "SQLITE_IOERR": errno.EIO,
}


def disk_trouble(error: BaseException, engine: Engine) -> Unavailable | None:
    """The same in words, for whoever waited; None: it is something else."""
    if not isinstance(error, DBAPIError):
        return None
    name = str(getattr(error.orig, "sqlite_errorname", ""))
    number = next((number for known, number in ERRORS.items() if name.startswith(known)), None)
    if number is None:
        return None
    folder = Path(str(engine.url.database)).parent
    found = Unavailable(f"nothing was changed: {disk_problem(OSError(number, os.strerror(number)), folder)}")
    found.__cause__ = error
    return found
