"""What is said of a job: a row for each thing that can happen."""

from __future__ import annotations

from typing import Any

import pytest

from swell.kubectl.messages import annotations_of, waiting_word, word_of
from swell.kubectl.status_objects import StatusMessage
from swell.model.job import JobState
from swell.model.reason import Code, Reason
from swell.store import EventRecord, Outline

FAILED = Reason(Code.TASK_FAILED, "task 0 ended with exit code 1", {}, "swell logs --rank 0 7")
YIELDED = {"attempt": 1, "width": 4, "outcome": "yielded", "lost_gpu_seconds": 0.0}


@pytest.mark.parametrize(
    ("kind", "detail", "reason", "word"),
    [
        (
            "Started",
            {"attempt": 2, "width": 4, "nodes": ["n1", "n2"], "waited_s": 3.0},
            None,
            StatusMessage("Started", "attempt 2 at width 4 on n1, n2"),
        ),
        (
            "Started",
            {"attempt": 2, "width": 2, "nodes": ["n1"], "decided_width": 4},
            None,
            StatusMessage("Started", "attempt 2 at width 2, not 4 as decided before, on n1"),
        ),
        (
            "AskedToYield",
            {"width": 2, "when": "at-checkpoint", "cause": "shrinks from 4 to 2 for job 12", "room_for": 12},
            None,
            StatusMessage("AskedToYield", "shrinks from 4 to 2 for job 12, at its next checkpoint"),
        ),
        (
            "AskedToYield",
            {"width": 2, "when": "immediate", "cause": "scaled to 2 by anna", "room_for": None},
            None,
            StatusMessage("AskedToYield", "scaled to 2 by anna, at once"),
        ),
        (
            "Yielded",
            {**YIELDED, "cause": "shrinks from 4 to 2 for job 12", "to_width": 2},
            None,
            StatusMessage("Resized", "attempt 1 at width 4 has ended: shrinks from 4 to 2 for job 12"),
        ),
        (
            "Yielded",
            {**YIELDED, "lost_gpu_seconds": 12.4, "cause": "preempted by job 9", "to_width": 0, "room_for": 9},
            None,
            StatusMessage(
                "Preempted",
                "attempt 1 at width 4 has ended: preempted by job 9; 12 GPU-seconds of work are lost",
            ),
        ),
        (
            "Yielded",
            {**YIELDED, "cause": "held by anna", "to_width": 0},
            None,
            StatusMessage("Yielded", "attempt 1 at width 4 has ended: held by anna"),
        ),
        ("Yielded", YIELDED, None, StatusMessage("Yielded", "attempt 1 at width 4 has ended")),
        (
            "Yielded",
            {"attempt": 1, "left": 7},
            None,
            StatusMessage("Yielded", "attempt 1 freed its resources; 7 tasks are left"),
        ),
        (
            "Retrying",
            {"attempt": 1, "width": 4, "outcome": "not-placed", "problem": "node n1: OutOfcpu"},
            None,
            StatusMessage("NotPlaced", "attempt 1 could not be placed: node n1: OutOfcpu", is_warning=True),
        ),
        (
            "Retrying",
            {"attempt": 1, "width": 4, "outcome": "failed", "exit_code": 3},
            None,
            StatusMessage("Retrying", "attempt 1 failed with exit code 3", is_warning=True),
        ),
        (
            "Retrying",
            {"attempt": 1, "width": 4, "outcome": "evicted", "problem": "low on memory", "lost_gpu_seconds": 5.0},
            None,
            StatusMessage(
                "Retrying",
                "attempt 1 was lost (evicted): low on memory; 5 GPU-seconds of work are lost",
                is_warning=True,
            ),
        ),
        (
            "Ended",
            {"state": "succeeded", "exit_code": 0, "reason": None, "ran_s": 61.4},
            None,
            StatusMessage("Ended", "succeeded after 61 s"),
        ),
        (
            "Ended",
            {"state": "failed", "exit_code": 1, "reason": "TaskFailed", "ran_s": 2.0},
            FAILED,
            StatusMessage(
                "Ended",
                "failed after 2 s, TaskFailed: task 0 ended with exit code 1; swell logs --rank 0 7",
                is_warning=True,
            ),
        ),
        (
            "Ended",
            {"state": "cancelled", "exit_code": None, "reason": "Cancelled", "ran_s": None},
            Reason(Code.CANCELLED, "cancelled by anna", {}, "nothing to do"),
            StatusMessage("Ended", "cancelled, Cancelled: cancelled by anna; nothing to do"),
        ),
        ("Submitted", {"name": "train"}, None, None),
        ("TokenMade", {"token": "s3cret"}, None, None),
    ],
)
def test_an_event_of_ours_in_words(
    kind: str, detail: dict[str, Any], reason: Reason | None, word: StatusMessage | None
) -> None:
    assert word_of(EventRecord(kind, 7, detail=detail), reason) == word


@pytest.mark.parametrize("kind", ["Started", "AskedToYield", "Yielded", "Retrying", "Ended"])
def test_only_what_is_known_to_be_harmless_is_passed_on(kind: str) -> None:
    carried = {"SWELL_TOKEN": "s3cret", "environment": "s3cret", "own": {"KEY": "s3cret"}}
    word = word_of(EventRecord(kind, 7, "s3cret", carried, origin="s3cret"), None)
    assert word is not None
    assert "s3cret" not in word.message


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (
            Reason(Code.WAITING_FOR_ROOM, "it wants 8 GPUs", {}, "nothing to do: all room is given back in 17 s"),
            StatusMessage("Waiting", "WaitingForRoom: it wants 8 GPUs"),
        ),
        (
            Reason(Code.CANNOT_RUN_HERE, "it wants 9 GPUs, but a node has 8", {}, "add a machine"),
            StatusMessage(
                "Waiting", "CannotRunHere: it wants 9 GPUs, but a node has 8; add a machine", is_warning=True
            ),
        ),
        (
            Reason(Code.HELD, "anna put it on hold", {}, "swell release 7"),
            StatusMessage("Waiting", "Held: anna put it on hold; swell release 7"),
        ),
    ],
)
def test_why_a_job_waits_and_what_to_do_where_something_can_be_done(reason: Reason, word: StatusMessage) -> None:
    assert waiting_word(reason) == word


@pytest.mark.parametrize(
    ("job", "annotations"),
    [
        (
            Outline(7, JobState.QUEUED, Code.WAITING_FOR_ROOM, 0, 0),
            {"job-id": "7", "state": "queued", "reason": "WaitingForRoom", "width": None},
        ),
        (
            Outline(7, JobState.RUNNING, None, 4, 1),
            {"job-id": "7", "state": "running", "reason": None, "width": "4"},
        ),
        (
            Outline(7, JobState.SUCCEEDED, None, 0, 1),
            {"job-id": "7", "state": "succeeded", "reason": None, "width": None},
        ),
    ],
)
def test_annotations_say_how_a_job_stands(job: Outline, annotations: dict[str, str | None]) -> None:
    assert annotations_of(job) == annotations
