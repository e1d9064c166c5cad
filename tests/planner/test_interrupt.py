"""Does a job that saves between epochs alone stop now, or at the end of its epoch?

All jobs here allow either, and have done an epoch at some moment before NOW; an epoch takes 1000 s on one GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.plan import JobView, Plan, Resize, Weighed
from swell.planner import make_plan
from swell.planner.interrupt import cost_s, gain, is_worth, weigh

from .plans import AT_CHECKPOINT, FOR_ROOM, IMMEDIATE, NOW, plan_of
from .world import node, queued, trains, world

LONG = ((1, 1000.0), (2, 520.0), (4, 300.0))  # seconds of an epoch by width


def between_epochs(width: int, saved: float, **more: object) -> JobView:
    """Job 1 on 1..4 GPUs of node a; its last epoch ended at the moment `saved`."""
    job = trains(1, on="a", gpus="1..4", width=width, checkpoint_at=saved, left=50.0, epoch_s=LONG, every_s=300.0)
    return replace(job, is_at_once=True, **more)  # type: ignore[arg-type]


def test_it_stops_now_where_little_would_be_done_again():
    plan = plan_of(node("a", gpus=4), between_epochs(4, NOW - 20.0), queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, IMMEDIATE, None, 2, Weighed(20.0, 280.0)),), {2: FOR_ROOM})


def test_it_goes_on_to_the_end_of_its_epoch_where_that_is_near():
    """280 s on 4 GPUs would be done again; for the 20 s until the end of the epoch two GPUs are missing."""
    plan = plan_of(node("a", gpus=4), between_epochs(4, NOW - 280.0), queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, AT_CHECKPOINT, 900.0, 2, Weighed(280.0, pytest.approx(20.0))),), {2: FOR_ROOM})


@pytest.mark.parametrize(("since_s", "grows"), [(20.0, True), (250.0, True), (900.0, False)])
def test_it_grows_early_in_an_epoch_and_late_in_one_leaves_the_room_to_others(since_s: float, grows: bool):
    """Four GPUs are more than three times as fast. Asked now to stop at the end, it would only hold room."""
    plan = plan_of(node("a", gpus=4), between_epochs(1, NOW - since_s))
    resize = Resize(1, 4, IMMEDIATE, None, None, Weighed(since_s, 1000.0 - since_s))
    assert plan == (Plan((resize,)) if grows else Plan())


def test_one_whose_user_allows_only_checkpoints_is_never_stopped_inside_an_epoch():
    careful = replace(between_epochs(4, NOW - 20.0), is_at_once=False)
    plan = plan_of(node("a", gpus=4), careful, queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, AT_CHECKPOINT, 900.0, 2),), {2: FOR_ROOM})


def test_one_that_saves_at_any_step_is_asked_to_do_that():
    job = between_epochs(4, NOW - 20.0)
    assert job.training is not None
    saves = replace(job, training=replace(job.training, saves_at_steps=True))
    plan = plan_of(node("a", gpus=4), saves, queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, AT_CHECKPOINT, 900.0, 2),), {2: FOR_ROOM})


def test_before_its_first_epoch_is_over_that_is_taken_to_last_as_long_again_and_longer():
    job = between_epochs(1, NOW, mode=IMMEDIATE, started_at=NOW - 130.0)
    assert job.training is not None
    first = replace(job, training=replace(job.training, checkpoint_at=None, epoch_s=()))
    assert weigh(first, NOW) == Weighed(100.0, 200.0)


def test_one_that_tells_nothing_of_its_epochs_has_nothing_to_weigh():
    assert weigh(between_epochs(1, NOW - 20.0, training=None), NOW) is None


def test_what_is_missing_is_its_own_gain_or_the_part_of_its_room_that_others_get():
    job = between_epochs(2, NOW)
    assert [gain(job, 4, 520.0, 260.0), gain(job, 1, 520.0, 1000.0)] == [1.0, 0.5]
    stop = Weighed(again_s=100.0, epoch_left_s=300.0)
    assert [(is_worth(stop, part), cost_s(stop, part)) for part in (1.0, 0.25)] == [(True, 100.0), (False, 75.0)]


def test_the_same_moment_gives_the_same_plan():
    now = world(node("a", gpus=4), between_epochs(4, NOW - 20.0), queued(2, gpus=2))
    assert make_plan(now) == make_plan(now)
