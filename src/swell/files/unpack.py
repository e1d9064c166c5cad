"""How is a listing written into a folder, so that nothing outside of it is touched?

Every folder on the way is opened by its name, never through a link, and files are made new under a name of ours before
they get their own. Links are made last, so nothing is written through one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from swell.errors import Rejected
from swell.files.listing import EntryKind, FolderEntry, FolderListing, check_listing, digest_of, shown

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(listing: FolderListing, folder: Path, read: Callable[[str], bytes], *, replaces: bool = False) -> None:
    """`read` gives a chunk. `replaces`: files that are there already; otherwise they are refused, all before any write.

    Raises `Rejected` where the listing or a chunk is not what it should be, and `OSError` where the disk is full.
    """
    check_listing(listing)
    root = os.open(folder, FOLDER)
    try:
        if not replaces:
            _refuse_existing(root, listing)
        by_kind = {kind: [one for one in listing.entries if one.kind is kind] for kind in EntryKind}
        for entry in by_kind[EntryKind.FOLDER]:
            os.close(_open_folder(root, entry.path.split("/")))
        for entry in by_kind[EntryKind.FILE]:
            _write_file(root, entry, read)
        for entry in by_kind[EntryKind.LINK]:
            _write_link(root, entry)
    finally:
        os.close(root)


def _refuse_existing(root: int, listing: FolderListing) -> None:
    for entry in listing.entries:
        if entry.kind is not EntryKind.FOLDER and _exists(root, entry.path):
            raise Rejected(f"{shown(entry.path)} exists already; name another folder, or replace it with --force")


def _exists(root: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return True


def _open_folder(root: int, names: list[str]) -> int:
    """Made where it is not there; through no link."""
    here = os.dup(root)
    for name in names:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o777, dir_fd=here)
        try:
            inner = os.open(name, FOLDER, dir_fd=here)
        except NotADirectoryError as error:
            raise Rejected(
                f"{shown('/'.join(names))} is no folder here, or a link to one; it is not followed"
            ) from error
        finally:
            os.close(here)
        here = inner
    return here


def _beside() -> str:
    return f".swell-{secrets.token_hex(8)}"


def _write_file(root: int, entry: FolderEntry, read: Callable[[str], bytes]) -> None:
    *above, name = entry.path.split("/")
    folder = _open_folder(root, above)
    beside = _beside()
    try:
        descriptor = os.open(beside, NEW, 0o777 if entry.is_executable else 0o666, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as file:
            for digest in entry.chunks:
                file.write(_checked(read(digest), digest, entry))
            if file.tell() != entry.size:
                raise Rejected(f"{shown(entry.path)} has {file.tell()} bytes; its list says {entry.size}")
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    finally:
        os.close(folder)


def _checked(data: bytes, digest: str, entry: FolderEntry) -> bytes:
    if digest_of(data) != digest:
        raise Rejected(f"a part of {shown(entry.path)} is not what its SHA-256 says; it was not written")
    return data


def _write_link(root: int, entry: FolderEntry) -> None:
    *above, name = entry.path.split("/")
    folder = _open_folder(root, above)
    beside = _beside()
    try:
        os.symlink(entry.target, beside, dir_fd=folder)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
