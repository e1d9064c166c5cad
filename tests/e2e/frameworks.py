"""Does a framework's own training job go on through a resize as if nobody had touched it?

Each example of examples/ is run twice with the real framework: by itself on two ranks, and under Swell as its README
says, on two ranks and then on one. Every epoch must be there once, on as many ranks as were wanted, with as many steps
and the same loss. The examples divide one batch among their ranks, so the loss does not depend on the width beyond
rounding, and is another where a rank and its share of the data are missing. Those that can stop inside an epoch are
preempted there once more, at equal width: then what follows is the same to 0.000001. Ranks are CPU processes (gloo,
gRPC) on simulated GPUs. `make soak` plays all of them, because the frameworks are gigabytes.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from server import Server

from .training import EXAMPLES, SDK, Story, read_story, until_trained

EPOCHS = 40
LONG_EPOCHS = 5
LONG_STEP_S = 3.0  # an epoch of two ranks takes 12 s, so that it is stopped inside one also on a busy machine
LOSS_EQUAL = 1e-6
STEP_S = 0.06  # an epoch has 8 steps and takes 0.5 s on one rank, half of that on two
LOSS_CLOSE = 1e-4  # of losses near 0.1: sums in another order, eight times 40
PATIENCE_S = 420.0  # torch takes a minute to import on two busy cores
LINE = re.compile(r"epoch (\d+): loss ([\d.]+) in (\d+) steps, ranks: (\d+)")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


class Epoch(NamedTuple):
    """As a script printed it."""

    loss: float
    steps: int
    ranks: int  #: that the framework itself counts


Epochs = dict[int, Epoch]  #: by number
Process = tuple[list[str], dict[str, str]]  #: words, variables
Outside = Callable[[str, str], list[Process]]  #: of a Python and a script: how it is started on two ranks


@dataclass(frozen=True)
class Case:
    """One example with one framework."""

    name: str
    script: str
    options: tuple[str, ...] = ("--gpus", "1..2")
    outside: Outside = field(default=lambda *_: [])
    arguments: tuple[str, ...] = ()  #: of the script, under Swell
    steps: int = 8  #: of an epoch: 512 samples, 64 at a time
    stops_inside: bool = False  #: an epoch


def by_itself(python: str, script: str) -> list[Process]:
    """It starts its second rank itself."""
    return [([python, script], {"NUM_GPUS": "2"})]


def by_torchrun(python: str, script: str) -> list[Process]:
    words = ["-m", "torch.distributed.run", "--nnodes=1", "--node_rank=0", "--nproc_per_node=2"]
    where = ["--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    return [([python, *words, *where, script], {})]


def by_tf_config(python: str, script: str) -> list[Process]:
    workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    started = []
    for rank in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        told = {"TF_CONFIG": json.dumps(config), "RANK": str(rank), "WORLD_SIZE": "2"}
        started.append(([python, script], told))
    return started


CASES = {
    case.name: case
    for case in (
        Case("lightning", "lightning/train.py", outside=by_itself, stops_inside=True),
        Case("kubeprofiler with Lightning", "kubeprofiler/lightning_style.py", outside=by_itself),
        Case(
            "torchrun",
            "pytorch/ddp.py",
            ("--gpus", "1..2", "--torchrun"),
            outside=by_torchrun,
            stops_inside=True,
        ),
        Case(
            "Trainer",
            "huggingface/train.py",
            ("--gpus", "1..2", "--torchrun"),
            outside=by_torchrun,
            stops_inside=True,
        ),
        Case("Trainer by accelerate", "huggingface/train.py", ("--gpus", "1..2", "--accelerate"), outside=by_torchrun),
        Case("Keras, one task", "keras/train.py", outside=by_itself),
        Case("Keras", "keras/train.py", ("--tasks", "1..2", "--gpus", "1"), outside=by_tf_config),
    )
}


def play(name: str, python: str) -> list[str]:
    """What went wrong with a case; empty when it learnt as if nobody had touched it."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="swell-frameworks-") as folder:
        try:
            alone = run_outside(case, python, Path(folder))
            story, found = run_under_swell(case, python, Path(folder))
            compare(alone, found, case.steps, done=story.document["attempts"][-1]["resumed_from_epoch"] or 0.0)
        except AssertionError as problem:
            return [f"{name}: {problem}"]
    last = found[EPOCHS].loss
    widths = [life.width for life in story.lives]
    print(f"{name}: widths {widths}, {case.steps} steps an epoch, last loss {last:.6f}, alone {alone[EPOCHS].loss:.6f}")
    return []


