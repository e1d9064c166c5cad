"""Which files does a job find on this machine, and what of them goes back?

A job with files of its own runs in `files` below its attempt's folder. That folder is put together beside it, from the
cache or the server, and gets its name when it is complete: so after a crash it is there or not. When the attempt has
ended here, what its job names as outputs is sent, and only then the server hears that it is over.

Each attempt has a thread, so one that waits for a slow address keeps nobody's tasks from starting.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from swell.errors import Rejected, SwellError
from swell.files.failures import in_words, is_lasting
from swell.files.listing import (
    CHUNK_BYTES,
    FolderListing,
    cut,
    digest_of,
    parse_listing,
    shown,
)
from swell.files.outputs import OutputSelection, check_outputs
from swell.files.pack import find_files, read_chunks, read_listing
from swell.files.shared_cache import Beat, SharedCache
from swell.files.unpack import unpack
from swell.machine.removal import remove_tree
from swell.model.job import AttemptId
from swell.model.job_files import UrlInput
from swell.model.launch import Launch
from swell.worker.downloads import DownloadPlaces, FileRefusal, NoPlace, download

FOLDER = "files"  # below the attempt's folder
STOPPING_S = 60.0  # beyond its grace, for the outputs of a job that is to end
PLACE_S = 1.0  # between two looks for a place
RETRY_S = 5.0  # after a network or a disk that failed
AT_ONCE = 4  # attempts whose folders are fetched at the same time, and as many whose outputs are sent
READ_AT_ONCE = 16  # chunks in one request
SENT_BYTES = 4 * 1024 * 1024  # in one request

log = logging.getLogger(__name__)


class FileLine(Protocol):
    """A connection to the server."""

    def get_bytes(self, path: str) -> bytes: ...

    def post_bytes(self, path: str, body: bytes) -> bytes: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Work:
    """On the files of one attempt."""

    trouble: str = ""  #: why it takes so long, in words; empty: nothing is wrong
    problem: str = ""  #: why it will never be done; empty: nobody knows a reason
    is_done: bool = False
    own: list[str] = field(default_factory=list)  #: keys of what the cache has for its job alone
    ends_at: float | None = None  #: when it is given up; monotonic; None: nobody ends it

    @property
    def is_over(self) -> bool:
        return self.is_done or bool(self.problem)

    def check(self) -> None:
        """Called again and again by who does it. Raises `FileRefusal` where nobody waits for it any more."""
        if self.problem:
            raise FileRefusal(self.problem)


FileWork = Callable[[Launch, FileLine, _Work], None]


class JobFolders:
    """Thread-safe: the agent asks, threads work."""

    def __init__(
        self,
        tasks: Path,
        cache: Callable[[], SharedCache],
        connect: Callable[[], FileLine],
        fetch_retries_max: int | None,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._open_cache = cache
        self._cache: SharedCache | None = None  #: None: nothing was fetched yet
        self._connect = connect
        self._fetch_retries_max = fetch_retries_max  #: None: until it works, or cannot
        self._wake = wake  #: the agent should look
        self._mutex = threading.Lock()
        self._folder_places = threading.Semaphore(AT_ONCE)
        self._output_places = threading.Semaphore(AT_ONCE)
        self._downloads = DownloadPlaces()
        self._fetching: dict[AttemptId, _Work] = {}
        self._sending: dict[AttemptId, _Work] = {}
        self._forgotten: set[AttemptId] = set()

    def home(self, attempt: AttemptId) -> Path:
        return self._tasks / str(attempt) / FOLDER

    def fetched(self, launch: Launch) -> _Work:
        """How far its folder is; asked for the first time, it is begun."""
        with self._mutex:
            work = self._fetching.get(launch.attempt)
            if work is None:
                work = self._fetching[launch.attempt] = _Work(is_done=self.home(launch.attempt).is_dir())
                if not work.is_done:
                    self._start(launch, work, self._fetch, self._fetch_retries_max)
            return work

    def sent(self, launch: Launch) -> _Work:
        """Whether what it wrote is on the server; asked for the first time, it is begun."""
        with self._mutex:
            self._end_fetching(launch.attempt)
            work = self._sending.get(launch.attempt)
            if work is None:
                assert launch.files is not None
                has_any = bool(launch.files.outputs) and self.home(launch.attempt).is_dir()
                work = self._sending[launch.attempt] = _Work(is_done=not has_any)
                if has_any:
                    self._start(launch, work, self._send, None)
            if launch.is_stopping and not work.is_over:
                self._bound(work, launch.grace_s + STOPPING_S)
            return work

    def _bound(self, work: _Work, within_s: float) -> None:
        """A job that is to end does not keep its resources until a server or a disk does what it should."""
        now = time.monotonic()
        if work.ends_at is None:
            work.ends_at = now + within_s
            timer = threading.Timer(within_s, self._wake)
            timer.daemon = True
            timer.start()
        elif now >= work.ends_at:
            work.problem = f"the job was to end, and they were not sent within {within_s:.0f} s; {work.trouble}"
            work.problem = work.problem.removesuffix("; ")

    def forget(self, attempt: AttemptId) -> None:
        """Nobody wants it any more: its folder goes."""
        with self._mutex:
            self._end_fetching(attempt)
            known = self._fetching.pop(attempt, None)
            self._sending.pop(attempt, None)
            self._forgotten.add(attempt)
        if known is not None:
            threading.Thread(target=self._remove, args=(attempt, known), name=f"erase-{attempt}", daemon=True).start()

    def _end_fetching(self, attempt: AttemptId) -> None:
        """Its tasks have ended, or never begin."""
        work = self._fetching.get(attempt)
        if work is not None and not work.is_over:
            work.problem = "the job has ended"
            self._downloads.free(attempt)

    def _remove(self, attempt: AttemptId, work: _Work) -> None:
        try:
            for key in work.own:
                self.cache.drop(key)
            while not remove_tree(self._tasks / str(attempt), FOLDER):
                pass
        except OSError as error:
            log.warning("%s could not be removed: %s", self.home(attempt), error)

    # -- the threads -------------------------------------------------------------------------------------------

    def _start(self, launch: Launch, work: _Work, do: FileWork, retries_max: int | None) -> None:
        name = f"files-{launch.attempt}"
        threading.Thread(target=self._work, args=(launch, work, do, retries_max), name=name, daemon=True).start()

    def _work(self, launch: Launch, work: _Work, do: FileWork, retries_max: int | None) -> None:
        failures = 0
        while launch.attempt not in self._forgotten and not work.is_over:
            line = self._connect()
            try:
                do(launch, line, work)
                work.is_done, work.trouble = True, ""
                break
            except (FileRefusal, SwellError) as error:
                work.problem = str(error)
                break
            except Exception as error:  # noqa: BLE001  a network or a disk; it is tried again unless it cannot help
                failures += 1
                if is_lasting(error):
                    work.problem = in_words(error)
                    break
                if retries_max is not None and failures > retries_max:
                    work.problem = f"{in_words(error)} (tried {failures} times)"
                    break
                said = in_words(error)
                work.trouble = f"its files on {launch.node} are fetched or sent again after a failure: {said}"
                log.warning("attempt %s: %s", launch.attempt, work.trouble)
                self._wake()
                time.sleep(RETRY_S)
            finally:
                line.close()
        self._wake()

    def _fetch(self, launch: Launch, line: FileLine, work: _Work) -> None:
        files = launch.files
        assert files is not None
        beside = self.home(launch.attempt).with_name(f".{FOLDER}")
        while not remove_tree(beside.parent, beside.name):  # of an earlier life of ours
            pass
        beside.mkdir(mode=0o700, parents=True)
        if files.folder:
            with self._folder_places:
                self._fetch_folder(files.folder, beside, line, work)
        for one in files.inputs:
            self._fetch_input(launch, one, beside, work)
        work.check()
        beside.rename(self.home(launch.attempt))

    @property
    def cache(self) -> SharedCache:
        with self._mutex:
            self._cache = self._cache or self._open_cache()
            return self._cache

    def _fetch_folder(self, folder: str, into: Path, line: FileLine, work: _Work) -> None:
        work.check()
        data = line.get_bytes(f"/api/v1/workers/files/folders/{folder}")
        if digest_of(data) != folder:
            raise Rejected(f"the server sent another list than that of folder {folder}")
        listing = parse_listing(data)
        offsets = dict(_offsets(listing))

        def fetch(file: BinaryIO, beat: Beat) -> None:
            _fetch_chunks(listing, line, file, _both(work.check, beat))

        with self.cache.use(f"folder-{folder}", fetch) as pack:

            def read(digest: str) -> bytes:
                start, size = offsets[digest]
                pack.seek(start)
                return pack.read(size)

            unpack(listing, into, read)

    def _fetch_input(self, launch: Launch, one: UrlInput, into: Path, work: _Work) -> None:
        """What has no digest may have changed since another job fetched it."""
        known = one.sha256 or str(launch.attempt.job)
        key = hashlib.sha256(f"{one.url}\n{known}".encode()).hexdigest()
        target = into / one.to
        _make_place(target, one, into)
        if target.is_symlink():
            target.unlink()

        def fetch(file: BinaryIO, beat: Beat) -> None:
            with self._downloads.take(launch.attempt, launch.user or "") as heard:
                work.trouble = ""
                download(one, file, _both(work.check, heard, beat))

        if not one.sha256:
            work.own.append(f"url-{key}")
        while True:
            work.check()
            try:
                with self.cache.use(f"url-{key}", fetch) as found, target.open("wb") as to:
                    shutil.copyfileobj(found, to, CHUNK_BYTES)
                return
            except NoPlace:
                work.trouble = f"it waits for a place to fetch its files on {launch.node}: other downloads have all"
                self._wake()
                self._downloads.wait(PLACE_S)

    def _send(self, launch: Launch, line: FileLine, work: _Work) -> None:
        with self._output_places:
            self._send_outputs(launch, line, work)

    def _send_outputs(self, launch: Launch, line: FileLine, work: _Work) -> None:
        assert launch.files is not None
        selection = OutputSelection(launch.files.outputs)

        def wanted(path: str) -> bool:
            work.check()
            return selection.has(path)

        found = find_files(self.home(launch.attempt), wanted=wanted)
        listing = read_listing(found, lambda _: work.check())
        check_outputs(listing, launch.files.outputs)
        missing = set(_missing(line, list(listing.chunks())))
        _send_chunks(line, _while_wanted(read_chunks(found, listing, missing), work))
        parts = cut(listing.to_bytes())
        _send_chunks(line, _while_wanted(iter(parts), work))
        work.check()
        told = {"attempt": str(launch.attempt), "node": launch.node, "chunks": [digest_of(part) for part in parts]}
        line.post_bytes("/api/v1/workers/outputs", json.dumps(told).encode())


def _make_place(target: Path, one: UrlInput, into: Path) -> None:
    """Raises `Rejected` where what was uploaded is in its way: that is so the next time, too."""
    if target.is_dir() and not target.is_symlink():
        raise Rejected(f"the input {shown(one.to)} is a folder of what was uploaded; name another path for {one.url}")
    try:
        is_inside = target.parent.resolve().is_relative_to(into.resolve())
        if is_inside:
            target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, RuntimeError) as error:  # a file, or links in a circle
        raise Rejected(f"the input {shown(one.to)} would lie below what is no folder; name another path") from error
    if not is_inside:
        raise Rejected(f"the input {one.to} would lie outside the job's folder: a link of the folder leads out")


def _both(*calls: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        for one in calls:
            one()

    return call


def _while_wanted(parts: Iterator[bytes], work: _Work) -> Iterator[bytes]:
    for part in parts:
        work.check()
        yield part


def _offsets(listing: FolderListing) -> Iterator[tuple[str, tuple[int, int]]]:
    start = 0
    for digest, size in listing.chunks().items():
        yield digest, (start, size)
        start += size


def _fetch_chunks(listing: FolderListing, line: FileLine, file: BinaryIO, beat: Beat) -> None:
    wanted = list(listing.chunks().items())
    for start in range(0, len(wanted), READ_AT_ONCE):
        asked = wanted[start : start + READ_AT_ONCE]
        body = json.dumps({"digests": [digest for digest, _ in asked]}).encode()
        _, _, data = line.post_bytes("/api/v1/workers/files/read", body).partition(b"\n")
        at = 0
        for digest, size in asked:
            part = data[at : at + size]
            if digest_of(part) != digest:
                raise OSError(f"the server sent another chunk than {digest}")
            file.write(part)
            at += size
        beat()


def _missing(line: FileLine, digests: list[str]) -> Iterator[str]:
    for start in range(0, len(digests), 5000):
        body = json.dumps({"digests": digests[start : start + 5000]}).encode()
        yield from json.loads(line.post_bytes("/api/v1/workers/files/missing", body))["missing"]


def _send_chunks(line: FileLine, parts: Iterator[bytes]) -> None:
    waiting: list[bytes] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= SENT_BYTES or len(waiting) >= READ_AT_ONCE:
            _post_chunks(line, waiting)
            waiting = []
    if waiting:
        _post_chunks(line, waiting)


def _post_chunks(line: FileLine, parts: list[bytes]) -> None:
    head = json.dumps([len(part) for part in parts]).encode()
    line.post_bytes("/api/v1/workers/files/chunks", b"\n".join([head, b"".join(parts)]))
