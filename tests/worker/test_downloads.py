"""A slow address stops neither the other jobs of a machine nor the end of its own."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from engines.test_workers import launch
from swell.files.shared_cache import SharedCache, default_bytes_max
from swell.model.job import AttemptId
from swell.model.job_files import JobFiles, UrlInput
from swell.model.launch import Launch
from swell.worker import downloads
from swell.worker.downloads import PLACES, SHARE, DownloadPlaces, NoPlace, download
from swell.worker.job_files import JobFolders
from worker.test_job_files import Bell, Unreachable


class Web:
    """`/fast` answers at once; any other path sends a byte every 20 ms until nobody reads."""

    def __init__(self) -> None:
        self.hung_up = threading.Semaphore(0)
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = b"fast"
                self.send_response(200)
                self.send_header("Content-Length", str(len(data) if self.path == "/fast" else 10**9))
                self.end_headers()
                if self.path == "/fast":
                    self.wfile.write(data)
                    return
                try:
                    while not web.closing.wait(0.02):
                        self.wfile.write(b"x")
                except OSError:
                    web.hung_up.release()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.closing = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


def test_jobs_of_one_user_never_have_all_places() -> None:
    places = DownloadPlaces()
    with ExitStack() as stack:
        for number in range(SHARE):
            stack.enter_context(places.take(AttemptId(number + 1, 1), "ann"))
        with pytest.raises(NoPlace), places.take(AttemptId(100, 1), "ann"):
            pass
        for number in range(PLACES - SHARE):
            stack.enter_context(places.take(AttemptId(200 + number, 1), f"bob{number}"))
        with pytest.raises(NoPlace), places.take(AttemptId(300, 1), "eve"):
            pass
        places.free(AttemptId(1, 1))
        with places.take(AttemptId(300, 1), "eve"):
            pass


def test_a_download_of_which_nothing_is_heard_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SILENCE_S", 0.0)
    places = DownloadPlaces()
    with ExitStack() as stack:
        for number in range(3 * PLACES):
            stack.enter_context(places.take(AttemptId(number + 1, 1), "ann"))


def test_an_address_that_is_too_slow_is_given_up_with_words(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "RATE_S", 0.2)
    with pytest.raises(ConnectionError, match=r"comes too slowly: [0-9]+ bytes"):
        download(UrlInput(f"{web.url}/slow", "a"), io.BytesIO(), lambda: None)
    assert web.hung_up.acquire(timeout=30)


def test_what_ends_early_is_no_file(web: Web) -> None:
    timer = threading.Timer(0.2, web.closing.set)
    timer.start()
    with pytest.raises(ConnectionError, match="bytes early"):
        download(UrlInput(f"{web.url}/slow", "a"), io.BytesIO(), lambda: None)


@pytest.mark.parametrize("end", ["cancelled", "forgotten"])
def test_slow_addresses_stop_no_other_job_and_end_with_their_own(tmp_path: Path, web: Web, end: str) -> None:
    """Four of them stopped every job with files on that machine, also after they were cancelled."""
    bell = Bell()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), Unreachable, None, wake=bell.rung.set)

    def job(number: int, path: str, user: str) -> Callable[[], str]:
        files = JobFiles(inputs=(UrlInput(f"{web.url}{path}", "a"),))
        wanted = replace(launch(number), files=files, user=user)
        (tmp_path / str(wanted.attempt)).mkdir()
        jobs.append(wanted)

        def state() -> str:
            work = folders.fetched(wanted)
            return "done" if work.is_done else work.trouble

        return state

    jobs: list[Launch] = []
    slow = [job(number + 1, f"/slow{number}", "ann") for number in range(SHARE + 1)]
    said = "it waits for a place to fetch its files on a: other downloads have all"
    bell.until(lambda: [state() for state in slow].count(said) == 1)
    other = job(100, "/fast", "bob")
    bell.until(lambda: other() == "done")
    began = time.monotonic()
    for wanted in jobs[: SHARE + 1]:
        if end == "cancelled":
            assert folders.sent(wanted.stopped(grace_s=30.0, generation=2)).is_done
        else:
            folders.forget(wanted.attempt)
    for _ in range(SHARE):
        assert web.hung_up.acquire(timeout=30)
    assert time.monotonic() - began < 10
    own = job(101, "/fast", "ann")
    bell.until(lambda: own() == "done")


def test_outputs_are_sent_while_every_place_for_downloads_is_taken(tmp_path: Path, web: Web) -> None:
    bell = Bell()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), Unreachable, None, wake=bell.rung.set)
    for number in range(SHARE + 1):
        files = JobFiles(inputs=(UrlInput(f"{web.url}/slow{number}", "a"),))
        slow = replace(launch(number + 1), files=files)
        (tmp_path / str(slow.attempt)).mkdir()
        folders.fetched(slow)
    ended = replace(launch(100), files=JobFiles(outputs=("*",)))
    folders.home(ended.attempt).mkdir(parents=True)
    (folders.home(ended.attempt) / "a").write_text("1")
    bell.until(lambda: "Name or service not known" in folders.sent(ended).trouble)  # it was its turn
    for number in range(SHARE + 1):
        folders.forget(AttemptId(number + 1, 1))


@pytest.mark.parametrize(("sha256", "left"), [("", 0), (hashlib.sha256(b"fast").hexdigest(), 1)])
def test_an_input_that_no_other_job_can_use_leaves_the_cache_with_its_attempt(
    tmp_path: Path, web: Web, sha256: str, left: int
) -> None:
    bell = Bell()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), Unreachable, None, wake=bell.rung.set)
    wanted = replace(launch(1), files=JobFiles(inputs=(UrlInput(f"{web.url}/fast", "a", sha256),)))
    (tmp_path / str(wanted.attempt)).mkdir()
    bell.until(lambda: folders.fetched(wanted).is_done)
    entries = tmp_path / "cache/entries"
    assert len(list(entries.iterdir())) == 1
    folders.forget(wanted.attempt)
    end = time.monotonic() + 30
    while folders.home(wanted.attempt).exists():
        assert time.monotonic() < end
    assert len(list(entries.iterdir())) == left


@pytest.mark.parametrize(("disk_gb", "gb"), [(20, 10), (200, 20), (5000, 53.687091200)])
def test_a_cache_that_nobody_bounds_has_a_tenth_of_the_disk_or_50_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_gb: int, gb: float
) -> None:
    disk = os.statvfs_result((1000, 1000, disk_gb * 10**6, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    assert default_bytes_max(tmp_path / "cache") == gb * 10**9
