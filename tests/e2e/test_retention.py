"""What is old goes, on a real server: history and logs; checkpoints go when somebody says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from server import PATIENCE_S, Server

pytestmark = pytest.mark.slow

SAVE = "mkdir -p $SWELL_CHECKPOINTS && echo weights > $SWELL_CHECKPOINTS/model"


def test_ended_jobs_go_with_their_logs_and_their_checkpoints_stay(tmp_path: Path) -> None:
    named = tmp_path / "models"
    with Server(tmp_path, "--keep", "1s") as server:
        for options in ((), ("--checkpoints", str(named))):
            assert server.swell("run", *options, "--", "sh", "-c", SAVE).code == 0
        assert server.state.read_json(server.state.config)["keep_s"] == 1.0
        end = time.monotonic() + PATIENCE_S
        while {1, 2} & {job["id"] for job in server.jobs()}:
            assert time.monotonic() < end, "they are still there"
            server.swell("run", "--", "true")  # something happens, so the loop looks
        assert not (server.state.tasks / "1.1").exists()
        assert (server.state.checkpoints / "1/model").read_text() == "weights\n"
        assert (named / "model").read_text() == "weights\n"
        assert server.swell("usage", "-o", "json").json["total"]["attempts"] >= 2


def test_a_deleted_job_goes_with_its_checkpoints_but_not_with_what_its_user_named(tmp_path: Path) -> None:
    named = tmp_path / "models"
    with Server(tmp_path) as server:
        for options in ((), ("--checkpoints", str(named))):
            assert server.swell("run", *options, "--", "sh", "-c", SAVE).code == 0
        assert server.swell("delete", "1", "2").code == 0
        assert not (server.state.tasks / "1.1").exists()
        assert not (server.state.checkpoints / "1").exists()
        assert (named / "model").read_text() == "weights\n"