def play_inside(name: str, python: str) -> list[str]:
    """What went wrong with a case that is preempted inside an epoch and comes back as wide as it was."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="swell-frameworks-") as folder:
        try:
            alone = run_outside(case, python, Path(folder), LONG_EPOCHS)
            found, done, took_s = preempt_inside(case, python, Path(folder))
            compare_inside(alone, found, case.steps, done)
        except AssertionError as problem:
            return [f"{name}, inside an epoch: {problem}"]
    print(f"{name}: stopped after {done:.3f} epochs, {took_s:.1f} s from asked to training again, nothing lost")
    return []


def preempt_inside(case: Case, python: str, folder: Path) -> tuple[list[Epochs], float, float]:
    """Epochs by attempt; how many were done when it stopped; seconds from asked to training again."""
    with Server(folder, gpus=2, cpus=4) as server:
        told = {"STEP_S": str(LONG_STEP_S), "PYTHONPATH": str(SDK), **QUIET}
        words = (*case.options, "--epochs", str(LONG_EPOCHS), *(f"--env={name}={text}" for name, text in told.items()))
        job = server.start(*words, "--", python, str(EXAMPLES / case.script), *case.arguments)
        until_trained(server, job, width=2, patience_s=PATIENCE_S)
        asked_at = time.monotonic()
        assert server.swell("requeue", str(job), timeout_s=PATIENCE_S).code == 0
        server.until_true(job, lambda document: document["attempts"] == 2, patience_s=PATIENCE_S)
        until_trained(server, job, width=2, patience_s=PATIENCE_S)
        took_s = time.monotonic() - asked_at
        server.until(job, "succeeded", patience_s=PATIENCE_S)
        document = server.client().show(job)
        logs = [b"".join(server.client().logs(job, rank=0, attempt=number)).decode() for number in (1, 2)]
    counted = [document[name] for name in ("preemptions", "failures", "lost_gpu_seconds")]
    assert counted == [1, 0, 0.0], counted
    return [read_epochs(log) for log in logs], document["attempts"][-1]["resumed_from_epoch"], took_s


def compare_inside(alone: Epochs, found: list[Epochs], steps: int, done: float) -> None:
    first, second = found
    cut = int(done) + 1
    assert 0 < done % 1 < 1, f"it was not stopped inside an epoch: {done}"
    assert (sorted(first), sorted(second)) == (list(range(1, cut)), list(range(cut, LONG_EPOCHS + 1))), found
    rest = {number: one.steps for number, one in second.items()}
    assert rest.pop(cut) == steps - round(done % 1 * steps), f"steps of the epoch it stopped in: {second}"
    assert set(rest.values()) <= {steps}, rest
    together = {**first, **second}
    far = [one for one in alone if one != cut and abs(alone[one].loss - together[one].loss) > LOSS_EQUAL]
    assert not far, f"other losses: {[(one, alone[one].loss, together[one].loss) for one in far]}"


def run_outside(case: Case, python: str, folder: Path, epochs: int = EPOCHS) -> Epochs:
    """Two ranks without Swell."""
    env = {name: text for name, text in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    own = {"PYTHONPATH": str(SDK), "EPOCHS_TO_BE_DONE": str(epochs), **QUIET}
    place = folder / "outside"
    place.mkdir()
    logs = []
    ranks = []
    for number, (words, told) in enumerate(case.outside(python, str(EXAMPLES / case.script))):
        logs.append(place / f"log-{number}")
        with logs[-1].open("wb") as log:
            ranks.append(
                subprocess.Popen(words, env={**env, **own, **told}, cwd=place, stdout=log, stderr=subprocess.STDOUT)
            )
    codes = [rank.wait(PATIENCE_S) for rank in ranks]
    assert set(codes) == {0}, f"by itself it ends with {codes}: {logs[0].read_text()[-3000:]}"
    return read_epochs(logs[0].read_text())


def run_under_swell(case: Case, python: str, folder: Path) -> tuple[Story, Epochs]:
    """On two ranks, scaled to one."""
    with Server(folder, gpus=2, cpus=4) as server:
        told = {"STEP_S": str(STEP_S), "PYTHONPATH": str(SDK), **QUIET}
        words = (*case.options, "--epochs", str(EPOCHS), *(f"--env={name}={text}" for name, text in told.items()))
        job = server.start(*words, "--", python, str(EXAMPLES / case.script), *case.arguments)
        until_trained(server, job, width=2, patience_s=PATIENCE_S)
        assert server.swell("scale", str(job), "1", timeout_s=PATIENCE_S).code == 0
        until_trained(server, job, width=1, patience_s=PATIENCE_S)
        server.until(job, "succeeded", patience_s=PATIENCE_S)
        story = read_story(server, job)
        logs = [
            b"".join(server.client().logs(job, rank=0, attempt=one["number"])).decode()
            for one in story.document["attempts"]
        ]
    assert [life.width for life in story.lives] == [2, 1], story.lives
    assert [life.outcome for life in story.lives] == ["yielded", "succeeded"], story.lives
    counted = [story.document[name] for name in ("resizes", "preemptions", "failures", "lost_gpu_seconds")]
    assert counted == [1, 0, 0, 0.0], counted
    halves = [read_epochs(log) for log in logs]
    for half, width in zip(halves, (2, 1), strict=True):
        assert ranks_of(half) == {width}, f"{width} ranks were wanted: {half}"
    assert not halves[0].keys() & halves[1].keys(), "an epoch twice"
    return story, {**halves[0], **halves[1]}


def compare(alone: Epochs, found: Epochs, steps: int, done: float) -> None:
    """`done`: epochs when the second attempt began. One that it finished only has the steps that were left, and the
    loss of those."""
    assert sorted(alone) == sorted(found) == list(range(1, EPOCHS + 1)), f"{sorted(alone)}, {sorted(found)}"
    assert ranks_of(alone) == {2}, f"by itself: {alone}"
    assert {one.steps for one in alone.values()} == {steps}, f"by itself: {alone}"
    cut = int(done) + 1 if done % 1 else None
    wanted = {number: steps - round(done % 1 * steps) if number == cut else steps for number in found}
    assert {number: one.steps for number, one in found.items()} == wanted, f"under Swell: {found}"
    close = [number for number in alone if abs(alone[number].loss - found[number].loss) <= LOSS_CLOSE]
    far = sorted(alone.keys() - {cut, *close})
    assert not far, f"other losses: {[(number, alone[number].loss, found[number].loss) for number in far]}"


def ranks_of(epochs: Epochs) -> set[int]:
    return {one.ranks for one in epochs.values()}


def read_epochs(log: str) -> Epochs:
    return {int(number): Epoch(float(loss), int(steps), int(ranks)) for number, loss, steps, ranks in LINE.findall(log)}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
