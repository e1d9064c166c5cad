"""Logs are dropped from the front above a limit, and every offset stays true."""

from __future__ import annotations

from pathlib import Path

from swell.engines.logfolder import LogFolder
from swell.machine.log_limit import LogWatch
from swell.model.job import AttemptId

ATTEMPT = AttemptId(1, 1)
BLOCK = 4096


def folder_of(root: Path) -> Path:
    folder = root / str(ATTEMPT) / "0"
    folder.mkdir(parents=True)
    return folder


def append(folder: Path, data: bytes) -> None:
    with (folder / "log").open("ab") as file:
        file.write(data)


def test_a_log_above_its_limit_loses_its_beginning_and_keeps_its_offsets(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    watch = LogWatch(folder, bytes_max=4 * BLOCK, step=BLOCK)
    for number in range(8):
        append(folder, bytes([65 + number]) * BLOCK)
    watch.look()
    logs = LogFolder(tmp_path)
    start, data = logs.read(ATTEMPT, 0, 0, 100 * BLOCK)
    assert (start, data) == (5 * BLOCK, b"F" * BLOCK + b"G" * BLOCK + b"H" * BLOCK)
    assert logs.size(ATTEMPT, 0) == 8 * BLOCK
    assert (folder / "log").stat().st_blocks * 512 == 3 * BLOCK
    append(folder, b"more")
    assert logs.read(ATTEMPT, 0, 8 * BLOCK, 100) == (8 * BLOCK, b"more")


def test_the_index_says_where_what_was_written_since_a_moment_begins(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    watch = LogWatch(folder)
    append(folder, b"first\n")
    watch.look()
    index = (folder / "index").read_bytes()
    append(folder, b"second\n")
    watch.look()
    logs = LogFolder(tmp_path)
    assert logs.offset_at(ATTEMPT, 0, 0.0) == 0
    assert len((folder / "index").read_bytes()) == 2 * len(index)
    assert logs.offset_at(ATTEMPT, 0, 4e9) is None


def test_a_log_that_does_not_exist_reads_as_empty(tmp_path: Path) -> None:
    logs = LogFolder(tmp_path)
    assert logs.size(ATTEMPT, 0) is None
    assert logs.read(ATTEMPT, 0, 5, 10) == (5, b"")
    assert logs.offset_at(ATTEMPT, 0, 0.0) is None
