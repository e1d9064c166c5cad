"""Every item is exactly one task's, in each of the four shapes that multi-job manifests have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell_sdk import shard


def task(shards: str, name: str, job: int, completion: int = 0) -> dict[str, str]:
    return {
        "SWELL_SHARDS": shards,
        "REPLICATED_JOB_NAME": name,
        "JOB_INDEX": str(job),
        "JOB_COMPLETION_INDEX": str(completion),
    }


def first_and_last(found: range) -> tuple[int, int]:
    """Counted from 1, as people do."""
    return found.start + 1, found.stop


def test_five_jobs_alike_have_200_items_each():
    found = [first_and_last(shard(1000, environ=task("worker:5x1:1000", "worker", job))) for job in range(5)]
    assert found == [(1, 200), (201, 400), (401, 600), (601, 800), (801, 1000)]


def test_a_heavy_job_has_as_many_more_as_it_has_cpus_and_comes_first_as_in_the_manifest():
    shards = "worker-heavy:1x1:60000,worker:7x1:20000"
    assert first_and_last(shard(1000, environ=task(shards, "worker-heavy", 0))) == (1, 300)
    found = [first_and_last(shard(1000, environ=task(shards, "worker", job))) for job in range(7)]
    assert found == [(301 + 100 * job, 400 + 100 * job) for job in range(7)]


@pytest.mark.parametrize(("job", "completion", "expected"), [(0, 0, (1, 10)), (0, 1, (11, 20)), (8, 5, (851, 860))])
def test_completions_divide_the_part_of_their_job(job, completion, expected):
    """All at once or a few at a time: which part is a task's does not depend on when it runs."""
    assert first_and_last(shard(1000, environ=task("worker:10x10:2000", "worker", job, completion))) == expected


def test_weights_may_be_given_instead_of_cpus():
    shards = "a:1x1:1000,b:1x1:1000"
    given_weights = {"a": 3, "b": 1}
    assert [len(shard(100, given_weights, task(shards, name, 0))) for name in "ab"] == [75, 25]


def test_a_gang_goes_by_rank_an_array_by_index_and_one_task_alone_has_all():
    assert shard(10, environ={"WORLD_SIZE": "4", "RANK": "3", "SWELL_TASK_COUNT": "4"}) == range(7, 10)
    assert shard(10, environ={"SWELL_TASK_COUNT": "5", "SWELL_TASK_INDEX": "1", "WORLD_SIZE": "1"}) == range(2, 4)
    assert shard(10, environ={}) == range(10)


@pytest.mark.parametrize(
    ("environ", "weights", "said"),
    [
        (task("worker:1x1:1", "other", 0), None, "this task is of type 'other'"),
        (task("worker:x", "worker", 0), None, "SWELL_SHARDS cannot be read"),
        (task("worker:1x1:1", "worker", 7), None, "this task is number 7 of 1"),
        (task("worker:1x1:1", "worker", 0), {}, "weights must be above 0 for every type: worker"),
    ],
)
def test_what_cannot_be_divided_says_why(environ, weights, said):
    with pytest.raises(ValueError, match=said):
        shard(10, weights, environ)


TYPES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 100_000)), min_size=1, max_size=4)


@given(TYPES, st.integers(0, 5000))
def test_no_item_is_lost_and_none_is_there_twice(types, n):
    shards = ",".join(f"t{number}:{jobs}x{pods}:{weight}" for number, (jobs, pods, weight) in enumerate(types))
    found = [
        item
        for number, (jobs, pods, _) in enumerate(types)
        for job in range(jobs)
        for completion in range(pods)
        for item in shard(n, environ=task(shards, f"t{number}", job, completion))
    ]
    assert found == list(range(n))
