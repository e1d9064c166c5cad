"""How does a folder of this machine come to the server, and what jobs wrote come back?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.client.connection import ServerConnection, path
from swell.client.job import job_path
from swell.errors import Rejected
from swell.files.listing import CHUNK_BYTES, FolderListing, cut, digest_of, parse_listing
from swell.files.outputs import check_outputs
from swell.files.pack import find_files, read_chunks, read_listing, with_input
from swell.files.unpack import unpack

ASKED_AT_ONCE = 5000  # digests
SENT_BYTES = 768 * 1024  # in one request, of which a server takes a mebibyte
SENT_AT_ONCE = 200  # chunks
READ_AT_ONCE = 8  # chunks
CHUNKS_KEPT = 64  # that were read ahead

Progress = Callable[[str, int, int], None]  #: what is done, bytes done, bytes in all


def _quiet(_: str, __: int, ___: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True)
class SentFolder:
    """A folder that the server has."""

    id: str
    files: int
    size: int
    sent: int  #: bytes that it did not have before


@dataclass(frozen=True, slots=True)
class LocalInput:
    """A file or folder of this machine, and where it will be in the job's folder."""

    source: Path
    to: str


def send_folder(
    connection: ServerConnection, folder: Path, inputs: Sequence[LocalInput] = (), progress: Progress = _quiet
) -> SentFolder:
    """What the server does not have is sent. Refused before anything is read where it is too much."""
    found = find_files(folder)
    for one in inputs:
        found = with_input(found, one.source, one.to)
    done = 0

    def reading(size: int) -> None:
        nonlocal done
        done += size
        progress("reading", done, found.size)

    listing = read_listing(found, reading)
    sizes = listing.chunks()
    missing = set(_missing(connection, list(sizes)))
    total, sent = sum(sizes[digest] for digest in missing), 0
    for parts in _batches(read_chunks(found, listing, missing)):
        _send(connection, parts)
        sent += sum(map(len, parts))
        progress("sending", sent, total)
    id_ = _commit(connection, listing)
    return SentFolder(id_, listing.files, listing.size, sent)


def _commit(connection: ServerConnection, listing: FolderListing) -> str:
    parts = cut(listing.to_bytes())
    for batch in _batches(iter(parts)):
        _send(connection, batch)
    answer = connection.json("POST", path("files", "folders"), {"digests": [digest_of(part) for part in parts]})
    return str(answer["folder"])


def _missing(connection: ServerConnection, digests: list[str]) -> Iterator[str]:
    for start in range(0, len(digests), ASKED_AT_ONCE):
        asked = {"digests": digests[start : start + ASKED_AT_ONCE]}
        yield from connection.json("POST", path("files", "missing"), asked)["missing"]


def _batches(parts: Iterator[bytes]) -> Iterator[list[bytes]]:
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        if waiting and (size + len(part) > SENT_BYTES or len(waiting) >= SENT_AT_ONCE):
            yield waiting
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    if waiting:
        yield waiting


def _send(connection: ServerConnection, parts: list[bytes]) -> None:
    """Sent twice, it changes nothing, so a line that was cut is no reason to give up."""
    head = json.dumps([len(part) for part in parts]).encode()
    repeatable = {"Idempotency-Key": digest_of(head + parts[0])}
    connection.raw("POST", path("files", "chunks"), b"\n".join([head, b"".join(parts)]), headers=repeatable)


# -- what comes back -----------------------------------------------------------------------------------------


def list_outputs(connection: ServerConnection, ref: str | int, attempt: int | None = None) -> list[dict[str, Any]]:
    """Of one attempt; None: of the latest that has sent anything. In the order of machines."""
    found: list[dict[str, Any]] = connection.json("GET", job_path(ref, "outputs"))["outputs"]
    number = attempt if attempt is not None else max((one["attempt"] for one in found), default=0)
    return [one for one in found if one["attempt"] == number]


def fetch_outputs(
    connection: ServerConnection,
    outputs: Sequence[dict[str, Any]],
    into: Path,
    *,
    replaces: bool = False,
    progress: Progress = _quiet,
) -> int:
    """The number of files. Where several machines have sent any, each has a folder of its name."""
    into.mkdir(parents=True, exist_ok=True)
    files = 0
    for one in outputs:
        listing = _listing(connection, str(one["folder"]))
        check_outputs(listing, [str(pattern) for pattern in one["patterns"]])
        target = into if len(outputs) == 1 else into / _plain_name(str(one["node"]))
        target.mkdir(exist_ok=True)
        chunks = _ChunkReader(connection, listing, progress)
        unpack(listing, target, chunks.read, replaces=replaces)
        files += listing.files
    return files


def _listing(connection: ServerConnection, folder: str) -> FolderListing:
    data = connection.raw("GET", path("files", "folders", folder)).data
    if digest_of(data) != folder:
        raise Rejected(f"the server sent another list than that of folder {folder}")
    return parse_listing(data)


def _plain_name(node: str) -> str:
    """A server chose it."""
    if "/" in node or not node or node.startswith(".") or "\0" in node:
        raise Rejected(f"the server names a machine {node[:100]!r}, which cannot be a folder")
    return node


class _ChunkReader:
    """Reads ahead, in the order in which files are written."""

    def __init__(self, connection: ServerConnection, listing: FolderListing, progress: Progress) -> None:
        self._connection = connection
        self._order = list(listing.chunks())
        self._places = {digest: number for number, digest in enumerate(self._order)}
        self._kept: dict[str, bytes] = {}
        self._progress, self._done, self._size = progress, 0, listing.size

    def read(self, digest: str) -> bytes:
        if digest not in self._kept:
            first = self._places[digest]
            self._fetch(self._order[first : first + READ_AT_ONCE])
        data = self._kept[digest]
        self._done += len(data)
        self._progress("fetching", self._done, self._size)
        return data

    def _fetch(self, digests: list[str]) -> None:
        answer = self._connection.raw(
            "POST",
            path("files", "read"),
            json.dumps({"digests": digests}).encode(),
            headers={"Idempotency-Key": digests[0]},
        )
        line, _, data = answer.data.partition(b"\n")
        lengths = json.loads(line)
        if len(lengths) != len(digests) or any(not 0 < length <= CHUNK_BYTES for length in lengths):
            raise Rejected("the server sent other chunks than those that were asked for")
        while len(self._kept) > CHUNKS_KEPT:
            del self._kept[next(iter(self._kept))]
        at = 0
        for digest, length in zip(digests, lengths, strict=True):
            self._kept[digest] = data[at : at + length]
            at += length
