"""What is said of a command, as a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.client.needs import Needs, render_job
from swell.errors import Rejected


def test_a_command_of_which_nothing_is_said_asks_for_nothing_else():
    assert render_job(("true",), None, {}) == {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {},
        "spec": {"command": ["true"]},
    }


def test_what_is_said_is_written_and_what_means_nothing_is_left_out():
    document = render_job(
        ["python", "train.py"],
        "resnet",
        {
            "gpus": 0,
            "gpu_memory": "6GiB",
            "exclusive": False,
            "tag": "big",
            "priority": 0,
            "after": (7, "first"),
            "notify": ("mail", "me"),
            "tensorboard": Path("runs"),
            "min_gpu_utilization": 20,
            "env": {"A": "b"},
            "mounts": (),
            "retries": None,
            "ports": ("8080:80",),
            "image": None,
        },
    )
    assert document["metadata"] == {"name": "resnet"}
    assert document["spec"] == {
        "command": ["python", "train.py"],
        "gpus": 0,
        "gpuMemory": "6GiB",
        "nodeSelector": {"swell.dev/tag": "big"},
        "tolerations": [{"key": "swell.dev/tag", "value": "big"}],
        "priority": 0,
        "after": ["7", "first"],
        "notify": ["mail", "me"],
        "tensorboard": "runs",
        "utilizationPolicy": {"minGpuUtilization": 20},
        "env": {"A": "b"},
        "ports": ["8080:80"],
    }


def test_none_says_nothing_of_anything():
    needs = dict.fromkeys(Needs.__annotations__)
    assert render_job(["true"], None, needs)["spec"] == {"command": ["true"]}  # type: ignore[arg-type]


def test_a_command_as_text_is_refused():
    with pytest.raises(Rejected) as refused:
        render_job("sleep 1", None, {})
    assert str(refused.value) == (
        "command must be a list of words, but is text: write ['sh', '-c', 'sleep 1'] to use a shell"
    )
