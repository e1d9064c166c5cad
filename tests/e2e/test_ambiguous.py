"""A name that several jobs have: fine for looking, refused for changing."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_an_ambiguous_name_is_refused_for_cancel_and_delete_and_nothing_changes(server):
    jobs = [server.start("--name", "twins", "--wait-for-nodes", "--gpus", "64", "--", "true") for _ in range(2)]
    server.until_true(jobs[-1], lambda document: document["reason"]["code"] == "CannotRunHere")
    before = server.settled()
    done = server.swell("cancel", "twins")
    said = f"swell: 2 jobs are named 'twins'; name the job by id: {jobs[1]}, {jobs[0]}\n"
    assert (done.code, done.stderr) == (2, said)
    assert server.settled() == before
    assert server.swell("show", "twins", "-o", "json").json["id"] == jobs[1]

    server.swell("cancel", *map(str, jobs), "--wait")
    before = server.settled()
    done = server.swell("delete", "twins")
    assert (done.code, done.stderr) == (2, said)
    assert server.settled() == before
    server.swell("delete", *map(str, jobs))
