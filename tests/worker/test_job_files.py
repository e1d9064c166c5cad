"""The files of a job come to a worker's machine, or the job says why they do not."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from engines.test_workers import launch
from swell.errors import Rejected
from swell.files.shared_cache import SharedCache
from swell.model.job_files import JobFiles, UrlInput
from swell.worker import job_files
from swell.worker.job_files import JobFolders


class Unreachable:
    """A server that no request reaches."""

    def __init__(self) -> None:
        self.asked = 0

    def get_bytes(self, _: str) -> NoReturn:
        self.asked += 1
        raise OSError("Name or service not known")

    def post_bytes(self, path: str, _: bytes) -> NoReturn:
        self.get_bytes(path)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("retries", [0, 3])
def test_files_that_cannot_be_fetched_fail_the_job_after_as_many_retries_as_the_worker_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A job whose input named a host that is not there held its GPUs for ever, and was starting."""
    monkeypatch.setattr(job_files, "RETRY_S", 0.0)
    line, is_over = Unreachable(), threading.Event()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), lambda: line, retries, wake=is_over.set)
    wanted = replace(launch(1), files=JobFiles(folder="f" * 64))
    (tmp_path / str(wanted.attempt)).mkdir()
    work = folders.fetched(wanted)
    while not work.problem:
        assert is_over.wait(30)
        is_over.clear()
    assert (work.problem, line.asked) == (f"Name or service not known (tried {retries + 1} times)", retries + 1)


class Bell:
    """What the worker's loop waits for."""

    def __init__(self) -> None:
        self.rung = threading.Event()

    def until(self, is_true: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not is_true():
            assert time.monotonic() < end
            self.rung.wait(1)
            self.rung.clear()


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM]
)
def test_outputs_that_will_not_be_otherwise_the_next_time_are_given_up_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A job with too long names was tried again every five seconds for ever, and held its resources."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "x" * 9000)

    monkeypatch.setattr(job_files, "find_files", fail)
    bell = Bell()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), Unreachable, None, wake=bell.rung.set)
    wanted = replace(launch(1), files=JobFiles(outputs=("*",)))
    folders.home(wanted.attempt).mkdir(parents=True)
    bell.until(lambda: bool(folders.sent(wanted).problem))
    problem = folders.sent(wanted).problem
    assert (problem.endswith(os.strerror(number)), len(problem) < 300) == (True, True)


def test_a_job_that_is_to_end_waits_for_its_outputs_for_its_grace_and_a_minute_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "STOPPING_S", 0.3)
    monkeypatch.setattr(job_files, "RETRY_S", 0.01)
    bell = Bell()
    folders = JobFolders(tmp_path, lambda: SharedCache(tmp_path / "cache"), Unreachable, None, wake=bell.rung.set)
    running = replace(launch(1), files=JobFiles(outputs=("*",)))
    folders.home(running.attempt).mkdir(parents=True)
    (folders.home(running.attempt) / "a").write_text("1")
    bell.until(lambda: bool(folders.sent(running).trouble))
    stopping = running.stopped(grace_s=0.2, generation=2)
    began = time.monotonic()
    assert not folders.sent(stopping).problem
    bell.until(lambda: bool(folders.sent(stopping).problem))
    assert time.monotonic() - began >= 0.5
    assert folders.sent(stopping).problem.startswith("the job was to end, and they were not sent within 0 s; its files")


@pytest.mark.parametrize(("uploaded", "to"), [("d/x", "d"), ("d", "d/x"), ("loop", "loop/x"), ("d/x", "d/x/y/z")])
def test_an_input_in_whose_way_an_uploaded_file_is_fails_the_job_with_a_sentence(
    tmp_path: Path, uploaded: str, to: str
) -> None:
    """A folder of its name was tried again every five seconds for ever."""
    into = tmp_path / "files"
    (into / uploaded).parent.mkdir(parents=True)
    if uploaded == "loop":
        (into / uploaded).symlink_to("loop")
    else:
        (into / uploaded).write_text("1")
    one = UrlInput("http://127.0.0.1:1/a", to)
    with pytest.raises(Rejected, match="folder"):
        job_files._make_place(into / to, one, into)
