"""A job that is resized in the middle of an epoch goes on there, on a real server with real ranks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from server import Server

STEPS = 400
#: Each rank notes each step that it does; one epoch takes far longer than this test has.
SCRIPT = f"""
import json, pathlib, time
import swell_sdk
run = swell_sdk.attach()
seen = json.loads(pathlib.Path(run.checkpoint_path).read_text()) if run.checkpoint_path else []
run.on_yield(lambda path: pathlib.Path(path).write_text(json.dumps(seen)))
for epoch in run.epochs(1):
    for step in run.steps(range({STEPS})):
        seen.append(step)
        if step == 60:
            pathlib.Path(f"at-60-rank-{{run.rank}}-of-{{run.world_size}}").touch()
        time.sleep(0.05 if run.world_size > 1 else 0.001)
pathlib.Path(f"seen-by-{{run.rank}}-of-{{run.world_size}}").write_text(json.dumps(seen))
"""


@pytest.mark.slow
def test_a_gang_that_is_resized_inside_an_epoch_does_every_step_once(own_server: Server, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    work = tmp_path / "work"
    work.mkdir()
    sdk = Path(__file__).parents[2] / "sdk" / "src"
    words = ("--name", "stepper", "--tasks", "1..2", "--cpus", "1", "--epochs", "1", "--workdir", str(work))
    environ = {**os.environ, "PYTHONPATH": str(sdk)}
    job = own_server.start(*words, "--", sys.executable, str(script), env=environ)
    assert own_server.swell("scale", str(job), "2").code == 0
    own_server.until_true(job, lambda document: (document["width"], document["state"]) == (2, "running"))
    own_server.until_true(job, lambda _: len(list(work.glob("at-60-rank-*-of-2"))) == 2)
    assert own_server.swell("scale", str(job), "1").code == 0
    own_server.until(job, "succeeded", patience_s=60)

    shown = own_server.client().show(job)
    last = shown["attempts"][-1]
    assert json.loads((work / "seen-by-0-of-1").read_text()) == list(range(STEPS)), "every step once, in order"
    assert [one["outcome"] for one in shown["attempts"]][-2:] == ["yielded", "succeeded"]
    assert shown["attempts"][-2]["width"] == 2
    assert 0 < last["resumed_from_epoch"] < 1
    assert (shown["lost_gpu_seconds"], shown["failures"]) == (0.0, 0)
