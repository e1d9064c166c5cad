"""What is added to a user's pod, and what of it is replaced?"""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.objects.objects import Filling, RoleSize
from swell.engines.kubernetes.objects.pod_template import fill_pod
from swell.model.job import AttemptId


def noted(name: str, annotation: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}


def test_one_that_shares_a_gpu_learns_from_its_pod_which_and_how_much_of_it_whatever_it_said_itself() -> None:
    size = RoleSize(1, 0, share_mib=6144)
    container = {
        "name": "main",
        "env": [{"name": "RESERVED_MEM", "value": "1"}, {"name": "LR", "value": "0.1"}],
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    }
    filling = Filling(7, "store", AttemptId(7, 1), (size,), "secret", runtime_class="nvidia")
    assert fill_pod({"containers": [container]}, size, filling) == {
        "schedulerName": "swell",
        "runtimeClassName": "nvidia",
        "containers": [
            {
                "name": "main",
                "env": [
                    {"name": "LR", "value": "0.1"},
                    noted("NVIDIA_VISIBLE_DEVICES", "swell.dev/gpu"),
                    noted("RESERVED_MEM", "swell.dev/gpu-memory-mib"),
                ],
                "resources": {"requests": {"cpu": "1"}, "limits": {}},
                "envFrom": [{"secretRef": {"name": "secret"}}],
            }
        ],
    }


def test_roles_with_different_numbers_of_gpus_are_told_their_own() -> None:
    master, worker = RoleSize(1, 0), RoleSize(2, 4)
    filling = Filling(7, "store", AttemptId(7, 1), (master, worker), "secret")
    mine = {"name": "NUM_GPUS", "value": "mine"}

    filled = [
        fill_pod({"containers": [{"name": "main", **said}]}, size, filling)["containers"][0]["env"]
        for said, size in (({}, master), ({}, worker), ({"env": [mine]}, worker))
    ]

    assert filled == [[{"name": "NUM_GPUS", "value": "0"}], [{"name": "NUM_GPUS", "value": "4"}], [mine]]


@pytest.mark.parametrize(("rewrites_width", "processes"), [(True, 4), (False, 1)])
def test_a_word_num_processes_follows_the_gpus_of_what_may_be_resized(rewrites_width: bool, processes: int) -> None:
    """Also where requests and limits are alike: contracts of genai's manager give the range by annotations."""
    one = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "args": ["--num_processes=1", "train.py"], "env": [{"name": "NGPU", "value": "1"}]}
    container["resources"] = {"requests": one, "limits": one}
    size = RoleSize(1, 4)
    filling = Filling(7, "store", AttemptId(7, 2), (size,), "secret", rewrites_width=rewrites_width)
    [filled] = fill_pod({"containers": [container]}, size, filling)["containers"]
    four = {"nvidia.com/gpu": "4"}
    assert filled["args"] == [f"--num_processes={processes}", "train.py"]
    assert filled["env"] == [{"name": "NGPU", "value": "4"}]
    assert filled["resources"] == {"requests": four, "limits": four}
