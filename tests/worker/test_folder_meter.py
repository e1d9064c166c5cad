"""A worker takes no new tasks while its folder is too large, or its disk has no room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swell.worker.folder_meter import FREE_BYTES_MIN, FolderMeter


def test_a_folder_that_is_larger_than_it_may_be_is_full_until_something_is_removed(tmp_path: Path) -> None:
    wakes: list[None] = []
    meter = FolderMeter(tmp_path, 1, wake=lambda: wakes.append(None))
    meter.measure()
    assert (meter.is_full, len(wakes)) == (False, 0)
    (tmp_path / "data").write_bytes(bytes(2 << 20))
    meter.measure()
    assert (meter.is_full, len(wakes)) == (True, 1)
    (tmp_path / "data").unlink()
    meter.measure()
    assert (meter.is_full, len(wakes)) == (False, 2)


@pytest.mark.parametrize(("free", "is_full"), [(FREE_BYTES_MIN, False), (FREE_BYTES_MIN - 4096, True)])
def test_a_disk_without_room_is_full_whatever_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_full: bool
) -> None:
    found = list(os.statvfs(tmp_path))
    found[1], found[4] = 4096, free // 4096  # f_frsize, f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(found))
    assert FolderMeter(tmp_path, None, wake=lambda: None).is_full == is_full


def test_a_folder_that_is_gone_is_not_full(tmp_path: Path) -> None:
    assert not FolderMeter(tmp_path / "gone", None, wake=lambda: None).is_full
