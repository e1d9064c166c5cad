"""A refusal names what was typed, never a field of a document that nobody has written."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from swell.cli.root import swell
from swell.cli.run import option_of
from swell.client.needs import Needs, render_job, reword
from swell.errors import Rejected
from swell.manifests import Context, read_manifests

SHARE = {"gpu_memory": "4GiB"}
IDLE = {"min_gpu_utilization": "10", "utilization_window": "30m", "gpus": 1}
#: argument → what cannot be meant, with what else must be said for it to be read
WRONG: dict[str, dict[str, Any]] = {
    "gpus": {"gpus": "x"},
    "gpu_memory": {"gpu_memory": "x"},
    "exclusive": {"exclusive": "x"},
    "on_overrun": {**SHARE, "on_overrun": "x"},
    "tasks": {"tasks": "x"},
    "cpus": {"cpus": "x"},
    "memory": {"memory": "x"},
    "tag": {"tag": "a_b"},
    "array": {"array": "x"},
    "priority": {"priority": "x"},
    "time": {"time": "x"},
    "grace": {"grace": "1000d"},
    "epochs": {"epochs": "x"},
    "hours": {"hours": "x"},
    "checkpoint_every": {"checkpoint_every": "x"},
    "own_curve": {"own_curve": "x"},
    "resize": {"resize": "x"},
    "retries": {"retries": "x"},
    "after": {"after": ["12:soon"]},
    "notify": {"notify": ""},
    "notify_on": {"notify": "true", "notify_on": "never"},
    "tensorboard": {"tensorboard": ""},
    "checkpoints": {"checkpoints": ""},
    "min_gpu_utilization": {**IDLE, "min_gpu_utilization": "500"},
    "utilization_window": {**IDLE, "utilization_window": "x"},
    "env": {"env": {"A=B": "c"}},
    "workdir": {"workdir": ""},
    "image": {"image": ""},
    "mounts": {"mounts": ["/a:/b"]},
    "ports": {"ports": ["1:2"]},
    "launcher": {"launcher": "x"},
    "uploaded": {"uploaded": "x"},
    "cpu_limit": {"cpu_limit": "x"},
    "shm": {"shm": "x", "image": "a"},
    "inputs": {"inputs": ["file:///etc/passwd"]},
    "outputs": {"outputs": ["# a"]},
}


def refusal(needs: Any, name: str | None = None) -> str:
    with pytest.raises(Rejected) as refused:
        read_manifests(render_job(["true"], name, needs), Context(workdir="/", umask=0o22))
    return str(refused.value)


def test_every_argument_is_tried():
    assert WRONG.keys() == Needs.__annotations__.keys()


@pytest.mark.parametrize("argument", WRONG)
def test_a_value_that_cannot_be_meant_is_refused_by_the_option_that_was_typed(argument: str):
    """Incident: `swell run --gpu-memory x` spoke of gpuMemory, `--notify-on` of notifyOn, and so on."""
    said = reword(refusal(WRONG[argument]), option_of)
    assert said.startswith(option_of(argument)), said
    assert not re.search(r"\b[a-z]+[A-Z]\w*", said), said
    in_python = reword(refusal(WRONG[argument]), str)
    assert in_python.startswith(argument), in_python


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({"notify_on": "never"}, "--notify-on needs --notify, which says who is told; give both, or neither"),
        (
            {"on_overrun": "warn"},
            "--on-overrun is for jobs that share a GPU; give --gpu-memory, or leave --on-overrun out",
        ),
        (
            {"min_gpu_utilization": 5},
            (
                "--min-gpu-utilization needs --utilization-window, too; give both, as in --min-gpu-utilization 10 "
                "and --utilization-window 30m"
            ),
        ),
        (
            {"gpu_memory": "1GiB", "gpus": 2},
            (
                "--gpu-memory 1GiB with --gpus 2: a share is of one GPU; leave --gpus out, or add --exclusive for "
                "whole GPUs that each have at least that much"
            ),
        ),
        (
            {"array": "0-3", "tasks": 2},
            "--array with --tasks 2: each task of an array is one process; leave out --tasks",
        ),
        (
            {"mounts": ["/a:/b"]},
            "--mount without an image: a plain process sees the whole machine; add --image, or drop it",
        ),
        (
            {"after": ["12:foo"]},
            "--after: what stands behind the colon must be one of success, end, but is 'foo'",
        ),
        ({"memory": "gpuMemory"}, "--memory: 'gpuMemory' is not an amount of memory; write 512MiB, 8GiB or 1.5TiB"),
    ],
)
def test_the_rest_of_a_sentence_names_options_too(needs: Any, expected: str):
    assert reword(refusal(needs), option_of) == expected


def test_an_empty_name_is_refused():
    """Incident: `--name ''` was taken for no name at all."""
    assert reword(refusal({}, name=""), option_of).startswith("--name '' cannot be used: a name is 1 to 63 letters")


def test_every_word_for_an_argument_is_an_option_of_run():
    command = swell.get_command(click.Context(swell), "run")
    assert command is not None
    known = {name for option in command.params for name in option.opts}
    words = {word for argument in Needs.__annotations__ for word in re.split(", | or ", option_of(argument))}
    assert words <= known
