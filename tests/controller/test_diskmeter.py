"""What users' logs and checkpoints take, from one pass to the next."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from swell.controller.diskmeter import DiskAccount, DiskMeter
from swell.model.job import JobId
from swell.model.quota import MIB, DiskUse

KIB = 1024


class Disk:
    """Jobs 1 and 2 are anna's, 3 is ben's, nothing limits cleo, whose is 4."""

    def __init__(self, root: Path) -> None:
        self.checkpoints, self.tasks = root / "checkpoints", root / "tasks"
        self.checkpoints.mkdir()
        self.tasks.mkdir()
        self.owners = {1: "anna", 2: "anna", 3: "ben", 4: "cleo"}
        self.changes = 0
        self.before_asking: Callable[[], None] = lambda: None
        self.meter = DiskMeter(
            self.checkpoints,
            self.tasks,
            self._asked,
            lambda user: None if user == "cleo" else MIB,
            self._changed,
        )

    def _asked(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        self.before_asking()
        return {job: self.owners[job] for job in jobs if job in self.owners}

    def _changed(self) -> None:
        self.changes += 1

    def write(self, path: str, size: int) -> None:
        target = self.tasks.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x" * size)

    def counted(self, user: str) -> DiskUse | None:
        self.meter.count()
        return self.meter.use(user)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_logs_and_checkpoints_of_all_a_users_jobs_count_together_folders_included(disk: Disk) -> None:
    disk.write("checkpoints/1/model", 100 * KIB)
    disk.write("tasks/1.1/0/log", 8 * KIB)
    disk.write("tasks/1.2/0/log", 8 * KIB)
    disk.write("tasks/2.1/0/log", 4 * KIB)
    disk.write("checkpoints/3/model", 4 * KIB)
    assert disk.counted("anna") == DiskUse(148 * KIB, MIB, ((1, 136 * KIB), (2, 12 * KIB)))
    assert disk.counted("ben") == DiskUse(8 * KIB, MIB, ((3, 8 * KIB),))
    assert disk.meter.users() == ["anna", "ben"]


def test_who_has_no_limit_is_not_counted(disk: Disk) -> None:
    disk.write("checkpoints/4/model", 4 * MIB)
    assert disk.counted("cleo") is None
    assert disk.meter.users() == []


def test_what_passes_the_limit_or_has_room_again_is_told_once(disk: Disk) -> None:
    disk.write("checkpoints/1/model", 2 * MIB)
    use = disk.counted("anna")
    assert use is not None
    assert (use.is_over, disk.changes) == (True, 1)
    disk.meter.count()
    assert disk.changes == 2, "it is sure now"
    disk.meter.count()
    assert disk.changes == 2
    (disk.checkpoints / "1/model").unlink()
    assert disk.counted("anna") == DiskUse(4 * KIB, MIB, ((1, 4 * KIB),))
    assert disk.changes == 3


def test_a_deleted_job_counts_no_more_at_once(disk: Disk) -> None:
    disk.write("checkpoints/1/model", 2 * MIB)
    disk.write("tasks/2.1/0/log", 4 * KIB)
    disk.meter.count()
    disk.meter.forget(1)
    assert disk.meter.use("anna") == DiskUse(12 * KIB, MIB, ((2, 12 * KIB),))
    assert disk.changes == 2


def test_checkpoints_whose_job_is_forgotten_are_whose_the_folder_is(disk: Disk) -> None:
    disk.owners.clear()
    disk.write("checkpoints/1/model", 4 * KIB)
    disk.write("tasks/1.1/0/log", 4 * KIB)
    assert disk.counted(getpass.getuser()) == DiskUse(8 * KIB, MIB, ((1, 8 * KIB),))


def test_what_is_being_removed_counts_no_more(disk: Disk) -> None:
    disk.write("checkpoints/.erased-1-abcd/model", MIB)
    assert disk.counted("anna") == DiskUse(0, MIB)


def test_a_pass_that_was_broken_off_is_not_counted_twice() -> None:
    account = DiskAccount()
    account.add(1, 10)
    account.finish()
    account.add(1, 7)
    account.add(2, 5)
    assert account.total == 15
    account.begin()  # anew
    account.add(1, 30)
    assert account.total == 30
    account.finish()
    assert (account.total, account.largest) == (30, ((1, 30),))


def test_only_what_two_passes_have_found_is_sure(disk: Disk) -> None:
    """A job was ended for files that another had written before it removed its own: during a pass both counted."""
    disk.write("checkpoints/1/model", 400 * KIB)
    disk.meter.count()
    assert disk.meter.sizes("anna") == {}
    (disk.checkpoints / "1/model").unlink()
    disk.write("checkpoints/2/model", 300 * KIB)
    disk.meter.count()
    assert disk.meter.sizes("anna") == {1: 4 * KIB}
    disk.meter.count()
    assert disk.meter.sizes("anna") == {1: 4 * KIB, 2: 304 * KIB}


def test_a_job_that_is_deleted_while_it_is_counted_stays_deleted(disk: Disk) -> None:
    disk.write("checkpoints/1/model", 4 * KIB)
    disk.before_asking = lambda: disk.meter.forget(1)  # found, and not yet counted
    assert disk.counted("anna") == DiskUse(0, MIB)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (DiskUse(0, MIB), "0.0 MiB of logs and checkpoints of at most 1 MiB"),
        (
            DiskUse(2 * MIB, MIB, ((7, MIB),)),
            "2.0 MiB of logs and checkpoints of at most 1 MiB, most of it in job 7 (1.0 MiB)",
        ),
        (
            DiskUse(3 * MIB, MIB, ((7, 2 * MIB), (8, MIB))),
            "3.0 MiB of logs and checkpoints of at most 1 MiB, most of it in jobs 7 (2.0 MiB) and 8 (1.0 MiB)",
        ),
    ],
)
def test_what_somebody_has_in_words(use: DiskUse, words: str) -> None:
    assert use.in_words == words
