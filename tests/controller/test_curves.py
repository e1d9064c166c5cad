"""How fast were jobs of the same script at each width?"""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.stage import Stage
from specs import spec
from swell.controller import curves
from swell.controller.curves import JobCurve, ScriptKey, SharedCurves, merge, script_of
from swell.model.job import Array, Container, Dimension, JobSpec, Role
from swell.model.quantity import IndexSet
from swell.model.resources import Resources
from swell.model.training import Measure, SharedCurve, TrainingRecord
from swell.throughput import blend


def runs(*command: str, gpus: int = 1, **changes: object) -> JobSpec:
    return spec(roles=(Role("worker", command, Resources(1000, 0, gpus), 1),), **changes)


def measured(*seconds: tuple[int, float], **changes: object) -> TrainingRecord:
    """By width, on one node; no epoch was the first of its attempt."""
    profile = tuple(Measure(width, 1, epochs=1, epoch_s=epoch_s, is_warm=True) for width, epoch_s in seconds)
    return TrainingRecord(profile=profile, **changes)  # type: ignore[arg-type]


def curve(*seconds: tuple[int, float]) -> tuple[tuple[int, int, float], ...]:
    return tuple((width, 1, epoch_s) for width, epoch_s in seconds)


# -- which jobs run the same script --------------------------------------------------------------------------

SWEEP = runs("python", "train.py", "--lr", "0.1", "--batch-size", "64", name="sweep-1")


@pytest.mark.parametrize(
    "other",
    [
        SWEEP,
        replace(SWEEP, name="sweep-2"),
        runs("python", "train.py", "--lr", "3e-4", "--batch-size", "64", name="sweep-12"),
        replace(SWEEP, width_max=8, priority=3, time_limit_s=60.0, epochs=7),
    ],
    ids=["the same", "another number in its name", "another rate", "other limits"],
)
def test_jobs_of_a_sweep_run_the_same_script(other: JobSpec) -> None:
    assert script_of(other, "ann") == script_of(SWEEP, "ann")


@pytest.mark.parametrize(
    "other",
    [
        replace(SWEEP, name="sweep"[:4]),
        runs("python", "train.py", "--lr", "0.1", "--batch-size", "128", name="sweep-1"),
        runs("python", "train.py", "--lr", "0.1", "--batch-size", "64", "--model", "resnet50", name="sweep-1"),
        runs("python", "train.py", "--lr", "0.1", "--batch-size", "64", name="sweep-1", gpus=2),
        replace(SWEEP, env=(("MODEL", "large"),)),
        replace(SWEEP, workdir="/elsewhere"),
        replace(SWEEP, container=Container("image:2")),
    ],
    ids=["name", "batch", "model", "GPUs of a task", "variable", "folder", "image"],
)
def test_what_changes_how_width_pays_makes_another_script(other: JobSpec) -> None:
    assert script_of(other, "ann") != script_of(SWEEP, "ann")


def test_a_batch_is_seen_in_options_and_settings_of_every_kind() -> None:
    for words in (("--batch", "{}"), ("batch_size={}",), ("--per-device-batch={}",), ("-b", "{}"), ("--bs={}",)):
        one, other = (runs("train", *(word.format(size) for word in words)) for size in (32, 64))
        assert script_of(one, "ann") != script_of(other, "ann"), words


def test_the_least_width_of_a_task_with_more_gpus_does_not_matter() -> None:
    one, other = (runs("train", gpus=gpus, dimension=Dimension.GPUS, width_min=gpus, width_max=4) for gpus in (1, 2))
    assert script_of(one, "ann") == script_of(other, "ann")


def test_jobs_of_two_users_never_run_the_same_script() -> None:
    assert script_of(SWEEP, "ann") != script_of(SWEEP, "bob")


def test_an_array_and_a_job_that_says_so_share_nothing() -> None:
    many = replace(SWEEP, array=Array(IndexSet.parse("0-3"), 2))
    assert (script_of(many, "ann"), script_of(replace(SWEEP, has_own_curve=True), "ann")) == (None, None)


# -- what is remembered of a script --------------------------------------------------------------------------

SCRIPT = ScriptKey("ann", "train", "1")


