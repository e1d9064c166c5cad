"""One job that cannot be recorded does not keep the others from going on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.stage import Stage
from swell.errors import Rejected
from swell.model.job import AttemptId
from swell.model.launch import CAUSE_START, CAUSES, GpuSeen, RunSeen, TaskSeen
from swell.model.reason import Code
from swell.model.training import Report

NAN = float("nan")
ODD = "/nope\udcff\0"


def test_a_problem_that_holds_no_utf_8_ends_its_job_and_nobody_elses(stage: Stage) -> None:
    """`swell run --workdir $'/nope\\xff'` stopped a box for everybody: each cycle failed, after a restart too."""
    theirs, mine = stage.submit(), stage.submit()
    stage.begin(theirs)
    stage.began(mine, 0)
    stage.ended(theirs, 0, 1, CAUSE_START, f"the folder {ODD} cannot be entered")
    stage.run(theirs, done=True)
    stage.cycle()
    assert stage.states(theirs, mine) == ["failed", "running"]
    assert stage.job(theirs).reason_evidence["problem"] == f"the folder {ODD} cannot be entered"
    assert stage.store.tasks(theirs)[0].problem == "the folder /nope\\udcff\\x00 cannot be entered"


#: what a worker might say of a task that cannot be written or worked with
SPOILT: list[dict[str, Any]] = [
    {"index": 2**70},
    {"lane": 2**70},
    {"exit_code": 2**70},
    {"started_at": NAN},
    {"started_at": "soon"},
    {"ended_at": NAN},
    {"ended_at": 1e300},
    {"ended_at": -1e300},
    {"ended_at": float("inf")},
    {"exit_code": "one"},
    {"cause": None},
    {"problem": object()},
]


@pytest.mark.parametrize("odd", SPOILT, ids=lambda odd: "-".join(odd))
def test_an_observation_that_cannot_be_recorded_harms_only_its_own_job(stage: Stage, odd: dict[str, Any]) -> None:
    theirs, mine = stage.submit(), stage.submit()
    stage.cycle()
    now = stage.clock.time
    seen = TaskSeen(AttemptId(theirs, 1), 0, "a", 0, now - 1, now, 1)
    stage.engine.tasks.append(replace(seen, **odd))
    stage.run(theirs, done=True)
    stage.began(mine, 0)
    stage.cycle()
    stage.finish(mine, 0)
    assert stage.states(theirs, mine) == ["failed", "succeeded"], stage.kinds(theirs)
    assert stage.why(theirs).message
    assert all(0 <= task.started_at <= now + 1 for task in stage.store.tasks(theirs)), "what is kept can be read"


def test_what_was_left_out_is_told_and_its_facts_stay(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    now = stage.clock.time
    stage.engine.tasks.append(TaskSeen(AttemptId(job, 1), 0, "a", 0, NAN, now, 3))
    stage.run(job, done=True)
    stage.cycle()
    [told] = stage.details(job, "NotRecorded")
    assert "Error" in str(told["problem"])
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], 3)


def test_a_job_whose_bare_facts_cannot_be_stored_either_is_failed_with_a_reason(stage: Stage) -> None:
    theirs, mine = stage.submit(), stage.submit()
    stage.begin(theirs)
    attempt = AttemptId(theirs, 1)
    stage.engine.runs[attempt] = RunSeen(attempt, "a", 1, (0,), "many", False)  # type: ignore[arg-type]
    array = stage.array("0-3", 1)
    stage.cycle()
    odd = AttemptId(array, 1)
    stage.engine.runs[odd] = RunSeen(odd, "a", 1, (), "many", False)  # type: ignore[arg-type]
    stage.began(mine, 0)
    stage.cycle()
    assert stage.states(theirs, mine, array) == ["running", "running", "failed"]
    reason = stage.why(array)
    assert (reason.code, stage.kinds(array)[-2:]) == (Code.NOT_RECORDED, ["NotRecorded", "Ended"])
    assert "TypeError" in reason.message
    assert stage.asked_to("stop") == [("stop", f"{array}.1", 30.0)]
    stage.engine.runs[odd] = RunSeen(odd, "a", 1, (), 0, True)
    stage.cycle()
    assert ("forget", f"{array}.1") in stage.engine.asked
    stage.restart()
    stage.cycle()
    assert stage.states(theirs, mine, array) == ["running", "running", "failed"]


def test_a_report_that_cannot_be_recorded_is_refused_and_others_are_not(stage: Stage) -> None:
    theirs, mine = stage.elastic(1, 1), stage.elastic(1, 1)
    stage.begin(theirs)
    stage.began(mine, 0)
    stage.cycle()
    odd = stage.controller.report(Report(AttemptId(theirs, 1), 0, metrics=(("a", object()),)))  # type: ignore[arg-type]
    held = stage.controller.scale(mine, 1, by="ann", is_now=False)
    stage.cycle()
    with pytest.raises(Rejected, match="cannot be recorded, so nothing was changed: TypeError"):
        odd.result(timeout=0)
    assert held.result(timeout=0) is None
    assert stage.states(theirs, mine) == ["running", "running"]
    assert (stage.kinds(theirs)[-1], stage.kinds(mine)[-1]) == ("Running", "ScaleRequested")


odd_text = st.text(st.characters(categories=("Cs", "Cc", "Cf", "Co", "Lu", "So")), max_size=20) | st.just("x" * 100_000)
odd_number = st.integers() | st.integers(-(2**80), 2**80) | st.floats() | st.booleans()
odd_task = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 3) | odd_number,
        "lane": odd_number,
        "started_at": odd_number,
        "ended_at": odd_number,
        "exit_code": odd_number,
        "cause": st.sampled_from(sorted(CAUSES)) | odd_text,
        "problem": odd_text,
        "used_mib": odd_number,
    },
)
odd_run = st.fixed_dictionaries(
    {},
    optional={
        "revision": odd_number,
        "in_use": st.lists(odd_number, max_size=3).map(tuple),
        "left": odd_number,
        "tensorboard": odd_text,
        "gpu": st.builds(GpuSeen, odd_number, odd_number, odd_number),
        "trouble": odd_text,
        "suspended": odd_text,
    },
)


@given(st.lists(odd_task, max_size=3), odd_run, st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_seen_of_one_job_the_next_one_goes_on(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[dict[str, Any]], run: dict[str, Any], gang: bool
) -> None:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    try:
        mine = stage.submit()
        theirs = stage.gang(2) if gang else stage.array("0-3", 2)
        stage.cycle()
        attempt, now = AttemptId(theirs, 1), stage.clock.time
        stage.engine.tasks += [replace(TaskSeen(attempt, 0, "a", 0, now), **odd) for odd in tasks]
        stage.engine.runs[attempt] = replace(RunSeen(attempt, "a", 1, (), 0, False), **run)
        stage.began(mine, 0)
        stage.cycle()
        assert stage.states(mine) == ["running"]
        stage.engine.runs[attempt] = RunSeen(attempt, "a", 1, (), 0, True)
        stage.finish(mine, 0)
        stage.cycle()
        stage.restart()
        stage.cycle()
        later = stage.submit()
        stage.begin(later)
        assert stage.states(mine, later) == ["succeeded", "running"]
        assert stage.job(theirs).state.value in {"failed", "queued", "succeeded", "cancelled", "held", "starting"}
    finally:
        stage.store.close()
