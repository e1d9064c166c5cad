"""Who may start after whom, and who is told that a job has ended?"""

from __future__ import annotations

import pytest

from controller.stage import Stage
from swell.model.job import After, Notify
from swell.model.reason import Code


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    ("code", "on_any_end", "state", "reason"),
    [
        pytest.param(0, False, "starting", Code.STARTING, id="after its success"),
        pytest.param(1, False, "cancelled", Code.DEPENDENCY_FAILED, id="not after its failure"),
        pytest.param(1, True, "starting", Code.STARTING, id="after its end, whatever that is"),
    ],
)
def test_a_follower(stage: Stage, crash: bool, code: int, on_any_end: bool, state: str, reason: Code) -> None:
    first = stage.submit()
    follower = stage.submit(after=(After(first, on_any_end),))
    stage.begin(first)
    if crash:
        stage.restart()
        stage.cycle()
    assert (stage.states(follower), stage.job(follower).reason_code) == (["queued"], Code.WAITING_FOR_JOB)
    stage.finish(first, code)
    assert (stage.states(follower), stage.job(follower).reason_code) == ([state], reason)


def test_a_follower_hears_of_an_end_that_came_before_it(stage: Stage) -> None:
    good, bad = stage.submit(), stage.submit()
    stage.begin(good)
    stage.began(bad, 0)
    stage.finish(good, 0)
    stage.finish(bad, 1)
    followers = [stage.submit(after=(After(good),)), stage.submit(after=(After(bad),))]
    stage.cycle()
    assert stage.states(*followers) == ["starting", "cancelled"]


def test_a_chain_falls_together(stage: Stage) -> None:
    first = stage.submit()
    second = stage.submit(after=(After(first),))
    third = stage.submit(after=(After(second),))
    stage.begin(first)
    stage.finish(first, 1)
    assert stage.states(first, second, third) == ["failed", "cancelled", "cancelled"]
    assert stage.job(third).reason_evidence == {"after": second, "state": "cancelled"}


def test_one_that_waits_for_several_waits_for_all(stage: Stage) -> None:
    one, two = stage.submit(), stage.submit()
    both = stage.submit(after=(After(one), After(two)))
    stage.begin(one)
    stage.began(two, 0)
    stage.finish(one, 0)
    waiting = stage.states(both)
    stage.finish(two, 0)
    assert (waiting, stage.states(both)) == (["queued"], ["starting"])


def test_one_that_has_begun_is_not_bound_to_what_it_followed_any_more(stage: Stage) -> None:
    """It had given its room back when the server was restarted; what it followed had been deleted: cancelled."""
    first = stage.submit()
    job = stage.elastic(1, 4, after=(After(first),))
    stage.begin(first)
    stage.finish(first, 0)
    stage.began(job, 0)
    stage.saved(job, 1.0, seconds=100.0)
    stage.elastic(4, 4, priority=9)
    stage.cycle(100.0)
    stage.finish(job, 75)
    assert stage.states(job) == ["queued"]
    stage.controller.delete([stage.job(first)], by="ann").result()
    stage.restart()
    stage.cycle()
    assert stage.states(job) == ["queued"]


# -- who is told ---------------------------------------------------------------------------------------------


def ended(stage: Stage, code: int, *, only_on_error: bool = False) -> int:
    job = stage.submit(notify=Notify(("mail", "ann"), only_on_error))
    stage.begin(job)
    stage.finish(job, code)
    return job


@pytest.mark.parametrize(
    ("code", "only_on_error", "is_told"), [(0, False, True), (1, False, True), (0, True, False), (1, True, True)]
)
def test_whoever_wants_to_know_is_told_once(stage: Stage, code: int, only_on_error: bool, is_told: bool) -> None:
    job = ended(stage, code, only_on_error=only_on_error)
    stage.cycle()
    assert (stage.told_of, stage.job(job).notice_due) == ([job] * is_told, int(is_told))


def test_nobody_is_told_of_a_job_that_lines_up_again(stage: Stage) -> None:
    job = stage.submit(notify=Notify(("mail", "ann")), retries=1)
    stage.begin(job)
    stage.finish(job, 1)
    assert stage.told_of == []


def test_a_notice_that_was_not_sent_before_a_crash_is_sent_after_it(stage: Stage) -> None:
    job = ended(stage, 0)
    stage.told_of.clear()
    stage.restart()
    assert stage.told_of == [job]


def test_one_that_was_sent_is_not_sent_again(stage: Stage) -> None:
    job = ended(stage, 0)
    stage.controller.told(job, "NoticeSent", {"to": "mail", "tries": 1}).result()
    stage.told_of.clear()
    stage.restart()
    assert stage.told_of == []


@pytest.mark.parametrize("is_last", [True, False])
def test_how_a_notice_went_is_an_event_and_an_end_that_came_meanwhile_stays_due(stage: Stage, is_last: bool) -> None:
    job = ended(stage, 0)
    stage.controller.told(job, "NoticeFailed", {"to": "mail", "problem": "exit code 1"}, is_last=is_last).result()
    [event] = [one for one in stage.store.events(job=job) if one.kind.startswith("Notice")]
    assert (event.kind, event.detail) == ("NoticeFailed", {"to": "mail", "problem": "exit code 1"})
    assert stage.job(job).notice_due == (0 if is_last else 1)


def test_a_job_that_is_cancelled_because_of_another_tells_so(stage: Stage) -> None:
    first = stage.submit()
    follower = stage.submit(after=(After(first),), notify=Notify(("mail", "ann"), only_on_error=True))
    stage.begin(first)
    stage.finish(first, 1)
    assert stage.told_of == [follower]
