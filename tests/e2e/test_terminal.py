"""What a user writes into a job does not command the terminal of whoever looks at it."""

from __future__ import annotations

import json
import re

import pytest

from server import Server

pytestmark = pytest.mark.slow

HOSTILE = "/nope\x1b]0;owned\x07\x1b[2J\u202e\udcff\r"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


# `swell logs` is not here: a job's output is its own, colours included.
def test_no_command_that_is_for_people_hands_on_what_a_terminal_obeys(tmp_path):
    """An administrator who asked `swell why` had the title of their window set by a user's working directory."""
    with Server(tmp_path) as server:
        job = server.start("--workdir", HOSTILE, "--env", f"A={HOSTILE}", "--", "echo", HOSTILE)
        problem = server.until(job, "failed")["reason"]["evidence"]["problem"]
        assert HOSTILE in problem
        commands = (
            ["ps", "-a"],
            ["ps", "-a", "-o", "wide"],
            ["show", str(job)],
            ["why", str(job)],
            ["events", str(job)],
            ["wait", str(job)],
            ["nodes"],
            ["usage"],
            ["run", "--name", HOSTILE, "--", "true"],
            ["show", HOSTILE],
        )
        for words in commands:
            done = server.swell(*words)
            assert OBEYED.findall(done.stdout + done.stderr) == [], (words, done)
        why = server.swell("why", str(job))
        assert "/nope\\x1b]0;owned\\x07\\x1b[2J\\u202e\\udcff\\x0d" in why.stdout
        shown = json.loads(server.swell("show", str(job), "-o", "json").stdout)
        assert shown["spec"]["workdir"] == HOSTILE
