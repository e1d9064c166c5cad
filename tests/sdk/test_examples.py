"""The examples run as they stand: by themselves, stopped by a server, and resumed from what they saved."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .scripts import SDK
from .server import BOUND_S, Server, serving

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LINE = re.compile(r"epoch (\d+): loss ([\d.]+)")


class Example:
    """One process of an example."""

    def __init__(self, name: str, *options: str, cwd: Path, python: str = sys.executable, **environ: str) -> None:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK), **environ}
        command = [python, str(EXAMPLES / name), *options]
        self.process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self) -> tuple[int, dict[int, str], str]:
        """Exit code, loss by epoch, stderr."""
        try:
            out, err = self.process.communicate(timeout=3 * BOUND_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        found = LINE.findall(out.decode())
        return self.process.returncode, {int(epoch): loss for epoch, loss in found}, err.decode()


@pytest.fixture
def again(folder: Path, server: Server) -> Iterator[Server]:
    """The same job's next attempt."""
    with serving(folder, attempt="12.4") as one:
        yield one


def resumed(server: Server, epochs: int) -> dict[str, str]:
    """What the next attempt is told, from what the last one reported."""
    done, path = server.checkpoints()[-1]
    told = {"EPOCHS_DONE": str(done), "JOB_RESTARTED": "TRUE", "EPOCHS_TO_BE_DONE": str(epochs)}
    return {**told, "SWELL_CHECKPOINT": "" if path is None else str(server.folder / path)}


def test_an_interrupted_run_ends_with_the_loss_of_one_that_was_not(
    server: Server, again: Server, tmp_path: Path
) -> None:
    _, whole, _ = Example("plain/train.py", "--epochs", "60", cwd=tmp_path).end()
    assert float(whole[60]) < float(whole[1]) / 10, "it learns"

    server.order(stop_after=1)
    told = server.environ(EPOCHS_TO_BE_DONE="60")
    code, first, err = Example("plain/train.py", "--step-s", "0.002", cwd=tmp_path, **told).end()
    assert (code, err, first) == (75, "", {epoch: whole[epoch] for epoch in range(1, len(first) + 1)})
    assert server.reports[-1]["epochs_done"] == len(first) < 60

    told = again.environ(**resumed(server, 60))
    code, second, err = Example("plain/train.py", cwd=tmp_path, **told).end()
    assert (code, err, {**first, **second}) == (0, "", whole)
    assert min(second) == len(first) + 1


@pytest.mark.parametrize("name", ["plain", "lightning_style", "keras_style"])
def test_scripts_for_kubeprofiler_stop_with_0_and_go_on(
    server: Server, again: Server, tmp_path: Path, name: str
) -> None:
    server.order(stop_after=1)
    told = server.environ(EPOCHS_TO_BE_DONE="50000")
    code, first, err = Example(f"kubeprofiler/{name}.py", cwd=tmp_path, **told).end()
    assert (code, err) == (0, "")
    assert (server.reports[-1]["yielding"], server.checkpoints()[-1]) == (True, (len(first), None))

    told = again.environ(**resumed(server, len(first) + 3))
    code, second, err = Example(f"kubeprofiler/{name}.py", cwd=tmp_path, **told).end()
    assert (code, err, sorted(second)) == (0, "", [len(first) + number for number in (1, 2, 3)])
    assert float(second[len(first) + 1]) <= float(first[len(first)]), "it learns on from there"
    assert again.checkpoints()[-1] == (len(first) + 3, None)


@pytest.mark.slow
def test_torchs_ddp_ends_with_the_same_loss_when_two_ranks_were_stopped_and_resumed(
    server: Server, again: Server, tmp_path: Path
) -> None:
    def train(environ: dict[str, str]) -> tuple[list[int], dict[int, str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            told = {**environ, "WORLD_SIZE": "2", "MASTER_PORT": str(free.getsockname()[1])}
        ranks = [
            Example("pytorch/ddp.py", cwd=tmp_path, python="/usr/bin/python3", RANK=str(rank), **told)
            for rank in range(2)
        ]
        ends = [one.end() for one in ranks]
        return [code for code, _, _ in ends], ends[0][1]

    codes, whole = train({"EPOCHS_TO_BE_DONE": "23"})
    assert codes == [0, 0], "this needs torch: apt-get install -y python3-torch"
    server.order(stop_after=20)
    codes, first = train(server.environ(EPOCHS_TO_BE_DONE="23"))
    assert (codes, sorted(first)) == ([75, 75], list(range(1, 21)))
    codes, second = train(again.environ(**resumed(server, 23)))
    assert (codes, {**first, **second}) == ([0, 0], whole)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_example_is_listed_with_its_command(path: Path) -> None:
    listed = (EXAMPLES / "README.md").read_text()
    name = str(path.relative_to(EXAMPLES))
    assert f"]({name})" in listed
    assert f"examples/{name}" in listed
    compile(path.read_text(), name, "exec")