def test_nothing_is_known_of_a_script_before_a_job_has_measured_something() -> None:
    known = SharedCurves()
    known.learn(SCRIPT, 1, TrainingRecord(epochs_done=1.0))
    known.learn(None, 2, measured((1, 100.0)))
    assert (known.of(SCRIPT), known.of(None)) == (None, None)


def test_what_may_be_warming_up_is_not_told() -> None:
    known = SharedCurves()
    known.learn(SCRIPT, 1, TrainingRecord(profile=(Measure(1, 1, epochs=1, epoch_s=100.0),)))
    assert known.of(SCRIPT) is None


def test_curves_of_jobs_whose_epochs_are_of_other_lengths_are_one() -> None:
    wide, other = JobCurve(curve((1, 100.0), (2, 50.0), (4, 40.0))), JobCurve(curve((2, 500.0), (8, 400.0)))
    together = SharedCurve(curve((1, 100.0), (2, 50.0), (4, 40.0), (8, 40.0)))
    assert merge([wide, other]).epoch_s == tuple((width, 1, pytest.approx(s)) for width, _, s in together.epoch_s)


def test_where_two_jobs_differ_it_is_the_mean_of_both() -> None:
    one, other = JobCurve(curve((1, 100.0), (2, 40.0))), JobCurve(curve((1, 100.0), (2, 90.0)))
    [first, second] = merge([one, other]).epoch_s
    assert second[2] / first[2] == pytest.approx(0.6)


def test_the_length_of_a_training_is_told_by_those_that_have_done_all_their_epochs() -> None:
    """Its later epochs were a fifth as long as the one before: ten, and ten of a fifth, counted in the last ones."""
    known = SharedCurves()
    known.learn(SCRIPT, 1, measured((1, 20.0), epochs_done=15.0, epochs_total=20.0, counted=15.0, counted_lengths=55.0))
    before = known.of(SCRIPT)
    known.learn(SCRIPT, 1, measured((1, 20.0), epochs_done=20.0, epochs_total=20.0, counted=20.0, counted_lengths=60.0))
    assert (before, known.of(SCRIPT)) == (SharedCurve(curve((1, 20.0))), SharedCurve(curve((1, 20.0)), 20.0, 3.0))


def test_a_curve_stays_the_same_object_while_it_changes_by_noise_alone() -> None:
    known = SharedCurves()
    known.learn(SCRIPT, 1, measured((1, 100.0), (2, 50.0)))
    before = known.of(SCRIPT)
    for noise in (0.99, 1.0, 1.01):
        known.learn(SCRIPT, 1, measured((1, 300.0 * noise), (2, 150.0)))
    same = known.of(SCRIPT)
    known.learn(SCRIPT, 1, measured((1, 100.0), (2, 60.0)))
    assert (same is before, known.of(SCRIPT)) == (True, SharedCurve(curve((1, 100.0), (2, 60.0))))


def test_of_many_jobs_the_last_ones_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "JOBS_MAX", 2)
    known = SharedCurves()
    for job, second_s in enumerate((10.0, 50.0, 50.0), 1):
        known.learn(SCRIPT, job, measured((1, 100.0), (2, second_s)))
    found = known.of(SCRIPT)
    assert found is not None
    assert found.epoch_s == tuple((width, 1, pytest.approx(s)) for width, s in ((1, 100.0), (2, 50.0)))


def test_a_user_with_very_many_scripts_forgets_only_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SCRIPTS_MAX", 10)
    known, told = SharedCurves(), measured((1, 100.0))
    known.learn(ScriptKey("bob", "train", "old"), 1, told)
    scripts = [ScriptKey("ann", f"train-{number}", str(number)) for number in range(100)]
    for job, script in enumerate(scripts, 2):
        known.learn(script, job, told)
    assert known.of(ScriptKey("bob", "train", "old")) is not None
    assert [script for script in scripts if known.of(script)] == scripts[-9:]


def test_of_a_job_with_very_many_measurements_only_some_are_kept() -> None:
    known = SharedCurves()
    known.learn(SCRIPT, 1, measured(*((width, 1000.0 / width) for width in range(1, 1000))))
    found = known.of(SCRIPT)
    assert found is not None
    assert len(found.epoch_s) == curves.POINTS_MAX


