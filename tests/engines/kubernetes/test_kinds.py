"""What may be changed of a suspended object, and when another must take its place?"""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.kinds import KINDS

JOB = KINDS["Job"]


def job(count: int, *, attempt: str, gpus: int = 1, succeeded: int = 0) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"annotations": {"swell.dev/attempt": attempt}},
        "spec": {
            "completions": count,
            "parallelism": count,
            "template": {"spec": {"containers": [{"name": "main", "resources": resources}]}},
        },
        "status": {"succeeded": succeeded},
    }


def test_an_array_that_has_done_some_goes_on_in_its_job() -> None:
    """A round of faults lost an array: its Job, all at once, was taken for a gang and removed with what it had done."""
    patch = JOB.change(job(6, attempt="7.1", succeeded=1), job(6, attempt="7.2"), is_array=True)
    assert patch == {"metadata": {"annotations": {"swell.dev/attempt": "7.2"}}, "spec": {}}


def test_a_gang_of_which_some_have_ended_is_made_anew() -> None:
    assert JOB.change(job(6, attempt="7.1", succeeded=1), job(6, attempt="7.2"), is_array=False) is None


def test_other_gpus_are_another_job() -> None:
    assert JOB.change(job(6, attempt="7.1"), job(6, attempt="7.2", gpus=2), is_array=True) is None


def test_a_gang_that_has_done_nothing_gets_another_size() -> None:
    patch = JOB.change(job(6, attempt="7.1"), job(4, attempt="7.2"), is_array=False)
    assert patch == {
        "metadata": {"annotations": {"swell.dev/attempt": "7.2"}},
        "spec": {"completions": 4, "parallelism": 4},
    }
