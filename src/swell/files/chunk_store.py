"""Where does a server keep the files of jobs, and how much is that?

Chunks by their digest, lists of folders by theirs, and for each job the folders it was submitted with and has sent
back: `used/<job>-<folder>` and `outputs/<job>/<attempt>-<node>`. What no remembered job uses is removed a day after it
came; until then its job may still be on the way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swell.errors import NotFound, Rejected, TooMany
from swell.files.listing import CHUNK_BYTES, DIGEST, LISTING_BYTES_MAX, FolderListing, digest_of, parse_listing
from swell.model.job import AttemptId, JobId

SWEEP_S = 3600.0
JOBS_AT_ONCE = 500  # asked of the store
UNUSED_S = 86400.0  # between an upload and its job; a chunk that is asked for counts as new again

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """What one machine sent back of an attempt."""

    attempt: AttemptId
    node: str
    folder: str  #: id of its list
    files: int
    size: int


class ChunkStore:
    """Thread-safe."""

    def __init__(self, root: Path, bytes_max: Callable[[], int | None] = lambda: None) -> None:
        self._chunks, self._lists = root / "chunks", root / "folders"
        self._used, self._outputs = root / "used", root / "outputs"
        self._bytes_max = bytes_max  #: None: no limit
        self._mutex = threading.Lock()
        self._size: int | None = None  #: None: not counted yet
        self._closing = threading.Event()

    def start_sweeping(self, remembered: Callable[[Sequence[JobId]], Iterable[JobId]]) -> None:
        """Over and over, in a thread of its own."""

        def run() -> None:
            while not self._closing.wait(SWEEP_S):
                try:
                    self.sweep(remembered)
                except Exception:  # whatever lies there, it is looked at again
                    log.exception("files of jobs could not be looked through; they are looked at again")

        threading.Thread(target=run, name="file-sweeper", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    # -- chunks ------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of all chunks and lists."""
        with self._mutex:
            if self._size is None:
                kept = itertools.chain(self._chunks.glob("*/*"), self._lists.glob("*"))
                self._size = sum(_size_of(path) for path in kept if path.suffix == "")
            return self._size

    def missing(self, digests: Sequence[str]) -> list[str]:
        """Those that are not here. The others stay for a day from now on."""
        return [digest for digest in dict.fromkeys(digests) if not self._refresh(self._path(digest))]

    def put(self, data: bytes) -> str:
        """On disk when this returns. Raises `TooMany` where the limit is reached."""
        if not 0 < len(data) <= CHUNK_BYTES:
            raise Rejected(f"a part of a file has 1 to {CHUNK_BYTES} bytes, this one {len(data)}")
        digest = digest_of(data)
        path = self._path(digest)
        if self._refresh(path):
            return digest
        self._keep(path, data)
        return digest

    def _keep(self, path: Path, data: bytes) -> None:
        self._refuse_full(len(data))
        _write(path, data)
        with self._mutex:
            self._size = (self._size or 0) + len(data)

    def _refuse_full(self, more: int) -> None:
        size, most = self.size, self._bytes_max()
        if most is not None and size + more > most:
            raise TooMany(
                f"the files of your jobs take {size} bytes here, and at most {most} are kept; delete jobs that have "
                "ended (swell delete JOB)"
            )

    def get(self, digest: str) -> bytes:
        try:
            return self._path(digest).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no chunk {digest}") from None

    def _path(self, digest: str) -> Path:
        return self._chunks / _checked(digest)[:2] / digest

    def _refresh(self, path: Path) -> bool:
        """False: it is not here."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    # -- folders -----------------------------------------------------------------------------------------------

    def commit(
        self, parts: Sequence[str], check: Callable[[FolderListing], None] = lambda _: None
    ) -> tuple[str, FolderListing]:
        """The list of a folder, in chunks that are here, becomes a folder that jobs can name: its id.

        `check` may refuse it before it is kept. Raises `Rejected` where the list is not to be taken, or a chunk of it
        is not here.
        """
        if len(parts) > LISTING_BYTES_MAX // CHUNK_BYTES:
            raise Rejected(f"a list of files in {len(parts)} parts is too long")
        data = b"".join(self.get(digest) for digest in parts)
        listing = parse_listing(data)
        check(listing)
        missing = self.missing(list(listing.chunks()))
        if missing:
            raise Rejected(f"{len(missing)} parts of the folder were not sent; send it again")
        folder = digest_of(data)
        if not self.has_folder(folder):
            self._keep(self._lists / folder, data)
        return folder, listing

    def list_bytes(self, folder: str) -> bytes:
        try:
            return (self._lists / _checked(folder)).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"the server has no folder {folder}; send it again: swell run --upload") from None

    def listing(self, folder: str) -> FolderListing:
        return parse_listing(self.list_bytes(folder))

    def has_folder(self, folder: str) -> bool:
        return bool(DIGEST.fullmatch(folder)) and self._refresh(self._lists / folder)

    # -- of jobs -----------------------------------------------------------------------------------------------

    def note_uses(self, uses: Iterable[tuple[JobId, str]]) -> None:
        self._used.mkdir(mode=0o700, parents=True, exist_ok=True)
        for job, folder in uses:
            (self._used / f"{job}-{folder}").touch()

    def note_output(self, attempt: AttemptId, node: str, folder: str, listing: FolderListing) -> None:
        path = self._outputs / str(attempt.job) / f"{attempt.number}-{digest_of(node.encode())[:16]}"
        _write(path, json.dumps([node, folder, listing.files, listing.size]).encode())

    def outputs(self, job: JobId) -> list[Output]:
        """The latest attempt last."""
        found = []
        for path in (self._outputs / str(job)).glob("[0-9]*-*"):
            with contextlib.suppress(OSError, ValueError):
                node, folder, files, size = json.loads(path.read_bytes())
                found.append(Output(AttemptId(job, int(path.name.partition("-")[0])), node, folder, files, size))
        return sorted(found, key=lambda one: (one.attempt, one.node))

    # -- what nobody uses --------------------------------------------------------------------------------------

    def sweep(self, remembered: Callable[[Sequence[JobId]], Iterable[JobId]], *, unused_s: float = UNUSED_S) -> None:
        """Remove what only jobs used that are forgotten, and what none has used for so long."""
        before = time.time() - unused_s
        jobs = {_job_of(path) for path in self._used.glob("[0-9]*-*")}
        asked = sorted(jobs.union(self._jobs_with_outputs()))
        batches = [asked[start : start + JOBS_AT_ONCE] for start in range(0, len(asked), JOBS_AT_ONCE)]
        kept = {job for batch in batches for job in remembered(batch)}
        used = {path.name.partition("-")[2] for path in self._used.glob("[0-9]*-*") if _job_of(path) in kept}
        used |= {output.folder for job in self._jobs_with_outputs() if job in kept for output in self.outputs(job)}
        self._drop_forgotten(kept)
        chunks = {digest for folder in used for digest in self._chunks_of(folder)}
        for path in self._lists.glob("*"):
            if path.name not in used:
                if _is_older(path, before):
                    path.unlink(missing_ok=True)
                else:
                    chunks.update(self._chunks_of(path.name))
        for path in self._chunks.glob("*/*"):
            if path.name not in chunks and _is_older(path, before):
                path.unlink(missing_ok=True)
        with self._mutex:
            self._size = None

    def _jobs_with_outputs(self) -> list[JobId]:
        return [int(path.name) for path in self._outputs.glob("[0-9]*")]

    def _drop_forgotten(self, kept: set[JobId]) -> None:
        for path in self._used.glob("[0-9]*-*"):
            if _job_of(path) not in kept:
                path.unlink(missing_ok=True)
        for job in self._jobs_with_outputs():
            if job not in kept:
                for path in (self._outputs / str(job)).iterdir():
                    path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    (self._outputs / str(job)).rmdir()

    def _chunks_of(self, folder: str) -> Iterable[str]:
        try:
            return self.listing(folder).chunks()
        except (NotFound, Rejected) as problem:
            log.warning("the list of folder %s is not used: %s", folder, problem)
            return ()


def _checked(digest: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise Rejected(f"{digest[:100]!r} is no SHA-256")
    return digest


def _job_of(path: Path) -> JobId:
    return int(path.name.partition("-")[0])


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # removed meanwhile
        return 0


def _is_older(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        return False


def _write(path: Path, data: bytes) -> None:
    """Whole, or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
