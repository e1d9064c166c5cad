"""How is a process of a user's kept from the keys of others?

The kernel keeps keys (Kerberos tickets, passwords of network file systems) in a session keyring, which children
inherit, whoever they become: neither a change of user nor a new session makes another. systemd gives a service one, so
that all that a server starts would share it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Iterator

#: the number of the system call `keyctl`, which the C library does not have
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
JOIN_SESSION_KEYRING = 1
NONE_HERE = (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)  # a kernel without keys, or a container that forbids them


@contextlib.contextmanager
def new_keyring() -> Iterator[None]:
    """What this thread starts meanwhile has a session keyring that nobody else has, and neither have we afterwards."""
    join_new_keyring()
    try:
        yield
    finally:
        join_new_keyring()


def join_new_keyring() -> None:
    """This thread leaves the one it has. Cheap: an empty one is made, and goes with the last process that has it."""
    number = KEYCTL.get(platform.machine())
    if number is None:
        return
    call = ctypes.CDLL(None, use_errno=True).syscall
    if call(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), ctypes.c_void_p()) < 0:
        code = ctypes.get_errno()
        if code not in NONE_HERE:
            raise OSError(code, os.strerror(code))
