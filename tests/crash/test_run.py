"""`swell run` outlives its server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swell.client.embedded import stop_server
from swell.machine.state_folder import StateFolder

SWELL = str(Path(sys.executable).with_name("swell"))
SCRIPT = 'echo one; while [ ! -e "$0" ]; do sleep 0.05; done; echo two; exit 4'


@pytest.mark.slow
def test_a_run_whose_server_is_killed_shows_everything_once_and_ends_with_the_jobs_code(tmp_path: Path) -> None:
    state, gate = StateFolder(tmp_path / "state"), tmp_path / "gate"
    argv = [SWELL, "run", "--state", str(state), "--", "sh", "-c", SCRIPT, str(gate)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        first = process.stdout.readline()
        os.kill(state.lock_holder("server") or 0, signal.SIGKILL)
        gate.touch()
        rest = process.stdout.read()
        assert (first + rest, process.wait(60)) == ("one\ntwo\n", 4)
        assert "the server has crashed; restarting it (the job keeps running)" in process.stderr.read()
    finally:
        stop_server(state)
