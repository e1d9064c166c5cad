"""How do several workers share one folder of downloads, also on a network disk?

Nothing here depends on file locks, which network disks do not keep: only on `link` and `rename`, of which exactly one
process succeeds, and on times that the file system itself has set, so the clocks of machines may differ. Who downloads
has a *claim*, and touches it with every piece that comes. A claim that was silent for too long is taken over, because
its process is dead or its server is. Two may still download the same at once, for a moment: both write files of their
own, and the second takes the place of an equal first. So claims save work, and nobody is wrong without them.

    entries/KEY           what was downloaded, whole; never changed. Its time says when it was last used
    claims/KEY            somebody downloads it; its text says who
    parts/KEY.ID          not whole yet
    uses/KEY.OWNER.ID     a second name of an entry while somebody reads it: such entries are not evicted
    owners/OWNER          touched as long as that process lives
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from swell.errors import Rejected, Unavailable
from swell.files.listing import FOLDER_BYTES_MAX

SILENCE_S = 300.0  # of a download or a process, after which it counts as dead
LOOK_S = 0.5  # between two looks at a download of somebody else's
BEATS = 5  # of a living process within a silence
KEY = re.compile(r"[A-Za-z0-9-]{1,200}")
FOLDERS = ("entries", "claims", "parts", "uses", "owners")

DEFAULT_BYTES_MAX = 50 << 30  # where nobody names a limit; less on a disk of less than ten times that
DEFAULT_BYTES_MIN = FOLDER_BYTES_MAX  # whatever may be sent or fetched fits

Beat = Callable[[], None]
Fetch = Callable[[BinaryIO, Beat], None]  #: writes the file; beats with every piece


def default_bytes_max(root: Path) -> int:
    """A tenth of its disk."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    disk = os.statvfs(root)
    return max(DEFAULT_BYTES_MIN, min(DEFAULT_BYTES_MAX, disk.f_blocks * disk.f_frsize // 10))


class SharedCache:
    """Thread-safe. Any number of processes on any number of machines."""

    def __init__(
        self, root: Path, *, bytes_max: int | None = None, silence_s: float = SILENCE_S, look_s: float = LOOK_S
    ) -> None:
        self._root = root
        self._bytes_max = bytes_max  #: None: no limit
        self._silence_s, self._look_s = silence_s, look_s
        self._owner = secrets.token_hex(8)
        self._closing = threading.Event()
        for name in FOLDERS:
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._beat_owner()
        threading.Thread(target=self._live, name="cache-owner", daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._own_file.unlink(missing_ok=True)

    # -- using -------------------------------------------------------------------------------------------------

    @contextmanager
    def use(self, key: str, fetch: Fetch) -> Iterator[BinaryIO]:
        """The file, open; fetched by us or by somebody else. It is not evicted while it is used."""
        if not KEY.fullmatch(key):
            raise ValueError(f"{key!r} is no key")
        name = self._root / "uses" / f"{key}.{self._owner}.{secrets.token_hex(4)}"
        try:
            with self._opened(key, name, fetch) as file:
                yield file
        finally:
            name.unlink(missing_ok=True)

    def drop(self, key: str) -> None:
        """Nobody will ask for it again; who reads it still has it."""
        (self._root / "entries" / key).unlink(missing_ok=True)

    def _opened(self, key: str, name: Path, fetch: Fetch) -> BinaryIO:
        """Who was stopped for longer than a silence counts as dead, and the others have removed what they held."""
        while True:
            self._hold(key, name, fetch)
            with contextlib.suppress(FileNotFoundError):
                return name.open("rb")

    def _hold(self, key: str, name: Path, fetch: Fetch) -> None:
        while not self._link_entry(key, name):
            claim = self._claim(key)
            if claim is None:
                self._closing.wait(self._look_s)
                if self._closing.is_set():
                    raise Unavailable("the worker ends")
                continue
            try:
                if not self._link_entry(key, name):  # its last owner may have finished meanwhile
                    self._download(key, claim, fetch)
            finally:
                self._give_up(key, claim)

    def _link_entry(self, key: str, name: Path) -> bool:
        entry = self._root / "entries" / key
        try:
            os.link(entry, name)
            os.utime(name)
        except FileNotFoundError:
            return False
        except FileExistsError:  # a network disk repeats what it has done already
            return True
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                raise Rejected(f"the cache {self._root} is on a disk without hard links; name another one") from error
            raise
        return True

    # -- downloading -------------------------------------------------------------------------------------------

    def _claim(self, key: str) -> Path | None:
        """The file that proves our claim; None: somebody else has one that is not silent."""
        own = self._root / "claims" / f".{key}.{secrets.token_hex(8)}"
        own.write_text(own.name)  # by which it is known: some network disks count no links, and number each name
        with contextlib.suppress(FileNotFoundError):  # silent for so long that others removed it
            if self._has_linked(own, self._root / "claims" / key):
                return own
        own.unlink(missing_ok=True)
        return None

    def _has_linked(self, own: Path, claim: Path) -> bool:
        for _ in range(2):
            with contextlib.suppress(FileExistsError):
                os.link(own, claim)
            if _text(claim) == own.name:  # what link() said may be about a repeated request
                return True
            if not self._take_away(claim, own):
                break
        return False

    def _take_away(self, claim: Path, own: Path) -> bool:
        """A claim that was silent for too long. Of several that see that, one renames it; a newer one is put back."""
        try:
            seen, text = claim.stat(), _text(claim)
        except FileNotFoundError:
            return True
        if self._fs_now(own) - seen.st_mtime <= self._silence_s:
            return False
        aside = claim.with_name(f".{claim.name}.{secrets.token_hex(8)}.aside")
        try:
            claim.rename(aside)
        except FileNotFoundError:
            return True
        if (_text(aside), aside.stat().st_mtime_ns) != (text, seen.st_mtime_ns):
            with contextlib.suppress(OSError):
                os.link(aside, claim)
        aside.unlink(missing_ok=True)
        return True

    def _fs_now(self, own: Path) -> float:
        """By the clock of the disk's machine."""
        os.utime(own)
        return own.stat().st_mtime

    def _download(self, key: str, claim: Path, fetch: Fetch) -> None:
        part = self._root / "parts" / f"{key}.{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                fetch(file, lambda: _touch(claim))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileNotFoundError):  # silent for so long that others removed it: theirs is there
                self._make_room(part.stat().st_size)
                part.rename(self._root / "entries" / key)
                self._make_room(0)
        finally:
            part.unlink(missing_ok=True)

    def _give_up(self, key: str, own: Path) -> None:
        claim = self._root / "claims" / key
        with contextlib.suppress(OSError):
            if _text(claim) == own.name:
                claim.unlink()
        own.unlink(missing_ok=True)

    # -- making room -------------------------------------------------------------------------------------------

    def _make_room(self, more: int) -> None:
        """Evict what was not used for longest, until so much more fits. Raises `Rejected` where it never does."""
        self.sweep()
        if self._bytes_max is None:
            return
        if more > self._bytes_max:
            raise Rejected(
                f"{more} bytes do not fit into the worker's cache of {self._bytes_max}; start it with a larger "
                "--max-cache-size"
            )
        found = sorted((about.st_mtime, about.st_size, path, about.st_nlink) for path, about in self._entries())
        size = more + sum(each for _, each, _, _ in found)
        for _, each, path, names in found:
            if size <= self._bytes_max:
                return
            if names == 1:
                path.unlink(missing_ok=True)
                size -= each

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (self._root / "entries").iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()

    def sweep(self) -> None:
        """What processes that were killed have left."""
        now = self._fs_now(self._beat_owner())
        owners = self._root / "owners"
        for path in owners.iterdir():
            self._drop_old(path, now)
        living = {path.name for path in owners.iterdir()}
        for path in (self._root / "uses").iterdir():
            if path.name.split(".")[1] not in living:
                path.unlink(missing_ok=True)
        for path in (self._root / "parts").iterdir():
            self._drop_old(path, now)
        for path in (self._root / "claims").iterdir():
            if path.name.startswith("."):
                self._drop_old(path, now)
            else:
                self._take_away(path, self._own_file)

    def _drop_old(self, path: Path, now: float) -> None:
        with contextlib.suppress(FileNotFoundError):
            if now - path.stat().st_mtime > self._silence_s:
                path.unlink()

    # -- being alive -------------------------------------------------------------------------------------------

    @property
    def _own_file(self) -> Path:
        return self._root / "owners" / self._owner

    def _beat_owner(self) -> Path:
        self._own_file.touch()
        return self._own_file

    def _live(self) -> None:
        while not self._closing.wait(self._silence_s / BEATS):
            with contextlib.suppress(OSError):  # a full or absent disk; the next time will do
                self._beat_owner()


def _text(claim: Path) -> str:
    """Whose it is; empty: there is none."""
    try:
        return claim.read_text()
    except FileNotFoundError:
        return ""


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)
