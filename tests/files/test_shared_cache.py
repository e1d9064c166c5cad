"""Several processes share one folder of downloads; some are killed at any moment, and the others never notice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from swell.errors import Rejected
from swell.files.shared_cache import Beat, SharedCache

from .cache_readers import (
    BYTES_MAX,
    LOOK_S,
    PROCESSES,
    SILENCE_S,
    content,
    fetch,
    open_cache,
    read,
    use_for_ever,
)

TESTS = Path(__file__).parents[1]


def readers(folder: Path, seed: int, *, kills: int) -> list[str]:
    return [sys.executable, "-m", "files.cache_readers", str(folder), str(seed), str(kills)]


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "entries").iterdir())


@pytest.mark.parametrize("seed", range(12))
def test_processes_that_are_killed_spoil_nothing_and_keep_nobody_waiting(tmp_path: Path, seed: int) -> None:
    """Twenty kills: whoever is left, or comes new, goes on with what is on the disk."""
    root, wrong = tmp_path / "cache", tmp_path / "wrong"
    root.mkdir()
    subprocess.run(readers(tmp_path, seed, kills=20), cwd=TESTS, check=True, timeout=60)
    assert not wrong.exists(), f"seed {seed}"
    last = open_cache(root, BYTES_MAX)
    began = time.monotonic()
    assert all(read(last, f"k{number}") == content(f"k{number}") for number in range(6)), f"seed {seed}"
    assert time.monotonic() - began < 20
    assert size_of(root) <= BYTES_MAX, f"seed {seed}"
    until = time.monotonic() + 10
    while [*(root / "uses").iterdir(), *(root / "parts").iterdir(), *(root / "claims").iterdir()]:
        assert time.monotonic() < until, f"seed {seed}: {sorted(root.rglob('*'))}"
        threading.Event().wait(SILENCE_S / 3)
        last.sweep()
    last.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_stood_still_for_longer_than_a_silence_goes_on(tmp_path: Path, seed: int) -> None:
    """Incident: on a machine with a load of 25 the others removed what held its place, and it ended with an error."""
    draw = random.Random(seed)
    root, wrong = tmp_path / "cache", tmp_path / "wrong"
    other = open_cache(root, BYTES_MAX)
    process = PROCESSES.Process(target=use_for_ever, args=(root, seed, wrong), daemon=True)
    process.start()
    assert process.pid is not None
    for _ in range(5):
        threading.Event().wait(draw.uniform(0, 0.02))
        os.kill(process.pid, signal.SIGSTOP)
        threading.Event().wait(SILENCE_S * 1.5)
        other.sweep()
        os.kill(process.pid, signal.SIGCONT)
        assert read(other, f"k{draw.randrange(6)}") != b""
    still_alive = process.is_alive()
    process.kill()
    process.join()
    other.close()
    assert (still_alive, wrong.exists()) == (True, False), f"seed {seed}"


def test_a_claim_goes_that_was_left_when_its_download_was_there_already(tmp_path: Path) -> None:
    """Its process was killed between the two. Nobody claims what is there, so nobody found the claim."""
    cache = open_cache(tmp_path)
    assert read(cache, "a") == content("a")
    claims = [tmp_path / "claims" / name for name in ("a", "b")]
    for claim in claims:
        claim.write_text("somebody's")
    os.utime(claims[0], (0, 0))
    cache.sweep()
    cache.close()
    assert sorted((tmp_path / "claims").iterdir()) == [claims[1]]


def test_what_several_want_is_fetched_once(tmp_path: Path) -> None:
    log, results = tmp_path / "log", []
    caches = [SharedCache(tmp_path / "cache", look_s=LOOK_S) for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: results.append(read(one, "a", log))) for one in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [content("a")] * 4
    assert log.read_text() == "a\n"


def test_a_download_that_is_silent_is_taken_over_and_one_that_goes_on_is_not(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()
    first, second = open_cache(tmp_path), open_cache(tmp_path)

    def stuck(file: BinaryIO, beat: Beat) -> None:
        file.write(content("a")[:10])
        began.set()
        assert go_on.wait(20)
        file.write(content("a")[10:])

    found: list[bytes] = []

    def use() -> None:
        with first.use("a", stuck) as file:
            found.append(file.read())

    thread = threading.Thread(target=use)
    thread.start()
    assert began.wait(20)
    since = time.monotonic()
    assert read(second, "a") == content("a")
    assert time.monotonic() - since > SILENCE_S * 0.8
    go_on.set()
    thread.join(20)
    assert found == [content("a")]


def test_a_download_that_fails_leaves_the_place_to_the_next(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)

    def fail(file: BinaryIO, beat: Beat) -> None:
        file.write(b"half")
        raise OSError("no route")

    with pytest.raises(OSError, match="no route"), cache.use("a", fail):
        pass
    assert read(cache, "a") == content("a")


def test_the_oldest_that_nobody_uses_is_evicted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, bytes_max=50_000)
    read(cache, "a")
    read(cache, "b")
    with cache.use("a", fetch("a")) as held:  # also the last that was used, and then the oldest
        os.utime(tmp_path / "entries" / "a", (1, 1))
        read(cache, "c")
        assert {path.name for path in (tmp_path / "entries").iterdir()} == {"a", "c"}
        assert held.read() == content("a")
    read(cache, "a")
    read(cache, "d")
    assert {path.name for path in (tmp_path / "entries").iterdir()} == {"a", "d"}


def test_what_is_larger_than_the_cache_is_refused(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, bytes_max=19_999)
    with pytest.raises(Rejected, match="20000 bytes do not fit into the worker's cache of 19999"):
        read(cache, "a")
    assert list((tmp_path / "parts").iterdir()) == []


def test_clocks_that_differ_take_nothing_away(tmp_path: Path) -> None:
    """Only times that the disk has set are compared: whatever this machine believes that it is."""
    cache = open_cache(tmp_path)
    claim = cache._claim("a")
    assert claim is not None
    assert open_cache(tmp_path)._claim("a") is None
    os.utime(tmp_path / "claims" / "a", (time.time() + 3600,) * 2)
    assert open_cache(tmp_path)._claim("a") is None
    os.utime(tmp_path / "claims" / "a", (time.time() - 3600,) * 2)
    assert open_cache(tmp_path)._claim("a") is not None
