"""Processes that share a cache and are killed again and again: `python -m files.cache_readers FOLDER SEED KILLS`.

A program of its own, which imports nothing of the tests: a copy of pytest's process is hundreds of megabytes.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import BinaryIO

from swell.files.shared_cache import Beat, SharedCache

SILENCE_S = 0.3
LOOK_S = 0.01
BYTES_MAX = 70_000
LIVING = 3
PROCESSES = multiprocessing.get_context("fork")


def content(key: str) -> bytes:
    return random.Random(key).randbytes(20_000)


def fetch(key: str, log: Path | None = None) -> object:
    def write(file: BinaryIO, beat: Beat) -> None:
        if log is not None:
            with log.open("a") as noted:
                noted.write(f"{key}\n")
        data = content(key)
        for start in range(0, len(data), 5000):
            file.write(data[start : start + 5000])
            file.flush()
            beat()

    return write


def read(cache: SharedCache, key: str, log: Path | None = None) -> bytes:
    with cache.use(key, fetch(key, log)) as file:
        return file.read()


def open_cache(root: Path, bytes_max: int | None = None) -> SharedCache:
    return SharedCache(root, bytes_max=bytes_max, silence_s=SILENCE_S, look_s=LOOK_S)


def use_for_ever(root: Path, seed: int, wrong: Path) -> None:
    """Until it is killed."""
    draw, cache = random.Random(seed), open_cache(root, BYTES_MAX)
    while True:
        key = f"k{draw.randrange(6)}"
        if read(cache, key) != content(key):
            wrong.touch()


def kill_again_and_again(folder: Path, seed: int, kills: int) -> None:
    """Each kill is a round: whoever is left, or comes new, goes on with what is on the disk."""
    draw, wrong = random.Random(seed), folder / "wrong"

    def begin(number: int) -> BaseProcess:
        process = PROCESSES.Process(
            target=use_for_ever, args=(folder / "cache", seed * 1000 + number, wrong), daemon=True
        )
        process.start()
        return process

    living = [begin(number) for number in range(LIVING)]
    for number in range(kills):
        time.sleep(draw.uniform(0, 0.02))
        victim = living.pop(draw.randrange(LIVING))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        living.append(begin(LIVING + number))
    for process in living:
        process.kill()
        process.join()


if __name__ == "__main__":
    kill_again_and_again(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
