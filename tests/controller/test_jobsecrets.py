"""The secret that jobs' tokens are made with can be replaced while jobs run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from swell.controller.jobsecrets import open_job_secrets
from swell.controller.reporting import make_token
from swell.machine.state_folder import StateFolder
from swell.model.job import AttemptId

OLD, NEW = AttemptId(1, 1), AttemptId(2, 1)
MADE = {OLD: 10.0, NEW: 30.0}  #: attempts that live, and when they were made
FOREVER = 1e9


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path / "state")
    made.prepare()
    return made


def opened(state: StateFolder, made: dict[AttemptId, float]):
    return open_job_secrets(state, made.get)


def test_attempts_that_run_keep_their_tokens_and_new_ones_get_others(state):
    secrets = opened(state, MADE)
    first = secrets.of(10.0)
    theirs = make_token(first, OLD, FOREVER)
    secrets.rotate(20.0)
    assert secrets.of(10.0) == first, "a launch that is sent again is the same"
    assert secrets.of(30.0) != first
    assert secrets.read(theirs, 40.0) == OLD
    assert secrets.read(make_token(secrets.of(30.0), NEW, FOREVER), 40.0) == NEW


def test_whoever_has_the_old_secret_can_speak_for_no_attempt_that_came_after_it(state):
    secrets = opened(state, MADE)
    leaked = secrets.of(10.0)
    secrets.rotate(20.0)
    assert secrets.read(make_token(leaked, NEW, FOREVER), 40.0) is None, "made after the rotation"
    assert secrets.read(make_token(leaked, AttemptId(9, 9), FOREVER), 40.0) is None, "never made, or ended"
    assert secrets.read(make_token(leaked, OLD, 35.0), 40.0) is None, "expired"
    assert secrets.read(make_token("guessed", OLD, FOREVER), 40.0) is None


def test_an_old_secret_is_forgotten_when_the_last_attempt_that_knew_it_has_ended(state):
    made = dict(MADE)
    secrets = opened(state, made)
    first = secrets.of(10.0)
    secrets.rotate(20.0)
    secrets.forget_unused(lambda: min(made.values(), default=None))
    assert first in state.retired_job_secrets.read_text()
    assert secrets.read(make_token(first, OLD, FOREVER), 40.0) == OLD
    del made[OLD]
    assert secrets.read(make_token(first, OLD, FOREVER), 40.0) is None, "at once, before anybody tidies up"
    secrets.forget_unused(lambda: min(made.values(), default=None))
    assert state.retired_job_secrets.read_text() == "[]"


@pytest.mark.parametrize("rotations", [1, 3])
def test_after_a_restart_it_is_all_the_same(state, rotations):
    secrets = opened(state, MADE)
    theirs = make_token(secrets.of(10.0), OLD, FOREVER)
    for number in range(rotations):
        secrets.rotate(20.0 + number)
    again = opened(state, MADE)
    assert [again.of(at) for at in (10.0, 20.5, 30.0)] == [secrets.of(at) for at in (10.0, 20.5, 30.0)]
    assert again.read(theirs, 40.0) == OLD
    for path in (state.job_secret, state.retired_job_secrets):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_crash_between_the_two_files_leaves_every_token_good(state):
    secrets = opened(state, MADE)
    before = state.job_secret.read_text()
    theirs = make_token(secrets.of(10.0), OLD, FOREVER)
    secrets.rotate(20.0)
    state.job_secret.write_text(before)
    again = opened(state, MADE)
    assert again.read(theirs, 40.0) == OLD
    assert again.of(30.0) == again.of(10.0) == before.strip()
