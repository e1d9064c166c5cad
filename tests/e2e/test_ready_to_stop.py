"""A job that waits to be stopped instead of exiting yields, comes back wider and loses nothing: real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server import Gate, Server

from .training import EXAMPLES, read_story, until_trained

pytestmark = pytest.mark.slow

EPOCHS = 40


def test_a_gang_that_waits_to_be_stopped_is_widened_and_loses_nothing(tmp_path: Path) -> None:
    """Both ranks wait after the same epoch; SIGTERM is ours, and comes as soon as rank 0 is ready.

    Its width is asked for by hand: on a busy machine epochs on three ranks may take longer than on two, and the planner
    would then take a rank away again.
    """
    with Server(tmp_path, gpus=0, cpus=3) as server:
        gate = Gate(tmp_path / "gate")
        first = server.start("--", "sh", "-c", f"read line < {gate}")
        server.until(first, "running")
        words = ("--tasks", "1..3", "--epochs", str(EPOCHS), "--env", "SWELL_ON_YIELD=wait")
        command = (sys.executable, str(EXAMPLES / "plain/train.py"), "--step-s", "0.02")
        job = server.start(*words, "--", *command)
        until_trained(server, job, width=2)
        assert server.swell("scale", str(job), "3").code == 0
        gate.open()
        until_trained(server, job, width=3)
        server.until(job, "succeeded", patience_s=90)
        gate.close()

        story = read_story(server, job)
        assert story.epochs == list(range(1, EPOCHS + 1)), "no epoch twice, none left out"
        assert [(life.width, life.outcome, life.codes) for life in story.lives] == [
            (2, "yielded", [75, 75]),
            (3, "succeeded", [0, 0, 0]),
        ]
        asked = ["AskedToYield", "Stopping", "Yielded", "Started", "Running", "Ended"]
        assert [event["kind"] for event in story.document["events"]][-6:] == asked
        counted = [story.document[name] for name in ("resizes", "failures", "lost_gpu_seconds")]
        assert counted == [1, 0, 0.0]
