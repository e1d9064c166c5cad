"""What is taken of what a job left, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engines.kubernetes.pieces import FIRST, SECOND, ended, make_object, make_seen, running
from swell.engines.kubernetes.attempt.termination_message import last_reports
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.model.training import Checkpoint, Report


def said(rank: int, text: str) -> PodSeen:
    pod = ended(rank)
    assert pod.ended is not None
    return replace(pod, ended=replace(pod.ended, last_words=text))


def words(attempt: object = FIRST, **report: Any) -> str:
    return json.dumps({"swell_attempt": str(attempt), "report": {"rank": 0, **report}})


def test_it_is_a_report_like_any_other() -> None:
    text = words(
        begun=3,
        epochs_done=3,
        epochs_total=5,
        epochs=[[3, 0.5]],
        steps=[10, 0.4],
        metrics={"loss": 0.1},
        memory_mib=900.0,
        checkpoint={"epochs_done": 3, "path": "deep/../three", "at": 980.0},
    )

    assert last_reports(FIRST, make_seen(make_object(), said(0, text), ended(1))) == [
        Report(
            FIRST,
            0,
            begun=3,
            epochs_done=3.0,
            epochs_total=5.0,
            epochs=((3, 0.5),),
            steps=(10, 0.4),
            memory_mib=900.0,
            checkpoint=Checkpoint(3.0, "three", 980.0, 1),
            metrics=(("loss", 0.1),),
        )
    ]


def test_a_checkpoint_whose_time_nobody_said_is_of_the_end() -> None:
    [report] = last_reports(FIRST, make_seen(None, said(0, words(checkpoint={"epochs_done": 3}))))

    assert report.checkpoint == Checkpoint(3.0, None, 990.0, 1)


def test_one_that_was_deleted_since_has_left_it_too() -> None:
    seen = replace(make_seen(None, running(1)), departed={0: said(0, words(epochs_done=3))})

    assert last_reports(FIRST, seen) == [Report(FIRST, 0, epochs_done=3.0)]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("nothing", ""),
        ("of another attempt", words(SECOND, epochs_done=3)),
        ("cut short", words(epochs_done=3)[:-5]),
        ("no report", '{"swell_attempt": "7.1"}'),
        ("a list", '{"swell_attempt": "7.1", "report": []}'),
        ("what no report says", words(color="red")),
        ("a depth that nobody reads", '{"swell_attempt": "7.1", "report": ' + "[" * 3900),
        ("a number that is none", words(epochs_done=float("nan"))),
        ("a path that leads out", words(checkpoint={"epochs_done": 1, "path": "a/../../other"})),
        ("a path from the root", words(checkpoint={"epochs_done": 1, "path": "/etc/passwd"})),
        ("the folder itself", words(checkpoint={"epochs_done": 1, "path": "."})),
    ],
)
def test_what_is_none_is_left_alone(what: str, text: str) -> None:
    assert last_reports(FIRST, make_seen(make_object(), said(0, text))) == [], what
