"""Scripts that know only what the original KubeProfiler offers are resized while they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server import Gate, Server

from .kubeprofiler import resized
from .training import EXAMPLES, ROOT, SDK, Story

pytestmark = pytest.mark.slow

EPOCHS, STEPS, RATE = 40, 50, 0.001
ORIGINAL = ROOT / "tests/original"


def uninterrupted() -> list[float]:
    """What the scripts print when nobody stops them: the weight comes nearer to 1 by a thousandth in every step."""
    weight, losses = 0.0, []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            weight += RATE * (1.0 - weight)
        losses.append((1.0 - weight) ** 2)
    return losses


@pytest.mark.parametrize("script", ["plain", "lightning_style", "keras_style"])
def test_a_script_for_kubeprofiler_ends_with_0_when_asked_to_stop_and_goes_on_at_another_width(
    tmp_path: Path, gate: Gate, script: str
) -> None:
    command = (sys.executable, str(EXAMPLES / f"kubeprofiler/{script}.py"))
    story = resized(tmp_path, gate, command=command, epochs=EPOCHS)
    assert [life.width for life in story.lives] == [2, 1, 2]
    assert story.losses == pytest.approx(uninterrupted(), abs=1e-9)


#: As Lightning reckons: it goes on from the epochs of its checkpoint, up to max_epochs, which is EPOCHS - EPOCHS_DONE.
MISTAKEN = """
import sys
from kubernetesdlprofile.kubeprofiler import KubeProfiler

profiler = KubeProfiler("there", "there")
for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS - profiler.EPOCHS_DONE):
    profiler.start_epoch()
    profiler.measure()
    profiler.end_epoch()
    if epoch == 24:
        open(sys.argv[1]).readline()
profiler.end()
"""


def test_a_script_that_goes_on_and_trains_nothing_says_so(tmp_path: Path, gate: Gate) -> None:
    """It was called succeeded with half of its epochs: 'all its tasks ended well'."""
    (tmp_path / "train.py").write_text(MISTAKEN)
    with Server(tmp_path, gpus=1, cpus=4) as server:
        words = ("--gpus", "1", "--epochs", str(EPOCHS), f"--env=PYTHONPATH={SDK}")
        job = server.start(*words, "--", sys.executable, str(tmp_path / "train.py"), str(gate))
        server.until_true(job, lambda document: (document["progress"]["epochs_done"] or 0) >= 25)
        server.swell("requeue", str(job))
        gate.open()
        document = server.until(job, "succeeded", "failed")
        why = server.swell("why", str(job)).stdout
    assert (document["state"], document["reason"]["code"], document["attempts"]) == ("succeeded", "EndedEarly", 2), why
    assert "trained none of the remaining epochs, and ended with exit code 0" in why


def with_original(folder: Path, gate: Gate, address: str) -> Story:
    """All it is told of Swell is an address, in the place of its two host names."""
    script = EXAMPLES / "kubeprofiler/plain.py"
    start = f'at={address}; export JOB_MANAGER=${{at#http://}} DB=${{at#http://}}; exec "{sys.executable}" "{script}"'
    variables = {"BATCH_SIZE": "1", "TRAINING_SET_SIZE": "50", "ORIGINAL_SNAPSHOTS": str(folder / "snapshots")}
    return resized(folder, gate, command=("sh", "-c", start), epochs=EPOCHS, PYTHONPATH=str(ORIGINAL), **variables)


def test_so_does_one_with_the_original_library_through_the_door(tmp_path: Path, gate: Gate) -> None:
    story = with_original(tmp_path, gate, "$SWELL_DOOR")
    assert [life.width for life in story.lives] == [2, 1, 2]
    assert story.losses == pytest.approx(uninterrupted(), abs=1e-9)


def test_so_does_one_with_the_original_library_where_an_admin_opened_the_door(tmp_path: Path, gate: Gate) -> None:
    story = with_original(tmp_path, gate, "$OPENED")
    assert [life.width for life in story.lives][:3] == [2, 1, 2]
    assert story.losses == pytest.approx(uninterrupted(), abs=1e-9)
