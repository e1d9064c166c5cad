"""What must hold when a script for KubeProfiler is resized, whatever it computes? `make soak` asks it of TensorFlow."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from server import Gate, Server

from .training import EPOCH, EXAMPLES, SDK, Story, read_story, until_trained

STEP_S = 0.008  # an epoch takes 0.4 s on one GPU, half of that on two
PATIENCE_S = 90.0
LOSS_CLOSE = 1e-6
KERAS_EPOCHS = 120  # so many that widening pays although TensorFlow takes seconds to start


def resized(folder: Path, gate: Gate, *, command: tuple[str, ...], epochs: int, **variables: str) -> Story:
    """Down because another job comes, up because it ends.

    How often it changes its width after that is the planner's affair: TensorFlow's first epoch in every life is slow,
    which it takes for the width's (docs/flaws.md).
    """
    with Server(folder, gpus=2, cpus=4) as server:
        opened = server.client().open_door("kubeprofiler", 0)["url"]
        told = {"STEP_S": str(STEP_S), "PYTHONPATH": str(SDK), "OPENED": opened, **variables}
        words = ("--gpus", "1..2", "--epochs", str(epochs), *(f"--env={name}={text}" for name, text in told.items()))
        job = server.start(*words, "--", *command)
        until_trained(server, job, width=2)
        other = server.start("--gpus", "1", "--", "sh", "-c", f"read line < {gate}")
        server.until(other, "running", patience_s=PATIENCE_S)
        until_trained(server, job, width=1)
        gate.open()
        until_trained(server, job, width=2)
        server.until(job, "succeeded", patience_s=PATIENCE_S)
        story = read_story(server, job)

    assert story.asked[:2] == [f"shrinks from 2 to 1 for job {other}", "grows from 1 to 2"], story.asked
    lives = [(life.outcome, life.codes) for life in story.lives]
    assert lives == [*[("yielded", [0])] * (len(lives) - 1), ("succeeded", [0])], lives
    assert story.epochs == list(range(1, epochs + 1)), f"an epoch twice, or one left out: {story.epochs}"
    counted = [story.document[name] for name in ("resizes", "preemptions", "failures", "lost_gpu_seconds")]
    assert counted == [len(lives) - 1, 0, 0, 0.0], counted
    return story


def play_keras(python: str) -> list[str]:
    """What went wrong with the Keras script; empty when it learnt as if nobody had touched it."""
    with tempfile.TemporaryDirectory(prefix="swell-keras-") as name:
        gate = Gate(Path(name) / "gate")
        try:
            command = (python, str(EXAMPLES / "kubeprofiler/keras_style.py"))
            story = resized(Path(name), gate, command=command, epochs=KERAS_EPOCHS)
            whole = _uninterrupted(Path(name), python)
        except AssertionError as problem:
            return [f"keras: {problem}"]
        finally:
            gate.close()
    far = [n + 1 for n, pair in enumerate(zip(story.losses, whole, strict=True)) if abs(pair[0] - pair[1]) > LOSS_CLOSE]
    return [f"keras: the losses of epochs {far} are not those of an uninterrupted run"] if far else []


def _uninterrupted(folder: Path, python: str) -> list[float]:
    env = {**os.environ, "PYTHONPATH": str(SDK), "EPOCHS_TO_BE_DONE": str(KERAS_EPOCHS)}
    command = [python, str(EXAMPLES / "kubeprofiler/keras_style.py")]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [float(loss) for _, loss in EPOCH.findall(done.stdout)]
