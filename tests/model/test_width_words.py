"""Words of a manifest that follow the number of GPUs, on machines and in pods alike."""

from __future__ import annotations

import pytest

from swell.model.width_words import following_command, following_value


@pytest.mark.parametrize(
    ("name", "text", "value"), [("NGPU", "1", "4"), ("NGPU", "", "4"), ("OTHER", "1", "1"), ("ngpu", "1", "1")]
)
def test_a_variable_ngpu_is_the_number_of_gpus(name: str, text: str, value: str) -> None:
    assert following_value(name, text, 4) == value


@pytest.mark.parametrize(
    ("word", "resized", "fixed"),
    [
        ("--num_processes=1", "--num_processes=4", "--num_processes=1"),
        ("launch --num_processes=16 -x", "launch --num_processes=4 -x", "launch --num_processes=16 -x"),
        ("--num_processes", "--num_processes", "--num_processes"),
        ("--num_processes=auto", "--num_processes=auto", "--num_processes=auto"),
        ("train.py", "train.py", "train.py"),
    ],
)
def test_num_processes_follows_in_a_job_that_may_be_resized(word: str, resized: str, fixed: str) -> None:
    told = [following_command([word], 4, is_elastic=is_elastic) for is_elastic in (True, False)]
    assert told == [(resized,), (fixed,)]