# -- what a controller does with it --------------------------------------------------------------------------


def sibling_curve(stage: Stage, **changes: object) -> SharedCurve | None:
    """What the planner knows of a second job like `trained`, from others."""
    job = stage.elastic(1, 4, epochs=20, **changes)
    stage.cycle()
    return stage.controller.snapshot.jobs_by_id[job].curve


def trained(stage: Stage, **changes: object) -> int:
    """A job that has measured width 4, and has ended."""
    job = stage.elastic(1, 4, epochs=20, **changes)
    stage.begin(job)
    stage.say(job, epochs_done=2.0, epochs=((1, 9.0), (2, 8.0)))
    stage.finish(job, 0)
    return job


def test_a_job_that_has_ended_tells_the_next_one_of_its_script(stage: Stage) -> None:
    trained(stage)
    assert sibling_curve(stage) == SharedCurve(((4, 1, 8.0),))


def test_what_was_measured_is_known_after_a_restart(stage: Stage) -> None:
    trained(stage)
    stage.restart()
    assert sibling_curve(stage) == SharedCurve(((4, 1, 8.0),))


def test_a_job_that_runs_is_known_after_a_restart(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, epochs_done=2.0, epochs=((1, 9.0), (2, 8.0)))
    stage.restart()
    assert sibling_curve(stage) == SharedCurve(((4, 1, 8.0),))


@pytest.mark.parametrize("who", ["teller", "listener"])
def test_a_job_with_a_curve_of_its_own_neither_tells_nor_hears(stage: Stage, who: str) -> None:
    trained(stage, has_own_curve=who == "teller")
    assert sibling_curve(stage, has_own_curve=who == "listener") is None


def test_a_view_is_the_same_until_a_job_of_its_script_measures_something_new(stage: Stage) -> None:
    told = stage.elastic(4, 4)
    stage.begin(told)
    waiting = stage.elastic(2, 4)
    stage.cycle()

    def view() -> object:
        return stage.controller.snapshot.jobs_by_id[waiting]

    before = view()
    stage.say(told, epochs_done=2.0, epochs=((1, 9.0), (2, 8.0)))
    after = view()
    stage.say(told, epochs_done=3.0, epochs=((3, 8.0),))
    assert (before is after, view() is after) == (False, True)


# -- reports that nobody could mean --------------------------------------------------------------------------

SECONDS = st.floats(0, 1e9, allow_nan=False) | st.sampled_from([0.0, 5e-324, 1e-9, 1e9])
REPORTS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 9), SECONDS, st.booleans()), min_size=1, max_size=40
)


def reported(reports: list[tuple[int, int, float, bool]]) -> TrainingRecord:
    training = TrainingRecord(epochs_total=5.0)
    for number, (width, epoch, seconds, counts_steps) in enumerate(reports):
        if counts_steps:
            training = training.with_steps((width, 1), 100, seconds, 10 ** (epoch + 1), epoch)
        else:
            training = training.with_epoch((width, 1), epoch, seconds, is_first=False, attempt=number // 100)
        training = replace(training.counting(float(epoch)), epochs_done=float(epoch))
    return training


STEADY = [(1, epoch, 300.0, False) for epoch in range(5)]
CLIMBING = [*STEADY, *[(2, epoch, seconds, False) for _ in range(80) for epoch, seconds in ((0, 1e-3), (5, 1e9))]]


@given(st.lists(REPORTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
@example([STEADY, CLIMBING, CLIMBING], random.Random(0))
def test_no_reports_make_a_curve_that_cannot_be_worked_with_in_any_order(several, order):
    """A width was scaled by a million with each report, up to 1e308. A server that learned of it together with another
    job ended, at every start."""

    told = [(number, reported(reports)) for number, reports in enumerate(several, 1)]
    order.shuffle(told)
    shared, script = SharedCurves(), ScriptKey("ann", "sweep", "x")
    for job, training in told:
        json.dumps(asdict(training), allow_nan=False)
        shared.learn(script, job, training)
    found = shared.of(script)
    for _, training in told:
        own = training.epoch_s()
        for width, nodes, seconds in blend(own, () if found is None else found.epoch_s):
            assert math.isfinite(seconds), (width, nodes)
