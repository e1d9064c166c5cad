"""When a worker elsewhere stays, finishes or stops: every situation that has a rule, and the order of the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swell.machine.worker_options import WorkerOptions
from swell.worker.leaving import Course, Situation, choose_course

STAY, FINISH, STOP = Course.STAY, Course.FINISH, Course.STOP


def told(**options: Any) -> WorkerOptions:
    return WorkerOptions("https://box.lab", Path("/token"), Path("/folder"), **options)


@pytest.mark.parametrize(
    ("options", "now", "course"),
    [
        # it was told nothing, and stays whatever happens
        ({}, {}, STAY),
        ({}, {"has_failed": True}, STAY),
        ({}, {"attempts": 10**6, "idle_s": 1e9}, STAY),
        # SIGTERM: once lets its tasks end, twice does not; some workers do not wait the first time either
        ({}, {"terminations": 1}, FINISH),
        ({}, {"terminations": 2}, STOP),
        ({"passes_termination": True}, {"terminations": 1}, STOP),
        ({"preemptible": True}, {"terminations": 1}, STOP),
        ({"passes_termination": True, "preemptible": True}, {}, STAY),
        # a failure of the worker itself
        ({"exits_on_exception": True}, {}, STAY),
        ({"exits_on_exception": True}, {"has_failed": True}, STOP),
        ({"exits_on_exception": True}, {"has_failed": True, "is_heard": False}, STOP),
        ({"exits_on_exception": True}, {"has_failed": True, "terminations": 1}, STOP),
        ({"passes_termination": True}, {"has_failed": True}, STAY),
        # as many attempts as it was told
        ({"runs_max": 2}, {"attempts": 1}, STAY),
        ({"runs_max": 2}, {"attempts": 2}, FINISH),
        ({"runs_max": 2}, {"attempts": 3, "is_heard": False}, FINISH),
        ({"runs_max": 2}, {"attempts": 2, "terminations": 2}, STOP),
        # idle for so long, and only while the server could have sent something
        ({"idle_s": 60.0}, {"idle_s": 60.0}, STAY),
        ({"idle_s": 60.0}, {"idle_s": 60.1}, FINISH),
        ({"idle_s": 60.0}, {"idle_s": 60.1, "is_heard": False}, STAY),
        ({"idle_s": 60.0}, {"idle_s": 60.1, "is_heard": False, "terminations": 1}, FINISH),
        ({"idle_s": 60.0, "runs_max": 1}, {"attempts": 1}, FINISH),
    ],
)
def test_what_a_worker_does_about_its_work(options: dict[str, Any], now: dict[str, Any], course: Course) -> None:
    assert choose_course(told(**options), Situation(**now)) is course
