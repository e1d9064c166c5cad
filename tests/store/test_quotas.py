"""What one user may have waiting and stored is held against every submission, and a refusal says what to do."""

from __future__ import annotations

import pytest

from store.jobs import accept, end, new_job
from swell.config import UserLimits
from swell.errors import TooMany
from swell.model.quota import Quota
from swell.store import Acceptance

MIB = 1024 * 1024


def refusal(store, quota: Quota, **job) -> str:
    with pytest.raises(TooMany) as caught:
        store.accept([new_job("more", **job)], Acceptance(quota=quota)).result()
    return str(caught.value)


def test_limits_are_on_without_a_word_of_the_operators():
    assert UserLimits().quota == Quota(queued=20_000, tasks=2_000_000, stored_bytes=4096 * MIB)


def test_tasks_of_arrays_that_have_not_ended_count_together(store):
    quota = Quota(tasks=1_000_000)
    [first] = accept(store, "many", array="0-999998")
    assert refusal(store, quota, array="0-1") == (
        "'ann' may have 1000000 tasks in jobs that have not ended and has 999999, so 2 more cannot be taken; "
        "wait until some jobs have ended, cancel some, or submit a smaller array"
    )
    store.accept([new_job("one")], Acceptance(quota=quota)).result()
    store.accept([new_job("theirs", owner="ben", array="0-9")], Acceptance(quota=quota)).result()
    end(store, first, 1.0)
    store.accept([new_job("more", array="0-99")], Acceptance(quota=quota)).result()


def test_what_is_stored_counts_until_its_job_is_deleted(store):
    quota = Quota(stored_bytes=MIB)
    [first] = accept(store, "large", env={"A": "x" * (MIB - 1000)})
    said = refusal(store, quota, env={"B": "y" * 2000})
    assert said == (
        "'ann' may have 1 MiB of jobs stored and has 1.0, so 0.0 more cannot be taken; "
        "delete jobs that have ended (swell delete), or submit with a smaller environment"
    )
    end(store, first, 1.0)
    assert refusal(store, quota, env={"B": "y" * 2000}) == said
    store.forget([first], by="ann").result()
    store.accept([new_job("more", env={"B": "y" * 2000})], Acceptance(quota=quota)).result()


def test_jobs_of_one_submission_count_the_environment_they_share_once(store):
    environment = {"A": "x" * 100_000}
    jobs = store.accept([new_job(f"j{number}", env=environment) for number in range(10)]).result()
    assert 100_000 < sum(job.stored_bytes for job in jobs) < 120_000
