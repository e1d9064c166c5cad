"""A box server and a private one never share a folder: what one runs as itself the other runs as somebody else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from server import SWELL, Result

pytestmark = pytest.mark.slow


def swell(*words: str) -> Result:
    done = subprocess.run(
        [SWELL, *words], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_a_private_server_does_not_take_over_a_box_servers_folder(tmp_path: Path):
    (tmp_path / "state" / "tokens").mkdir(parents=True)
    done = swell("run", "--state", str(tmp_path / "state"), "--", "true")
    assert (done.code, done.stderr) == (
        125,
        (
            f"swell: the server did not start: {tmp_path}/state belongs to this machine's box server; start "
            "that server: systemctl start swell\n"
        ),
    )


def test_a_box_server_does_not_serve_what_somebody_else_could_have_written(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 1, 1)
    done = swell("service", "run", "--state", str(state), "--socket", str(tmp_path / "s"))
    assert (done.code, done.stderr) == (
        2,
        f"swell: {state} belongs to another user, who could run programs as you; name another folder\n",
    )
    assert list(state.iterdir()) == []


def test_a_mistake_in_the_settings_keeps_the_server_from_starting_and_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"limits": {"default": {"gpu": 4}}}')
    done = swell("service", "run", "--state", str(tmp_path), "--socket", str(tmp_path / "s"))
    assert (done.code, done.stderr) == (
        1,
        f"swell: {tmp_path}/config.json: limits.default has no 'gpu'; did you mean 'gpus'?\n",
    )
