"""How is a folder removed that somebody else has filled, without anybody waiting for it?

Users fill their folders as they like: three thousand folders inside one another, names that are no text, links,
pipes, other file systems mounted inside, and processes of theirs that still write there. So nothing here calls itself,
a path is never longer than a name (everything is reached through an open folder), no link is followed, nothing is
opened but folders, and no mount is entered. A folder inside is first moved up beside the others, then emptied in turn:
two open files and no memory of the way, however deep it is.

Removing gigabytes takes seconds, and whoever asks for it has none. A folder is renamed, which takes no time, and
removed by a thread of its own, which works on each for a moment and then on the next. What a killed server has renamed
and not removed, the next one removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import logging
import os
import queue
import secrets
import struct
import threading
import time
from pathlib import Path

PREFIX = ".erased-"
SLICE_S = 2.0  # the longest that one folder is worked on while others wait
_OPENAT2 = 437  # the same number on every architecture
_NO_MOUNTS, _NO_LINKS, _BENEATH = 0x01, 0x04, 0x08
_LIBC = ctypes.CDLL(None, use_errno=True)
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


log = logging.getLogger(__name__)


class Eraser:
    """Removes folders out of one folder, which is ours."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._doomed: queue.SimpleQueue[str] = queue.SimpleQueue()
        for left in root.glob(f"{PREFIX}*"):
            self._doomed.put(left.name)
        threading.Thread(target=self._run, name=f"eraser-{root.name}", daemon=True).start()

    def erase(self, name: str) -> None:
        """It is no longer there when this returns."""
        doomed = f"{PREFIX}{name}-{secrets.token_hex(4)}"
        try:
            (self._root / name).rename(self._root / doomed)
        except (FileNotFoundError, NotADirectoryError):
            return  # there was none
        self._doomed.put(doomed)

    def _run(self) -> None:
        while True:
            name = self._doomed.get()
            try:
                if not remove_tree(self._root, name):
                    self._doomed.put(name)  # the others first
            except Exception as error:  # noqa: BLE001  whatever one folder holds, the others are removed
                log.warning("%s could not be removed: %s", self._root / name, error)


def remove_tree(parent: Path, name: str, *, slice_s: float = SLICE_S) -> bool:
    """True: it is gone. False: there was no time for all of it; ask again. OSError: something in it cannot go."""
    try:
        above = os.open(parent, FOLDER)
    except FileNotFoundError:
        return True
    try:
        return _remove(above, name, time.monotonic() + slice_s)
    finally:
        os.close(above)


def _remove(above: int, name: str, until: float) -> bool:
    top = _enter(above, name)
    if top is None:
        _drop(above, name)
        return True
    try:
        if not _empty(top, until):
            return False
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)
    return True


def _empty(top: int, until: float) -> bool:
    """Round after round over what lies directly in it: each ends those it finds, and brings up what they held."""
    numbers = itertools.count()
    prefix = secrets.token_hex(4)
    while True:
        is_empty = True
        with os.scandir(top) as entries:
            for entry in entries:
                is_empty = False
                if time.monotonic() > until:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    _drop(top, entry.name)
                elif not _flatten(top, entry.name, prefix, numbers, until):
                    return False
        if is_empty:
            return True


def _flatten(top: int, name: str, prefix: str, numbers: itertools.count[int], until: float) -> bool:
    """Ends one folder; those inside come to stand beside it."""
    folder = _enter(top, name)
    if folder is None:
        _drop(top, name)
        return True
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() > until:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    _move_up(folder, entry.name, top, f".{prefix}-{next(numbers)}")
                else:
                    _drop(folder, entry.name)
    finally:
        os.close(folder)
    with contextlib.suppress(FileNotFoundError):
        _rmdir(top, name)
    return True


def _rmdir(top: int, name: str) -> None:
    """Somebody may have put something into it meanwhile: then the next round finds that."""
    try:
        os.rmdir(name, dir_fd=top)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _move_up(folder: int, name: str, top: int, to: str) -> None:
    try:
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        _open_up(folder, name)  # to be moved, a folder itself must be writable
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=top)
    except FileNotFoundError:
        pass


def _enter(above: int, name: str) -> int | None:
    """An open folder; None: there is none of that name, but something else perhaps. Raises where it is a mount."""
    try:
        return open_beneath(above, name)
    except PermissionError:
        _open_up(above, name)
        return open_beneath(above, name)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
            return None
        raise


def _open_up(above: int, name: str) -> None:
    """One's own folder that one may not enter; root may enter any, and changes nobody's."""
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=above)


def open_beneath(above: int, name: str, flags: int = FOLDER) -> int:
    """Where the kernel cannot keep us out of mounts (before 5.6), the devices are compared afterwards."""
    how = struct.pack("<QQQ", flags, 0, _NO_MOUNTS | _NO_LINKS | _BENEATH)
    opened = int(_LIBC.syscall(_OPENAT2, above, os.fsencode(name), how, len(how)))
    if opened >= 0:
        return opened
    code = ctypes.get_errno()
    if code != errno.ENOSYS:
        raise OSError(code, os.strerror(code), name)
    found = os.open(name, flags, dir_fd=above)
    if os.fstat(found).st_dev != os.fstat(above).st_dev:
        os.close(found)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return found


def _drop(above: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
