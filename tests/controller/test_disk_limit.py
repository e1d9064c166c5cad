"""Which running jobs end because their user has far too much on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.stage import REPORTING, Stage
from swell.controller import Controller
from swell.controller.disk_limit import CAUSE, DiskLimit, jobs_to_end
from swell.model.launch import CAUSE_STOPPED
from swell.model.quota import MIB, DiskUse
from swell.model.reason import Code
from swell.planner.why.recorded import explain_record


@pytest.mark.parametrize(
    ("what", "had", "acted_at", "sizes", "ends"),
    [
        ("nothing, within the limit", 1000, 0, {1: 1000}, ()),
        ("nothing, within the margin: a checkpoint is replaced", 1100, 0, {1: 1100}, ()),
        ("the largest that runs", 1101, 0, {1: 200, 2: 500, 3: 400}, (2,)),
        ("of two as large the one that came first", 1101, 0, {3: 500, 2: 500}, (2,)),
        (
            "several that write a little each, until they have what is above",
            1150,
            0,
            {1: 40, 2: 60, 3: 50, 4: 50},
            (2, 3, 4),
        ),
        ("all that have something, if even they have less than that", 1150, 0, {1: 40, 2: 60, 3: 0}, (2, 1)),
        ("nothing where no job that runs has written anything", 1500, 0, {1: 0}, ()),
        ("nothing again while nothing is added: what is there stays", 1500, 1500, {1: 300}, ()),
        ("nothing again within another margin", 1600, 1500, {1: 300}, ()),
        ("the next largest after another margin", 1601, 1500, {1: 300, 3: 200}, (1,)),
    ],
)
def test_above_the_margin_the_fewest_of_the_largest_jobs_end(
    what: str, had: int, acted_at: int, sizes: dict[int, int], ends: tuple[int, ...]
) -> None:
    """All in MiB, of at most 1000."""
    use = DiskUse(had * MIB, 1000 * MIB)
    assert jobs_to_end(use, acted_at * MIB, {job: size * MIB for job, size in sizes.items()}) == ends, what


def test_a_small_limit_has_a_margin_too() -> None:
    assert jobs_to_end(DiskUse(26 * MIB, 10 * MIB), 0, {1: 20 * MIB}) == ()
    assert jobs_to_end(DiskUse(26 * MIB + 1, 10 * MIB), 0, {1: 20 * MIB}) == (1,)


class Limited(Stage):
    """All jobs are of one user, who may have 1000 MiB."""

    def __init__(self, folder: Path) -> None:
        self.sizes: dict[int, int] = {}
        super().__init__(folder)

    def _controller(self, keep_s: float | None = None) -> Controller:
        limit = DiskLimit(lambda _: self._use(), lambda _: self.sizes)
        controller = Controller(self.store, self.engine, self.clock, keep_s=keep_s, reporting=REPORTING, disk=limit)
        controller.load()
        return controller

    def _use(self) -> DiskUse:
        return DiskUse(sum(self.sizes.values()), 1000 * MIB)


@pytest.fixture
def limited(tmp_path: Path) -> Limited:
    return Limited(tmp_path)


def test_the_job_with_the_most_is_stopped_and_fails_with_the_reason_and_the_others_go_on(limited: Limited) -> None:
    """What ran could write until the disk was full for everybody."""
    small, large = limited.submit(retries=3), limited.submit(retries=3)
    limited.begin(small)
    limited.begin(large)
    limited.sizes = {small: 300 * MIB, large: 900 * MIB}
    for _ in range(3):
        limited.cycle()
    assert limited.states(small, large) == ["running", "stopping"]
    assert limited.job(large).reason_evidence["cause"] == CAUSE
    assert limited.asked_to("stop") == [("stop", f"{large}.1", 30.0)]
    limited.finish(large, 0, cause=CAUSE_STOPPED)
    record = limited.job(large)
    told = {"job": large, "user": "me", "job_mib": 900.0, "disk_mib": 1200.0, "disk_mib_max": 1000}
    assert (record.state, record.reason_code, record.reason_evidence) == ("failed", Code.DISK_LIMIT, told)
    reason = explain_record(Code.DISK_LIMIT, told, "")
    assert reason.message == (
        "me had 1200 MiB of logs and checkpoints of at most 1000 MiB, and this job, with 900 MiB, had the most of "
        "those that ran, so it was stopped"
    )
    limited.cycle()
    assert limited.states(small) == ["running"]
    limited.sizes[small] = 401 * MIB
    limited.cycle()
    assert limited.states(small) == ["stopping"]


def test_a_job_that_ended_earlier_is_not_what_ends(limited: Limited) -> None:
    old, runs = limited.submit(), limited.submit()
    limited.begin(old)
    limited.sizes = {old: 900 * MIB}
    limited.finish(old, 0)
    limited.begin(runs)
    limited.sizes[runs] = 250 * MIB
    limited.cycle()
    assert limited.asked_to("stop") == [("stop", f"{runs}.1", 30.0)]
