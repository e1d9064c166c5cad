"""How are inputs fetched from addresses that users name, without one slow address stopping the other jobs?

Each download has a place, of which the jobs of one user never have all. A download that nobody wants any more, or of
which nothing was heard for long, loses its place at once, and ends with the next piece that comes.
"""

from __future__ import annotations

import hashlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from swell.files.listing import CHUNK_BYTES, FOLDER_BYTES_MAX
from swell.model.job import AttemptId
from swell.model.job_files import UrlInput

SILENCE_S = 60.0  # of an address
RATE_S, RATE_BYTES_MIN = 60.0, 64 * 1024  # in so many seconds so many bytes, or it is too slow
PLACES = 16
SHARE = 12  # of one user


class FileRefusal(Exception):
    """The server or an address does not take or give it, and never will."""


class NoPlace(Exception):
    """Others are being fetched; ask again."""


@dataclass(slots=True)
class _Place:
    """Of one download."""

    attempt: AttemptId
    user: str
    heard_at: float  #: when a piece came; monotonic


class DownloadPlaces:
    """Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._taken: list[_Place] = []

    @contextmanager
    def take(self, attempt: AttemptId, user: str) -> Iterator[Callable[[], None]]:
        """Call what it gives with every piece. Raises `NoPlace`."""
        place = _Place(attempt, user, time.monotonic())
        with self._condition:
            self._keep(lambda one: place.heard_at - one.heard_at <= 2 * SILENCE_S)
            if len(self._taken) >= PLACES or sum(one.user == user for one in self._taken) >= SHARE:
                raise NoPlace
            self._taken.append(place)

        def beat() -> None:
            place.heard_at = time.monotonic()

        try:
            yield beat
        finally:
            with self._condition:
                self._keep(lambda one: one is not place)

    def free(self, attempt: AttemptId) -> None:
        """Its downloads have no place any more, wherever they are."""
        with self._condition:
            self._keep(lambda one: one.attempt != attempt)

    def wait(self, seconds: float) -> None:
        """Until a place may be free."""
        with self._condition:
            self._condition.wait(seconds)

    def _keep(self, is_kept: Callable[[_Place], bool]) -> None:
        self._taken = [one for one in self._taken if is_kept(one)]
        self._condition.notify_all()


class _OnlyWeb(urllib.request.HTTPRedirectHandler):
    """An address may lead on to another one of http and https, and to nothing else."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        if not newurl.startswith(("http://", "https://")):
            raise FileRefusal(f"{req.full_url} leads to {newurl[:200]}, which is not http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(one: UrlInput, file: BinaryIO, beat: Callable[[], None]) -> None:
    """`beat` is called with every piece. Raises `FileRefusal` for what will not be otherwise the next time."""
    opener = urllib.request.build_opener(_OnlyWeb)
    digest, size = hashlib.sha256(), 0
    try:
        with opener.open(one.url, timeout=SILENCE_S) as answer:
            beat()
            since, before = time.monotonic(), 0
            while part := answer.read1(CHUNK_BYTES):
                size += len(part)
                if size > FOLDER_BYTES_MAX:
                    raise FileRefusal(f"the input {one.url} has more than {FOLDER_BYTES_MAX // 1000**3} GB")
                digest.update(part)
                file.write(part)
                beat()
                if time.monotonic() - since >= RATE_S:
                    _refuse_slow(one, size - before)
                    since, before = time.monotonic(), size
            if answer.length:
                raise ConnectionError(f"the input {one.url} ended {answer.length} bytes early")
    except urllib.error.HTTPError as error:
        if 400 <= error.code < 500 and error.code not in (408, 425, 429):
            raise FileRefusal(f"the input {one.url} cannot be fetched: {error.code} {error.reason}") from error
        raise
    except urllib.error.URLError as error:
        raise ConnectionError(f"the input {one.url} cannot be fetched: {error.reason}") from error
    if one.sha256 and digest.hexdigest() != one.sha256:
        raise FileRefusal(f"the input {one.url} has the SHA-256 {digest.hexdigest()}, and the job names {one.sha256}")


def _refuse_slow(one: UrlInput, size: int) -> None:
    if size < RATE_BYTES_MIN:
        raise ConnectionError(
            f"the input {one.url} comes too slowly: {size} bytes in {RATE_S:.0f} s; {RATE_BYTES_MIN} are needed"
        )
