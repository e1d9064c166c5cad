"""The real controller in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.stories import BOX, FLAT, job, workload
from swell.engines.simulated import Saving
from swell.engines.simulated.behavior import Table
from swell.sim import Settings, simulate
from swell.sim.knowledge import Knowledge
from swell.sim.report import summarize, to_json

KNOWN = Settings(knowledge=Knowledge.KNOWN, saving=Saving.AT_ONCE)


def test_a_job_alone_takes_its_restart_and_its_epochs_at_the_widest_useful_width() -> None:
    result = simulate(workload(job("only")), BOX, KNOWN)
    [only] = result.jobs
    assert (only.end_s, only.state, only.restarts, only.gpu_s) == (130.0, "succeeded", 0, 520.0)
    assert result.widths == ((0.0, 1, 4), (130.0, 1, 0))


def test_a_job_that_more_gpus_do_not_speed_up_keeps_one() -> None:
    result = simulate(workload(job("flat", speed=FLAT)), BOX, KNOWN)
    assert [width for _, _, width in result.widths] == [1, 0]


@pytest.mark.parametrize("saving", [Saving.AT_ONCE, Saving.WHEN_ASKED])
def test_a_job_that_saves_when_asked_loses_nothing_when_it_shrinks(saving: Saving) -> None:
    long = job("long", epochs=40)
    result = simulate(workload(long, job("short", 305.0)), BOX, Settings(knowledge=Knowledge.KNOWN, saving=saving))
    assert [one.state for one in result.jobs] == ["succeeded", "succeeded"]
    assert result.jobs[0].restarts >= 1
    assert sum(one.lost_gpu_s for one in result.jobs) == 0.0


def test_a_job_that_only_knows_epochs_gives_room_back_at_the_end_of_one() -> None:
    long = job("long", epochs=40)
    settings = Settings(saving=Saving.EPOCHS)
    result = simulate(workload(long, job("short", 305.0, width_min=4, width_max=4)), BOX, settings)
    [end] = [moment for moment, who, width in result.widths if who == 1 and width == 0][:1]
    assert (end - 30.0) % 25.0 == 0.0
    assert [one.state for one in result.jobs] == ["succeeded", "succeeded"]
    assert sum(one.lost_gpu_s for one in result.jobs) == 0.0


@pytest.mark.parametrize("saving", [Saving.AT_ONCE, Saving.WHEN_ASKED, Saving.EPOCHS])
def test_the_same_simulation_has_the_same_report_to_the_byte(saving: Saving) -> None:
    jobs = [job(f"j{n}", 37.0 * n, epochs=3 + n) for n in range(12)]

    def report() -> str:
        result = simulate(workload(*jobs), BOX, Settings(saving=saving))
        return to_json([summarize(result, BOX.gpus).to_document(), result.widths])

    assert report() == report()


def test_a_job_for_which_there_is_no_room_ever_is_told_as_not_done() -> None:
    result = simulate(workload(job("huge", width_min=9, width_max=9), job("small")), BOX, KNOWN)
    assert [(one.state, one.end_s is None) for one in result.jobs] == [("queued", True), ("succeeded", False)]
    assert summarize(result, BOX.gpus).done == 1


def test_between_two_decisions_there_is_as_long_as_the_pace_says() -> None:
    jobs = [job(f"j{n}", at, width_max=1, epochs=2) for n, at in enumerate((0.0, 3.0, 11.0, 40.0))]
    result = simulate(workload(*jobs), BOX, Settings(saving=Saving.AT_ONCE, pace_s=10.0))
    assert [one.start_s for one in result.jobs] == [0.0, 10.0, 20.0, 40.0]
    assert all(one.state == "succeeded" for one in result.jobs)


def test_what_happens_last_is_decided_upon_although_it_waits_for_the_pace() -> None:
    """The second job comes when nothing runs any more, and nothing happens after it or after its end."""
    jobs = [job("first", 0.0, width_max=1, epochs=1), job("last", 131.0, width_max=1, epochs=1)]
    result = simulate(workload(*jobs), BOX, Settings(saving=Saving.AT_ONCE, pace_s=200.0))
    assert [(one.start_s, one.state) for one in result.jobs] == [(0.0, "succeeded"), (200.0, "succeeded")]


def test_rounds_decide_at_their_multiples_alone() -> None:
    result = simulate(workload(job("late", 7.0)), BOX, Settings(saving=Saving.AT_ONCE, round_s=60.0))
    assert result.widths[0][0] == 60.0


# -- what jobs of one script tell each other -----------------------------------------------------------------

TWO_ARE_BEST = Table({(1, 1): 100.0, (1, 2): 60.0, (1, 3): 70.0, (1, 4): 80.0})


def _widths_of_the_second(**changes: object) -> list[int]:
    """A sweep of two, one after the other; every width that the second job has had.

    The first one begins beside another job, on two GPUs, and tries four when that has ended.
    """
    other = job("other", width_min=2, width_max=2, epochs=20)
    sweep = [job(f"sweep-{n}", at, speed=TWO_ARE_BEST, epochs=40) for n, at in ((1, 1.0), (2, 10_000.0))]
    jobs = (replace(one, **{"script": "sweep", **changes}) for one in sweep)  # type: ignore[arg-type]
    result = simulate(workload(other, *jobs), BOX, Settings(saving=Saving.AT_ONCE))
    assert [one.state for one in result.jobs] == ["succeeded"] * 3
    assert [width for _, who, width in result.widths if who == 2 and width] == [2, 4, 2]
    return [width for _, who, width in result.widths if who == 3 and width]


def test_the_second_job_of_a_sweep_starts_at_the_width_that_its_sibling_found_best() -> None:
    assert _widths_of_the_second() == [2]


def test_a_job_without_a_script_finds_its_width_by_itself() -> None:
    assert _widths_of_the_second(script="")[0] == 4
