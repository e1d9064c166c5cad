"""Two machines share a cache on a network disk that counts no links, numbers each name and knows whole seconds only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from e2e.disks import sshfs
from swell.files.shared_cache import Beat, SharedCache

from .cache_readers import PROCESSES, content, fetch, read

pytestmark = pytest.mark.slow

SILENCE_S = 3.0  # more than the second to which this disk knows times
PATIENCE_S = 100.0
KEYS = [f"k{number}" for number in range(6)]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The folder of one disk, as each of two machines has mounted it."""
    disk, first, second = (tmp_path / name for name in ("disk", "first", "second"))
    disk.mkdir()
    with sshfs(disk, first), sshfs(disk, second):
        yield first / "cache", second / "cache"


def open_cache(root: Path) -> SharedCache:
    return SharedCache(root, silence_s=SILENCE_S, look_s=0.05)


def read_all(root: Path, log: Path, wrong: Path) -> None:
    cache = open_cache(root)
    if any(read(cache, key, log) != content(key) for key in KEYS):
        wrong.touch()
    cache.close()


def test_what_processes_of_two_machines_want_is_fetched_once(machines: tuple[Path, Path], tmp_path: Path) -> None:
    log, wrong = tmp_path / "log", tmp_path / "wrong"
    readers = [PROCESSES.Process(target=read_all, args=(root, log, wrong)) for root in machines * 2]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert ([reader.exitcode for reader in readers], wrong.exists()) == ([0] * 4, False)
    assert sorted(log.read_text().split()) == KEYS


def stop_halfway(root: Path, ready: int) -> None:
    def write(file: BinaryIO, beat: Beat) -> None:
        file.write(content("k0")[:5000])
        beat()
        os.write(ready, b"x")
        signal.pause()

    with open_cache(root).use("k0", write):
        pass


def test_the_download_of_a_machine_that_dies_is_taken_over_by_the_other(machines: tuple[Path, Path]) -> None:
    """No link was seen, so nobody ever had the claim, and a job waited for its files without end."""
    reading, writing = os.pipe()
    dying = PROCESSES.Process(target=stop_halfway, args=(machines[0], writing))
    dying.start()
    assert os.read(reading, 1) == b"x"
    dying.kill()
    dying.join()
    cache = open_cache(machines[1])
    with cache.use("k0", fetch("k0")) as file:
        assert file.read() == content("k0")
    cache.close()
    for descriptor in (reading, writing):
        os.close(descriptor)
