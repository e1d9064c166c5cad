"""How much of the disk does a folder take that somebody else has filled?

The same folders as in `removal.py`, and as little is believed of them: nothing calls itself, no link is followed, no
mount is entered or even asked (a user's own file system could keep us waiting for an answer), and whatever vanishes
while we look counts nothing. One folder is open for each level, so there is a deepest level. Whoever counts takes one
entry at a time, and stops and goes on as they like: a folder with ten million files is never held in memory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from swell.machine.removal import FOLDER, open_beneath

DEPTH_MAX = 64  # real checkpoints have ten levels; each costs two open files while it is looked at
ENTRY_BYTES_MIN = 4096  # an empty file takes no block, but an inode, of which a disk has about one for each 16 KiB
LINKED_MAX = 100_000  # files with several names that are remembered, to count them once; more count for every name
_BLOCK = 512  # what st_blocks counts in, whatever the file system's own are
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class TooDeep(Exception):
    """There is something below the deepest level that is looked at."""


def entry_sizes(parent: Path, name: str) -> Iterator[int]:
    """Bytes on the disk of the folder and of everything in it, one after the other. Raises `TooDeep`."""
    with contextlib.ExitStack() as kept, contextlib.suppress(OSError):
        above = os.open(parent, FOLDER)
        kept.callback(os.close, above)
        counted: set[int] = set()
        about = _look(above, name)
        yield _size(about, counted)
        if stat.S_ISDIR(about.st_mode):
            yield from _below(above, name, counted)


def _below(above: int, name: str, counted: set[int]) -> Iterator[int]:
    levels = [_Level(above, name)]
    try:
        while levels:
            found = levels[-1].next()
            if found is None:
                levels.pop().close()
                continue
            try:
                about = _look(levels[-1].folder, found)
                if stat.S_ISDIR(about.st_mode):
                    levels.append(_deeper(levels, found))
            except OSError:  # it has vanished, it is a mount, or the disk has an error there
                continue
            yield _size(about, counted)
    finally:
        for level in levels:
            level.close()


class _Level:
    """One open folder, and how far it has been read."""

    def __init__(self, above: int, name: str) -> None:
        self.folder = open_beneath(above, name)
        try:
            self._entries = os.scandir(self.folder)
        except OSError:
            os.close(self.folder)
            raise

    def next(self) -> str | None:
        """None: that was all, or nothing more can be read."""
        try:
            return next(self._entries).name
        except (StopIteration, OSError):
            return None

    def close(self) -> None:
        self._entries.close()
        os.close(self.folder)


def _deeper(levels: Sequence[_Level], name: str) -> _Level:
    if len(levels) == DEPTH_MAX:
        raise TooDeep(f"folders are nested deeper than {DEPTH_MAX}")
    return _Level(levels[-1].folder, name)


def _look(above: int, name: str) -> os.stat_result:
    """Opened and not asked by name: that would cross into a mount, whose owner need not answer."""
    found = open_beneath(above, name, _LOOK)
    try:
        return os.fstat(found)
    finally:
        os.close(found)


def _size(about: os.stat_result, counted: set[int]) -> int:
    """A file with several names counts once, as far as they are remembered."""
    if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
        if about.st_ino in counted:
            return 0
        if len(counted) < LINKED_MAX:
            counted.add(about.st_ino)
    return max(about.st_blocks * _BLOCK, ENTRY_BYTES_MIN)
