"""Folders that somebody has filled so that counting them would take for ever, lead elsewhere, or end the counter.

Whatever is there: a pass ends, others are counted, and who hides something gains nothing by it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.controller import diskmeter
from swell.controller.diskmeter import DiskMeter
from swell.machine.tree_size import DEPTH_MAX, TooDeep, entry_sizes
from swell.model.job import JobId

from .test_files import folder, nest
from .things import KINDS, NAMES

MIB = 1024 * 1024


def meter(root: Path, mib: int = 1, **owners: JobId) -> DiskMeter:
    """`anna=1`: job 1 is hers."""
    for name in ("checkpoints", "tasks"):
        (root / name).mkdir(exist_ok=True)
    names = {job: name for name, job in owners.items()}

    def asked(jobs: Sequence[JobId]) -> dict[JobId, str]:
        return {job: names[job] for job in jobs if job in names}

    return DiskMeter(root / "checkpoints", root / "tasks", asked, lambda _: mib * MIB)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=12), st.randoms())
def test_a_folder_with_anything_in_it_is_counted_and_nothing_outside(paths: list[list[str]], random: object) -> None:
    with folder() as made:
        (made / "outside").mkdir()
        (made / "outside" / "large").write_bytes(bytes(4 * MIB))
        (made / "job").mkdir()
        for path in paths:
            with contextlib.suppress(OSError):
                place = (made / "job").joinpath(*path)
                place.parent.mkdir(parents=True, exist_ok=True)
                KINDS[random.choice(sorted(KINDS))](place)  # type: ignore[attr-defined]
        with contextlib.suppress(FileExistsError):
            (made / "job" / "link").symlink_to(made / "outside")
        before = open_files()
        found = list(entry_sizes(made, "job"))
        names = sum(len(folders) + len(files) for _, folders, files in os.walk(made / "job"))
        assert len(found) == 1 + names
        assert sum(found) < MIB
        assert open_files() <= before


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_to_be_counted_need_not_be_a_folder(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "job")
    assert sum(entry_sizes(tmp_path, "job")) <= 3 * 4096


def test_a_link_in_place_of_a_jobs_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "large").write_bytes(bytes(MIB))
    (tmp_path / "job").symlink_to("elsewhere")
    assert list(entry_sizes(tmp_path, "job")) == [4096]


def test_a_file_counts_as_what_it_takes_of_the_disk_once_however_many_names_it_has(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "model").write_bytes(bytes(MIB))
    for number in range(5):
        (job / f"name{number}").hardlink_to(job / "model")
    with (job / "hole").open("wb") as file:
        file.truncate(1 << 40)
    folder_bytes = max(4096, job.stat().st_blocks * 512)
    assert sum(entry_sizes(tmp_path, "job")) == folder_bytes + (job / "model").stat().st_blocks * 512 + 4096


def test_a_name_elsewhere_does_not_make_a_file_count_less(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "model").write_bytes(bytes(MIB))
    (tmp_path / "job" / "model").hardlink_to(tmp_path / "model")
    assert sum(entry_sizes(tmp_path, "job")) >= MIB


def test_empty_files_count_too_because_a_disk_has_only_so_many() -> None:
    with folder() as made:
        counts = meter(made, anna=1)
        (made / "checkpoints/1").mkdir()
        for number in range(300):
            (made / "checkpoints/1" / str(number)).touch()
        counts.count()
        use = counts.use("anna")
        assert use is not None
        assert use.is_over


def test_who_nests_folders_deeper_than_is_looked_at_has_too_much_and_others_are_counted() -> None:
    """Below the deepest level anything could lie. Neither the counter ends nor its open files."""
    with folder() as made:
        counts = meter(made, anna=1, ben=2)
        (made / "checkpoints/1").mkdir()
        nest(made / "checkpoints/1", 3000)
        (made / "checkpoints/2").mkdir()
        (made / "tasks/2.1").mkdir()
        before = open_files()
        counts.count()
        counts.count()
        anna, ben = counts.use("anna"), counts.use("ben")
        assert anna is not None
        assert ben is not None
        assert (anna.is_over, anna.largest[0][0]) == (True, 1)
        assert (ben.bytes, ben.is_over) == (8192, False)
        assert open_files() == before


@pytest.mark.parametrize(("depth", "is_counted"), [(DEPTH_MAX - 1, True), (DEPTH_MAX, False)])
def test_the_deepest_level_is_still_counted(depth: int, is_counted: bool, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    nest(tmp_path / "job", depth)
    if is_counted:
        assert len(list(entry_sizes(tmp_path, "job"))) == 1 + depth
    else:
        with pytest.raises(TooDeep):
            list(entry_sizes(tmp_path, "job"))


def test_a_pass_ends_although_somebody_makes_files_as_fast_as_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer files above the limit than usual, so that the test is short."""
    monkeypatch.setattr(diskmeter, "ENTRIES_ABOVE_MAX", 2000)
    with folder() as made:
        counts = meter(made, anna=1, ben=2)
        for job in ("1", "2"):
            (made / "checkpoints" / job).mkdir()
        has_enough = threading.Event()

        def write() -> None:
            for number in itertools.count():
                (made / "checkpoints/1" / f"f{number}").touch()
                if has_enough.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while True:
                counts.count()
                anna, ben = counts.use("anna"), counts.use("ben")
                if anna is not None and anna.is_over:
                    break
        finally:
            has_enough.set()
            writer.join()
        assert ben is not None
        assert ben.bytes == 4096


def test_a_mount_inside_is_not_even_asked(tmp_path: Path) -> None:
    """Users may mount what they like in folders of their own (FUSE); whoever asks such a mount may wait for ever."""
    inside = tmp_path / "job" / "inside"
    inside.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(inside)], check=True)
    try:
        (inside / "large").write_bytes(bytes(MIB))
        assert list(entry_sizes(tmp_path, "job")) == [4096]
    finally:
        subprocess.run(["umount", str(inside)], check=True)


def test_what_vanishes_or_moves_while_it_is_counted_ends_nothing(tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "a" / "b").mkdir(parents=True)
    for number in range(50):
        (job / "a" / "b" / str(number)).touch()
    sizes = entry_sizes(tmp_path, "job")
    for _ in range(6):
        next(sizes)
    (job / "a" / "b").rename(job / "c")
    subprocess.run(["rm", "-rf", str(job)], check=True)
    assert sum(1 for _ in sizes) <= 53


def test_a_counter_that_stops_half_way_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    nest(tmp_path / "job", 20)
    before = open_files()
    sizes = entry_sizes(tmp_path, "job")
    for _ in range(10):
        next(sizes)
    assert open_files() > before
    sizes.close()  # type: ignore[attr-defined]
    assert open_files() == before


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_lies_beside_the_folders_of_jobs_is_left_alone(kind: str) -> None:
    with folder() as made:
        counts = meter(made, anna=1)
        for name in ("x", "²", "9" * 240, ".erased-1-ab", "-1"):
            with contextlib.suppress(OSError):
                KINDS[kind](made / "tasks" / name)
        KINDS[kind](made / "tasks/1.1")
        counts.count()
        assert set(counts.users()) <= {"anna"}


def test_counting_rests_more_than_it_works() -> None:
    """Ten thousand files: nobody waits for the interpreter longer than a slice."""
    with folder() as made:
        counts = meter(made, mib=1000, anna=1)
        (made / "checkpoints/1").mkdir()
        for number in range(10_000):
            (made / "checkpoints/1" / str(number)).touch()
        began, busy = time.monotonic(), time.thread_time()
        counts.count()
        took, worked = time.monotonic() - began, time.thread_time() - busy
        assert took > 2 * worked
