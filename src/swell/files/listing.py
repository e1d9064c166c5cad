"""What may a folder contain that is sent to another machine?

A listing comes from somebody else on every way: from a user to the server, from the server to a worker, from a worker
back. So both sides check it with `parse_listing`, before anything is written. It has files, folders and links, nothing
else: no device, pipe or hard link can be expressed. No path leaves the folder, no link points out of it, no entry lies
below a link, and the sizes together are bounded, however few bytes the listing itself has.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from swell.errors import Rejected

CHUNK_BYTES = 512 * 1024  # what one request carries; a line that brings less than 30 KB/s is hung up on
FOLDER_BYTES_MAX = 10 * 1000**3  # of all its files; above that a shared disk or a URL is the better way
ENTRIES_MAX = 100_000
LISTING_BYTES_MAX = 48 * 1024 * 1024
PATH_BYTES_MAX = 4096  # of the system
DEPTH_MAX = 100  # names of a path
NAME_BYTES_MAX = 255  # of a file system
VERSION = 1
DIGEST = re.compile(r"[0-9a-f]{64}")


class EntryKind(StrEnum):
    """What an entry of a folder is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file, folder or symbolic link below the folder."""

    path: str  #: relative, with '/'
    kind: EntryKind
    is_executable: bool = False
    size: int = 0  #: of a file
    chunks: tuple[str, ...] = ()  #: of a file: SHA-256 of each of its parts, all but the last `CHUNK_BYTES` long
    target: str = ""  #: of a link


@dataclass(frozen=True, slots=True)
class FolderListing:
    """A folder, in the order of its paths."""

    entries: tuple[FolderEntry, ...]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        return sum(entry.kind is EntryKind.FILE for entry in self.entries)

    def chunks(self) -> dict[str, int]:
        """Each once, with its size, in the order of files."""
        return {digest: size for entry in self.entries for digest, size in _sized(entry)}

    def to_bytes(self) -> bytes:
        """The same folder is always the same bytes."""
        rows = [
            [one.path, str(one.kind), one.is_executable, one.size, list(one.chunks), one.target]
            for one in sorted(self.entries, key=lambda one: one.path)
        ]
        return json.dumps([VERSION, rows], separators=(",", ":")).encode()


def _sized(entry: FolderEntry) -> Iterator[tuple[str, int]]:
    for number, digest in enumerate(entry.chunks):
        yield digest, min(CHUNK_BYTES, entry.size - number * CHUNK_BYTES)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cut(data: bytes) -> list[bytes]:
    """Into chunks."""
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]


def parse_listing(data: bytes) -> FolderListing:
    """Raises `Rejected`, which names the first entry that cannot be taken."""
    if len(data) > LISTING_BYTES_MAX:
        raise Rejected(f"the list of files has {len(data)} bytes; at most {LISTING_BYTES_MAX} are taken")
    try:
        version, rows = json.loads(data)
        entries = tuple(_parse_entry(row) for row in _bounded(rows))
    except (ValueError, TypeError, RecursionError) as error:
        raise Rejected(f"the list of files cannot be read: {error!r}") from error
    if version != VERSION:
        raise Rejected(f"the list of files has version {version!r}; this is for version {VERSION}")
    listing = FolderListing(entries)
    check_listing(listing)
    return listing


def _bounded(rows: Any) -> list[Any]:
    if not isinstance(rows, list):
        raise TypeError("no list")
    refuse_many(len(rows))
    return rows


def refuse_many(entries: int) -> None:
    if entries > ENTRIES_MAX:
        raise Rejected(
            f"the folder has more than {ENTRIES_MAX} files and folders; name what the job does not need in .swellignore"
        )


def refuse_large(size: int) -> None:
    if size > FOLDER_BYTES_MAX:
        raise Rejected(
            f"the folder has more than {FOLDER_BYTES_MAX // 1000**3} GB of files, the most that is sent; name what the "
            "job does not need in .swellignore, or put the data where the job can fetch it (--input URL, a shared disk)"
        )


def refuse_deep(names: int, path: str) -> None:
    if names > DEPTH_MAX:
        raise Rejected(f"{shown(path)} lies more than {DEPTH_MAX} folders deep, the most that is sent")


def _parse_entry(row: Any) -> FolderEntry:
    path, kind, is_executable, size, chunks, target = row
    is_typed = (
        isinstance(path, str) and isinstance(is_executable, bool) and type(size) is int and isinstance(target, str)
    )
    if not is_typed or not isinstance(chunks, list) or not all(isinstance(one, str) for one in chunks):
        raise TypeError(f"an entry of other types: {str(row)[:200]}")
    return FolderEntry(path, EntryKind(kind), is_executable, size, tuple(chunks), target)


def check_listing(listing: FolderListing) -> None:
    """Raises `Rejected`."""
    refuse_many(len(listing.entries))
    kinds: dict[str, EntryKind] = {}
    before = ""
    total = 0
    for entry in listing.entries:
        _check_path(entry.path)
        if entry.path <= before:
            raise Rejected(f"the list of files is not sorted, or has {shown(entry.path)} twice")
        above = entry.path.rpartition("/")[0]
        if above and kinds.get(above) is not EntryKind.FOLDER:
            raise Rejected(f"{shown(entry.path)} lies in {shown(above)}, which is no folder of the list")
        _check_content(entry)
        kinds[entry.path], before = entry.kind, entry.path
        total += entry.size
        refuse_large(total)


def _check_path(path: str) -> None:
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names):
        raise Rejected(f"the path {shown(path)} leaves its folder, is absolute or is not plain; it is refused")
    if "\0" in path or len(_bytes(path)) > PATH_BYTES_MAX or any(len(_bytes(name)) > NAME_BYTES_MAX for name in names):
        raise Rejected(f"the path {shown(path)} is none that a file can have")
    refuse_deep(len(names), path)


def _check_content(entry: FolderEntry) -> None:
    is_file, is_link = entry.kind is EntryKind.FILE, entry.kind is EntryKind.LINK
    parts = -(-entry.size // CHUNK_BYTES)
    if entry.size < 0 or (entry.size and not is_file) or len(entry.chunks) != parts:
        raise Rejected(f"{shown(entry.path)}: {len(entry.chunks)} parts are not the {entry.size} bytes it should have")
    if not all(DIGEST.fullmatch(digest) for digest in entry.chunks):
        raise Rejected(f"{shown(entry.path)}: a part has no SHA-256")
    if bool(entry.target) is not is_link or (entry.is_executable and not is_file):
        raise Rejected(f"{shown(entry.path)} is a {entry.kind} with what only another kind has")
    if is_link and (why := link_problem(entry.path, entry.target)):
        raise Rejected(f"the link {shown(entry.path)} -> {shown(entry.target)} {why}")


def link_problem(path: str, target: str) -> str:
    """Why a link may not be sent; empty: it may.

    '..' only in front: behind a name that is itself a link it would lead elsewhere than it seems to.
    """
    if target.startswith("/"):
        return "is absolute; what it points to is not sent"
    names = [name for name in target.split("/") if name not in ("", ".")]
    climbs = len(names) - len(_without_climbs(names))
    if ".." in names[climbs:]:
        return "has '..' behind a name, and could lead out of the folder"
    if climbs > path.count("/"):
        return "points out of the folder; what it points to is not sent"
    if "\0" in target or len(_bytes(target)) > PATH_BYTES_MAX:
        return "has a target that no link can have"
    return ""


def _without_climbs(names: list[str]) -> list[str]:
    first = next((number for number, name in enumerate(names) if name != ".."), len(names))
    return names[first:]


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Rejected(f"the name {shown(text)} is not UTF-8; rename it, or name it in .swellignore") from None


def shown(text: str) -> str:
    """In a message: everything that a terminal would act on is escaped."""
    return ascii(text if len(text) <= 200 else text[:197] + "...")


def with_parents(paths: Iterable[str]) -> list[str]:
    """Every folder above these paths, outermost first."""
    found = {path[: at.start()] for path in paths for at in re.finditer("/", path)}
    return sorted(found)
