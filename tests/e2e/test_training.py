"""Training changes its width and its place in the queue without losing work: real processes, real PyTorch."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server import Gate, Server

from .flood import Flood
from .training import EXAMPLES, SDK, Life, read_story, until_trained

pytestmark = pytest.mark.slow

TORCH = "/usr/bin/python3"  # Debian's, which is where python3-torch is
DDP = EXAMPLES / "pytorch/ddp.py"
EPOCHS = 110  # on a busy machine the steps of the test take longer than 60 do
SAMPLE_S = 0.0012  # an epoch takes 0.6 s at width 1, and a third of that at width 3


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[Server]:
    """Three CPUs: room is short."""
    with Server(tmp_path, gpus=0, cpus=3) as one:
        yield one


def wait_at(gate: Gate) -> tuple[str, ...]:
    return "sh", "-c", f"read line < {gate}"


def uninterrupted(epochs: int, lives: list[Life]) -> list[float]:
    """The loss of every epoch in a run that nobody stopped, but that has these widths from these samples on."""
    began = [(life.width, *life.began) for life in lives if life.began is not None]
    assert len(began) == len(lives), lives
    words = [TORCH, str(Path(__file__).with_name("replay.py")), str(epochs)]
    words += [f"{width}@{done}.{samples}" for width, done, samples in began]
    paths = f"{SDK}:{EXAMPLES / 'pytorch'}"
    done = subprocess.run(words, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in done.stdout.split()]


def test_ddp_is_widened_narrowed_scaled_and_preempted_and_learns_as_if_nothing_had_happened(
    small_server: Server, tmp_path: Path
) -> None:
    """Every epoch once, and the loss of each as in a run of one process that was never stopped.

    A run at one width throughout would be no measure: averaging over two or three shares is other arithmetic, so from
    the first change on it learns something else. The reference therefore has the same width at every step, and
    shares with the job only its data and its network: no checkpoint, no second process.
    """
    server, gates = small_server, [Gate(tmp_path / name) for name in ("first", "second", "urgent")]
    first = server.start("--name", "first", "--", *wait_at(gates[0]))
    server.until(first, "running")
    words = ("--name", "ddp", "--tasks", "1..3", "--epochs", str(EPOCHS), "--grace", "10s")
    command = (TORCH, str(DDP), "--sample-s", str(SAMPLE_S))
    job = server.start(*words, "--", *command, env={"PYTHONPATH": str(SDK)})
    until_trained(server, job, width=2)

    gates[0].open()
    until_trained(server, job, width=3)

    second = server.start("--name", "second", "--", *wait_at(gates[1]))
    server.until(second, "running", patience_s=60)
    until_trained(server, job, width=2)

    assert server.swell("scale", str(job), "1").code == 0
    until_trained(server, job, width=1)

    urgent = server.start("--name", "urgent", "--priority", "9", "--cpus", "2", "--", *wait_at(gates[2]))
    server.until(urgent, "running", patience_s=60)
    why = server.swell("why", str(job)).stdout
    assert server.swell("scale", str(job), "auto").code == 0
    gates[1].open()
    gates[2].open()
    server.until(job, "succeeded", patience_s=150)

    story = read_story(server, job)
    assert story.epochs == list(range(1, EPOCHS + 1)), "no epoch twice, none left out"
    assert story.asked[:4] == [
        "grows from 2 to 3",
        f"shrinks from 3 to 2 for job {second}",
        "scaled to 1 on request",
        f"preempted by job {urgent}",
    ]
    assert why.endswith(f"note: attempt 4 was asked to free its resources: preempted by job {urgent}\n"), why
    assert [life.width for life in story.lives[:4]] == [2, 3, 2, 1]
    assert [life.outcome for life in story.lives] == [*["yielded"] * (len(story.lives) - 1), "succeeded"]
    counted = [story.document[name] for name in ("preemptions", "failures", "lost_gpu_seconds")]
    assert counted == [1, 0, 0.0]
    assert story.losses == pytest.approx(uninterrupted(EPOCHS, story.lives), abs=1e-6, rel=0)
    for gate in gates:
        gate.close()


def test_ddp_is_preempted_and_resized_inside_an_epoch_and_sees_every_sample_once(tmp_path: Path) -> None:
    """Two ranks with gloo, preempted in one epoch and narrowed in the next, each time in its middle."""
    seen, watched = tmp_path / "seen", Path(__file__).with_name("watched_ddp.py")
    seen.mkdir()
    with Server(tmp_path, gpus=2, cpus=3) as server:
        told = {"PYTHONPATH": f"{SDK}:{EXAMPLES / 'pytorch'}", "STEP_S": "1", "SEEN": str(seen)}
        words = ("--tasks", "1..2", "--gpus", "1", "--epochs", "3", *(f"--env={k}={v}" for k, v in told.items()))
        job = server.start(*words, "--", TORCH, str(watched))
        asked_at = []
        for attempt, (words, epoch) in enumerate(((("requeue",), 0), (("scale", "1"), 1)), 1):
            server.until_true(
                job,
                lambda _, at=attempt, n=epoch: any(one["attempt"] == at and one["epoch"] == n for one in read(seen)),
                patience_s=90,
            )
            server.until_true(job, lambda _, words=words: ask(asked_at, server, words[0], str(job), *words[1:]))
        server.until(job, "succeeded", patience_s=150)
        story = read_story(server, job)

    steps = read(seen)
    for epoch in range(3):
        samples = [sample for one in steps if one["epoch"] == epoch for sample in one["samples"]]
        assert sorted(samples) == list(range(512)), f"epoch {epoch + 1}: every sample once"
    assert [(life.width, life.outcome) for life in story.lives] == [(2, "yielded"), (2, "yielded"), (1, "succeeded")]
    began = [life.began for life in story.lives]
    assert [one[0] for one in began if one] == [0, 0, 1]
    assert all(one and one[1] > 0 for one in began[1:]), f"not inside an epoch: {began}"
    assert story.losses == pytest.approx(uninterrupted(3, [story.lives[0], story.lives[2]]), abs=1e-6, rel=0)
    counted = [story.document[name] for name in ("preemptions", "resizes", "failures", "lost_gpu_seconds")]
    assert counted == [1, 1, 0, 0.0]
    for number, (asked, kind) in enumerate(zip(asked_at, ("preempted", "resized"), strict=True), 1):
        last = max(one["at"] for one in steps if one["attempt"] == number)
        again = min(one["at"] for one in steps if one["attempt"] == number + 1)
        print(
            f"{kind}: {last - asked:.1f} s from asked to its last step, {again - asked:.1f} s to training again, ",
            end="",
        )
        print(f"{story.document['lost_gpu_seconds']:.0f} GPU-seconds lost")


def ask(asked_at: list[float], server: Server, *words: str) -> bool:
    """Taken from when the job has told that it can save at a step: a second or so after its first one."""
    moment = time.time()
    is_taken = server.swell(*words).code == 0
    asked_at += [moment] if is_taken else []
    return is_taken


def read(seen: Path) -> list[dict[str, Any]]:
    """What every rank of every attempt has trained on, as far as whole lines of it are there."""
    lines = (path.read_text().split("\n")[:-1] for path in seen.iterdir())
    return [json.loads(line) for line in itertools.chain.from_iterable(lines)]


def test_every_life_of_a_job_has_its_own_beginning(server: Server) -> None:
    """Attempts were recorded as begun when the first one began: with every resize all run time before counted once more
    against the time limit, and what was killed before its first checkpoint seemed to lose everything since then.
    """
    job = server.start("--retries", "1", "--", "sh", "-c", "exit 3")
    server.until(job, "failed")
    shown = server.client().show(job)
    first, second = shown["attempts"]
    assert first["created_at"] < first["started_at"] < first["ended_at"] < second["created_at"] < second["started_at"]
    assert shown["started_at"] == first["started_at"]


def test_training_goes_on_while_somebody_floods_the_reports(small_server: Server, tmp_path: Path) -> None:
    """10,000 requests, most of them nonsense, some of 10 MB, with the job's own token, a forged one and none."""
    server, epochs, told, gate = small_server, 60, tmp_path / "told", Gate(tmp_path / "gate")
    say = f'printenv SWELL_URL SWELL_TOKEN SWELL_ATTEMPT > {told}.new; mv {told}.new {told}; "$@" && read line < {gate}'
    command = ("sh", "-c", say, "sh", sys.executable, str(EXAMPLES / "plain/train.py"), "--step-s", "0.01")
    job = server.start("--epochs", str(epochs), "--", *command)
    server.until_true(job, lambda document: bool(document["progress"]["epochs_done"]))
    with Flood(*told.read_text().split()) as flood:
        listed = []
        while flood.is_under_way:
            done = server.swell("ps", "-o", "json", timeout_s=20)
            listed += [(done.code, one["state"]) for one in done.json]
    assert len(listed) >= 3, "the flood was over too soon to be in anybody's way"
    gate.open()
    assert set(listed) == {(0, "running")}
    assert (flood.sent, set(flood.answers) - {200, 401, 403, 413, 422, 429}) == (10_000, set())
    assert {401, 403, 413, 422, 429} <= set(flood.answers)

    server.until(job, "succeeded")
    [life] = (story := read_story(server, job)).lives
    assert (life.epochs, life.codes) == (list(range(1, epochs + 1)), [0])
    assert story.document["progress"]["epochs_done"] == epochs
    assert story.document["lost_gpu_seconds"] == 0.0
    gate.close()
