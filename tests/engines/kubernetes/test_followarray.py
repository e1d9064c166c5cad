"""What has become of an array's tasks, as the controller is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.engines.kubernetes.attempt.follow import follow
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.state import Followed
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, TaskPlace, Wanted
from swell.engines.kubernetes.objects.objects import PodTemplateGroup
from swell.model.launch import TaskSeen

from .pieces import (
    FAILED,
    FIRST,
    NOW,
    SECOND,
    SUCCEEDED,
    ended,
    make_object,
    make_pod,
    make_seen,
    make_wanted,
    never,
    running,
)

LANES = {0: TaskPlace("n1", (), 0), 1: TaskPlace("n2", (), 0)}
ARRAY = make_wanted(places=LANES, is_array=True, indices="0-9", has_begun=True)
JOB = make_object("Job", groups=(PodTemplateGroup("", 10, 0),))


@pytest.mark.parametrize(
    ("what", "wanted", "seen", "followed"),
    [
        (
            "some are done, some run, one will be tried again",
            ARRAY,
            make_seen(JOB, ended(0), ended(1, 1), running(3, node="n2"), make_pod(4)),
            Followed(
                (TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0), TaskSeen(FIRST, 3, "n2", 1, 950.0)), in_use=(1,), left=8
            ),
        ),
        (
            "its Job is still in the last attempt, which has done one",
            replace(ARRAY, attempt=SECOND, indices="1-9", has_begun=False),
            make_seen(replace(JOB, is_suspended=True), ended(0)),
            Followed(left=9),
        ),
        (
            "what the last attempt has done is not told again",
            replace(ARRAY, indices="1-9"),
            make_seen(JOB, ended(0), running(1, node="n1")),
            Followed((TaskSeen(FIRST, 1, "n1", 0, 950.0),), in_use=(0,), left=8),
        ),
        (
            "its Job did not count the end of one that the last attempt has done, and runs it again",
            replace(ARRAY, indices="1-9"),
            make_seen(JOB, make_pod(0), running(1, node="n1")),
            Followed((TaskSeen(FIRST, 1, "n1", 0, 950.0),), in_use=(0,), left=9),
        ),
        (
            "one was given up",
            ARRAY,
            make_seen(replace(JOB, failed_indexes="1"), ended(1, 1, node="n1")),
            Followed((TaskSeen(FIRST, 1, "n1", 0, 950.0, 990.0, 1),), left=9),
        ),
        (
            "all are done",
            replace(ARRAY, indices="0"),
            make_seen(replace(JOB, verdict=SUCCEEDED), ended(0)),
            Followed((TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0),), is_finished=True),
        ),
        (
            "all are done, and the pod of one is gone",
            replace(ARRAY, indices="0-1"),
            make_seen(replace(JOB, verdict=SUCCEEDED), ended(0)),
            Followed(
                (TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0), TaskSeen(FIRST, 1, "n1", 0, NOW, NOW, 0)),
                is_finished=True,
            ),
        ),
        (
            "it failed for good while one ran and before the last had begun",
            replace(ARRAY, indices="0-3"),
            make_seen(replace(JOB, verdict=FAILED), ended(0), ended(1, 1, node="n1"), running(2)),
            Followed(
                (
                    TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0),
                    TaskSeen(FIRST, 1, "n1", 0, 950.0, 990.0, 1),
                    replace(never(2, "stopped"), lane=0),
                    replace(never(3, "stopped"), lane=0, node="n1"),
                ),
                in_use=(0,),
            ),
        ),
        (
            "it failed for good and its pods are gone",
            replace(ARRAY, indices="0-1"),
            make_seen(replace(JOB, verdict=FAILED)),
            Followed(
                (
                    TaskSeen(FIRST, 0, "n1", 0, NOW, 995.0, None, "", "it failed"),
                    replace(never(1, "stopped"), lane=0, node="n1"),
                ),
                is_finished=True,
            ),
        ),
        (
            "somebody else has suspended it",
            ARRAY,
            make_seen(replace(JOB, is_suspended=True), ended(0)),
            Followed((TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0),), left=9, suspended="Job team/train"),
        ),
        (
            "somebody has deleted it: which of them had ended before is told already",
            replace(ARRAY, indices="0-1"),
            make_seen(None),
            Followed((never(0, "deleted"), replace(never(1, "deleted"), lane=0, node="n1")), left=2),
        ),
        (
            "it was stopped",
            replace(ARRAY, is_stopping=True),
            make_seen(replace(JOB, is_suspended=True, suspended_in=FIRST), ended(0)),
            Followed((TaskSeen(FIRST, 0, "n1", 0, 950.0, 990.0, 0),), is_finished=True),
        ),
    ],
)
def test_an_array(what: str, wanted: Wanted, seen: AttemptSeen, followed: Followed) -> None:
    assert follow(wanted, seen, AttemptMemory(), NOW, Origin.OUR_OBJECT) == followed, what
