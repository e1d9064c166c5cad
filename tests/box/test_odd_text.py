"""What one user writes, in whatever letters, stops nobody else."""

from __future__ import annotations

import json

import pytest

from box.machine import SYSTEM_PYTHON

pytestmark = pytest.mark.slow

ODD = "/nope\udcff"  # as a shell passes $'/nope\xff' on


def test_a_workdir_that_is_no_utf_8_fails_its_own_job_and_nobody_elses(box):
    """Nothing started or ended any more for anybody: the cycle that should have recorded why it failed could not be."""
    anna, ben, _ = box.people
    annas = anna.start("--workdir", ODD, "--", "true")
    bens = ben.start("--", "true")
    assert box.until(bens, "succeeded", "failed")["state"] == "succeeded"
    assert box.until(annas, "failed")["reason"]["evidence"]["problem"] == (
        f"the working directory {ODD} cannot be entered; it must exist on this machine"
    )
    for words in (["why", str(annas)], ["show", str(annas)], ["ps", "-a"], ["events", str(annas)]):
        assert anna.swell(*words).code == 0, words


def test_odd_text_anywhere_in_a_job_is_no_trouble_for_the_next(box):
    anna, ben, _ = box.people
    says = "import os, sys; os.write(1, os.fsencode(sys.argv[1]) + os.environb[b'ODD'] + bytes(range(256)))"
    odd = "\udcff\udc80\u202e\x1b[31m\U0001f600\u2028"
    jobs = [
        anna.start("--", SYSTEM_PYTHON, "-c", says, odd, env={"ODD": odd}),
        anna.start("--env", f"ODD={odd}", "--", "sh", "-c", "exit 3"),
        anna.start("--", f"/nowhere/{odd}"),
        anna.start("--array", "0-1", "--workdir", f"/{odd}", "--", "true"),
        anna.start("--notify", f"echo {odd}", "--", "true"),
    ]
    ended = [box.until(job, "succeeded", "failed")["state"] for job in jobs]
    assert ended == ["succeeded", "failed", "failed", "failed", "succeeded"]
    for job in jobs:
        assert json.loads(anna.swell("show", str(job), "-o", "json").stdout)["id"] == job
    assert box.until(ben.start("--", "true"), "succeeded", "failed")["state"] == "succeeded"
