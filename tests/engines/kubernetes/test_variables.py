"""What is every task of an attempt told?"""

from __future__ import annotations

from dataclasses import replace

from swell.engines.kubernetes.attempt.api_calls import variables
from swell.model.task_environment import Ranks

from .pieces import SECOND, make_wanted

STORE = "0123456789abcdef"


def test_a_gang_is_told_what_it_is_and_where() -> None:
    assert variables(make_wanted(2, gpus=4, own={"SWELL_CHECKPOINTS": "/c"}), STORE) == {
        "PYTHONUNBUFFERED": "1",
        "SWELL_CHECKPOINTS": "/c",
        "SWELL_JOB_ID": "7",
        "SWELL_JOB_NAME": "train",
        "SWELL_ATTEMPT": "7.1",
        "SWELL_TASK_COUNT": "2",
        "SWELL_ON_YIELD": "wait",
        "SWELL_LAST_WORDS": "/dev/termination-log",
        "NUM_GPUS": "4",
        "NUM_NODES": "2",
        "NODELIST": "n1,n2",
        "JOB_UUID": "01234567-7",
        "JOB_RESTARTED": "FALSE",
    }


def test_one_that_is_alone_is_rank_0_of_1_and_a_later_attempt_says_so() -> None:
    told = variables(make_wanted(1, attempt=SECOND, ranks=Ranks.ALONE), STORE)

    named = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "JOB_RESTARTED")
    assert {name: told.get(name) for name in named} == dict(zip(named, ("0", None, "1", "TRUE"), strict=True))


def test_one_that_starts_a_rank_for_each_of_its_gpus_is_told_of_none() -> None:
    told = variables(make_wanted(1, gpus=4, ranks=Ranks.INSIDE), STORE)

    named = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NUM_GPUS")
    assert {name: told.get(name) for name in named} == dict(zip(named, (None, None, "1", "4"), strict=True))


def test_an_array_counts_all_its_indices_whatever_runs_at_once_and_is_left() -> None:
    told = variables(replace(make_wanted(2, is_array=True, indices="5-9", attempt=SECOND), tasks=10), STORE)

    named = ("SWELL_TASK_COUNT", "JOB_RESTARTED", "RANK")
    assert {name: told.get(name) for name in named} == dict(zip(named, ("10", "FALSE", None), strict=True))
