"""Commands that an administrator types do what the documents say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from box.ports import keep_port

from .blocks import Block
from .reader import Reader, registered
from .recipes import Tier
from .registry import RECIPES

pytestmark = pytest.mark.slow
PATIENCE_S = 30.0


@pytest.mark.parametrize("block", registered(Tier.BOX), ids=lambda block: block.key)
def test_a_block_does_what_it_shows(block: Block, tmp_path: Path, box_port: int) -> None:
    """Below a folder instead of /, while the service runs as systemd would run it."""
    assert os.geteuid() == 0, "only root may install a service: sudo make test"
    state, socket = tmp_path / "var/lib/swell", tmp_path / "run/swell/swell.sock"
    socket.parent.mkdir(parents=True)
    keep_port(state, box_port)
    words = [Path(sys.executable).with_name("swell"), "service", "run", "--state", state, "--socket", socket]
    with (tmp_path / "log").open("wb") as log:
        service = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + PATIENCE_S
        while not socket.exists():
            assert service.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.05)
        Reader(tmp_path, {**os.environ, "SWELL_SOCKET": str(socket)}, {}).follow(block, RECIPES[block.key], None)
    finally:
        service.terminate()
        service.wait(timeout=PATIENCE_S)
