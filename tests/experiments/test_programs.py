"""What is kept of a contender's program? A real process, and its log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from swell.experiments.experiment import ContenderWanted
from swell.experiments.kubernetes.contender import ClusterContender, Surroundings
from swell.experiments.kubernetes.programs import LOG_BYTES_MAX, ContenderProgram, shortened

WAITS = "import signal; signal.pause()"


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (b"", b""),
        (b"0123456789", b"0123456789"),
        (b"0123456789x", b"01234\n... 1 bytes are left out here ...\n6789x"),
        (b"a" * 50 + b"b" * 50, b"aaaaa\n... 90 bytes are left out here ...\nbbbbb"),
    ],
)
def test_of_a_long_log_its_beginning_and_its_end_are_kept(tmp_path: Path, log: bytes, kept: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(log)
    assert shortened(path, 10) == kept


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert shortened(tmp_path / "none", 10) == b""


def test_command_configuration_and_log_of_a_program_are_kept(tmp_path: Path) -> None:
    around = Surroundings(*[cast("Any", None)] * 5, tmp_path)
    contender = ClusterContender(ContenderWanted("mine", "mine"), around)
    assert contender.files() == {}

    command = [sys.executable, "-c", f"print('x' * {LOG_BYTES_MAX + 10} + 'the end', flush=True); {WAITS}"]
    contender.program = ContenderProgram("mine", command, tmp_path / "mine.log")
    contender.configuration = {"policy": "fifo"}
    contender.program.start()
    contender.program.wait_until(lambda: b"the end" in contender.files()["contender.log"])
    contender.stop()
    kept = contender.files()
    assert json.loads(kept["contender.json"]) == {"command": command, "configuration": {"policy": "fifo"}}
    assert b"... " in kept["contender.log"]
    assert LOG_BYTES_MAX < len(kept["contender.log"]) < LOG_BYTES_MAX + 100
