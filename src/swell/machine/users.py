"""Who is who on this machine, and how does root open a file that is a user's?

The owner of a file can hold a lease on it (fcntl, F_SETLEASE): whoever opens it then waits for up to 45 s, and
everybody's jobs with them. Under its name there may be a link or a pipe.
"""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

OVERFLOW_UID = 65534  # how the kernel shows somebody it cannot name here; never an identity


@dataclass(frozen=True, slots=True)
class User:
    """An account of this machine."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @property
    def groups(self) -> list[int]:
        """All of them, the own one included."""
        return os.getgrouplist(self.name, self.gid)

    def is_in(self, group: str) -> bool:
        """False also where there is no such group."""
        try:
            return grp.getgrnam(group).gr_gid in self.groups
        except KeyError:
            return False

    @property
    def variables(self) -> dict[str, str]:
        """What a login would set, for programs that get nobody's environment."""
        path = "/usr/local/bin:/usr/bin:/bin"
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell, "PATH": path}


def user_by_uid(uid: int) -> User | None:
    """None: nobody has that number, or it stands for somebody unknown."""
    if uid == OVERFLOW_UID:
        return None
    try:
        return _user(pwd.getpwuid(uid))
    except KeyError:
        return None


def user_by_name(name: str) -> User | None:
    try:
        return _user(pwd.getpwnam(name))
    except KeyError:
        return None


def user_of_job(name: str, uid: int) -> User | None:
    """None: since the submission the account is gone, or its name belongs to somebody else."""
    found = user_by_name(name)
    return found if found is not None and found.uid == uid else None


def _user(entry: pwd.struct_passwd) -> User:
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def open_without_waiting(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Raises `BlockingIOError` while its owner keeps others out, and other kinds of `OSError` for what is no file."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
