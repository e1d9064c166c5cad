"""Which bytes are a folder?

Looked at first, read after: what is too large is refused before any of it is read. A file that changes in between is
refused, too, because what was sent would be neither its old nor its new text.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from swell.errors import Rejected
from swell.files.failures import in_words, is_lasting
from swell.files.ignore import IGNORE_FILES, IgnoreRules
from swell.files.listing import (
    CHUNK_BYTES,
    EntryKind,
    FolderEntry,
    FolderListing,
    check_listing,
    digest_of,
    link_problem,
    refuse_deep,
    refuse_large,
    refuse_many,
    shown,
)

IGNORE_BYTES_MAX = 1024 * 1024  # of one file with rules
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What is to be sent, not read yet."""

    root: Path
    entries: tuple[FolderEntry, ...]  #: files without their chunks
    elsewhere: Mapping[str, Path] = field(default_factory=dict)  #: by path: those that do not lie below `root`

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def source(self, entry: FolderEntry) -> Path:
        return self.elsewhere.get(entry.path) or self.root / entry.path


def with_input(found: FoundFiles, source: Path, to: str) -> FoundFiles:
    """And a file or folder from elsewhere at the path `to`, instead of what may be there."""
    if source.is_dir():
        inner = find_files(source)
        added = [replace(entry, path=f"{to}/{entry.path}") for entry in inner.entries]
        sources = {f"{to}/{entry.path}": inner.source(entry) for entry in inner.entries}
        added.append(FolderEntry(to, EntryKind.FOLDER))
    else:
        try:
            about = source.stat()
        except OSError as error:
            raise Rejected(f"the input {shown(str(source))} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(about.st_mode):
            raise Rejected(f"the input {shown(str(source))} is neither a file nor a folder")
        added = [FolderEntry(to, EntryKind.FILE, bool(about.st_mode & stat.S_IXUSR), about.st_size)]
        sources = {to: source.resolve()}
    below = {entry.path: entry for entry in found.entries}
    above = {to[:at]: FolderEntry(to[:at], EntryKind.FOLDER) for at in _slashes(to)}
    merged = {**above, **below, **{entry.path: entry for entry in added}}
    refuse_many(len(merged))
    entries = tuple(merged[path] for path in sorted(merged))
    refuse_large(sum(entry.size for entry in entries))
    return FoundFiles(found.root, entries, {**found.elsewhere, **sources})


def find_files(root: Path, *, wanted: Callable[[str], bool] | None = None) -> FoundFiles:
    """Everything below that no rule leaves out; with `wanted`, files and links that it wants and nothing else.

    Raises `Rejected` where there is too much, or something that cannot be sent.
    """
    if not root.is_dir():
        raise Rejected(f"there is no folder {root}")
    entries: list[FolderEntry] = []
    size = 0
    try:
        for entry in _walk(root, wanted):
            entries.append(entry)
            size += entry.size
            refuse_many(len(entries))
            refuse_large(size)
    except OSError as error:
        if is_lasting(error):
            raise Rejected(f"the folder cannot be read: {in_words(error)}") from error
        raise
    return FoundFiles(root, tuple(sorted(_with_content(entries, wanted), key=lambda entry: entry.path)))


def _with_content(entries: list[FolderEntry], wanted: Callable[[str], bool] | None) -> list[FolderEntry]:
    """Of what somebody chose, only the folders above it."""
    if wanted is None:
        return entries
    above = {entry.path[:at] for entry in entries if entry.kind is not EntryKind.FOLDER for at in _slashes(entry.path)}
    return [entry for entry in entries if entry.kind is not EntryKind.FOLDER or entry.path in above]


def _slashes(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "/"]


def _walk(root: Path, wanted: Callable[[str], bool] | None) -> Iterator[FolderEntry]:
    """Not recursive. Of a folder no more is kept in memory than is yielded: it may have millions of entries."""
    waiting = [("", IgnoreRules(), 1)]
    while waiting:
        here, above, depth = waiting.pop()
        refuse_deep(depth, here)
        inner = above.below(here, _rule_texts(root / here)) if wanted is None else above
        try:
            found = os.scandir(root / here)
        except PermissionError as error:
            raise Rejected(f"the folder {shown(here or '.')} cannot be read: {error.strerror}") from error
        with found:
            for one in found:
                path = f"{here}/{one.name}" if here else one.name
                is_folder = one.is_dir(follow_symlinks=False)
                is_left = not is_folder and not wanted(path) if wanted else inner.leaves_out(path, is_folder=is_folder)
                if is_left:
                    continue
                yield _entry(one, path)
                if is_folder:
                    waiting.append((path, inner, depth + 1))


def _rule_texts(folder: Path) -> Iterator[str]:
    for name in IGNORE_FILES:
        try:
            descriptor = os.open(folder / name, READ)
        except OSError:  # there is none
            continue
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield file.read(IGNORE_BYTES_MAX).decode(errors="replace")


def _entry(one: os.DirEntry[str], path: str) -> FolderEntry:
    about = one.stat(follow_symlinks=False)
    if stat.S_ISDIR(about.st_mode):
        return FolderEntry(path, EntryKind.FOLDER)
    if stat.S_ISREG(about.st_mode):
        return FolderEntry(path, EntryKind.FILE, bool(about.st_mode & stat.S_IXUSR), about.st_size)
    if not stat.S_ISLNK(about.st_mode):
        raise Rejected(
            f"{shown(path)} is a device, a pipe or a socket, which cannot be sent; remove it, or name it in "
            ".swellignore"
        )
    target = str(Path(one.path).readlink())
    if why := link_problem(path, target):
        raise Rejected(f"the link {shown(path)} -> {shown(target)} {why}; remove it, or name it in .swellignore")
    return FolderEntry(path, EntryKind.LINK, target=target)


def read_listing(found: FoundFiles, progress: Callable[[int], None] = lambda _: None) -> FolderListing:
    """`progress` is told of bytes that were read."""
    entries = []
    for entry in found.entries:
        if entry.kind is EntryKind.FILE:
            parts = [digest_of(part) for part in read_parts(found.source(entry), entry, progress)]
            entries.append(replace(entry, chunks=tuple(parts)))
        else:
            entries.append(entry)
    listing = FolderListing(tuple(entries))
    check_listing(listing)
    return listing


def read_parts(path: Path, entry: FolderEntry, progress: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Of a file, as many bytes as it had when it was looked at."""
    try:
        descriptor = os.open(path, READ)
    except OSError as error:
        raise Rejected(f"{shown(entry.path)} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        left = entry.size
        while left:
            part = file.read(min(CHUNK_BYTES, left))
            if len(part) < min(CHUNK_BYTES, left):
                raise changed(entry)
            left -= len(part)
            progress(len(part))
            yield part


def changed(entry: FolderEntry) -> Rejected:
    return Rejected(f"{shown(entry.path)} changed while it was read; try again, or name it in .swellignore")


def read_chunks(found: FoundFiles, listing: FolderListing, wanted: set[str]) -> Iterator[bytes]:
    """Those of the chunks that are wanted, each once."""
    left = set(wanted)
    for entry in listing.entries:
        if not left.isdisjoint(entry.chunks):
            for digest, part in zip(entry.chunks, read_parts(found.source(entry), entry), strict=True):
                if digest in left:
                    if digest_of(part) != digest:
                        raise changed(entry)
                    left.discard(digest)
                    yield part
