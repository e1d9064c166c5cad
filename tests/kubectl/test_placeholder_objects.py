"""Placeholder pods for jobs that wait: for whom, what they look like, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from engines.kubernetes.pieces import make_pod
from swell.engines.kubernetes.watch.observed_objects import PodSeen, read_pod
from swell.kubectl.placeholder_pods import (
    CreatePlaceholder,
    RemovePlaceholder,
    UpdatePlaceholder,
    choose,
    find_steps,
    make_placeholder,
    placeholder_name,
    render,
)
from swell.model.placement import PlacementRules
from swell.model.resources import Resources
from swell.planner import Group, Shortage

STORE = "0123456789abcdef"
SPOT = PlacementRules(selector=(("pool", "spot"),))


def short(job: int, *counts: int) -> Shortage:
    return Shortage(job, tuple(Group(Resources(1000, 512, 8), count, None) for count in counts))


# -- for whom ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ([], []),
        ([short(1, 4), short(2, 6)], [1, 2]),
        ([short(1, 4), short(2, 7), short(3, 6)], [1, 3]),  # never half a gang
        ([short(1, 11), short(2, 3, 7)], [2]),
        ([short(1, 10), short(2, 1)], [1]),
    ],
)
def test_the_first_in_line_get_theirs_whole(line: list[Shortage], jobs: list[int]) -> None:
    assert [one.job for one in choose(line, 10)] == jobs


# -- what they look like -------------------------------------------------------------------------------------------


def test_a_pod_asks_for_what_its_task_asks_for_and_for_nothing_else() -> None:
    made = make_placeholder(Resources(1500, 2048, 8), SPOT, job=7, role=1, rank=3, store=STORE, namespace="swell")
    assert made == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "swell-stand-in-01234567-7-3",
            "namespace": "swell",
            "labels": {"swell.dev/stand-in": "7", "swell.dev/stand-in-role": "1", "swell.dev/store": STORE},
        },
        "spec": {
            "schedulerName": "swell",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "stand-in",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": "8"},
                        "limits": {"nvidia.com/gpu": "8"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
            "nodeSelector": {"pool": "spot"},
        },
    }


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        (Resources(), {}),
        (Resources(100), {"requests": {"cpu": "100m"}}),
        (Resources(0, 0, 0, 4096), {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}),
        (Resources(0, 0, 2, 4096), {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}),
    ],
)
def test_a_share_of_a_gpu_needs_a_whole_one(asked: Resources, written: dict[str, Any]) -> None:
    made = make_placeholder(asked, None, job=7, role=0, rank=0, store=STORE, namespace="swell")
    assert made["spec"]["containers"][0]["resources"] == written


def test_nobody_takes_one_for_a_job_or_a_pod_that_came_by_kubectl() -> None:
    made = make_placeholder(Resources(100), None, job=7, role=0, rank=0, store=STORE, namespace="swell")
    metadata = {**made["metadata"], "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    seen = read_pod({**made, "metadata": metadata})
    assert (seen.document, seen.labels) == (None, {"swell.dev/stand-in": "7", "swell.dev/store": STORE})


def test_there_is_one_for_every_task_of_every_role() -> None:
    line = [short(7, 2, 1), short(8, 1)]
    pods = render(line, store=STORE, namespace="swell")
    labels = [(name, pod["metadata"]["labels"]["swell.dev/stand-in-role"]) for name, pod in pods.items()]
    assert labels == [
        (placeholder_name(STORE, 7, 0), "0"),
        (placeholder_name(STORE, 7, 1), "0"),
        (placeholder_name(STORE, 7, 2), "1"),
        (placeholder_name(STORE, 8, 0), "0"),
    ]


# -- what is missing -----------------------------------------------------------------------------------------------

A, B = {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}
WANTED = {"a": A, "b": B}


def seen(name: str, **changes: Any) -> PodSeen:
    return make_pod(name=name, uid=f"uid-{name}", **{"is_told": True, **changes})


BOUND, ENDED, LEAVING = seen("a", node="n1"), seen("a", phase="Failed"), seen("a", is_deleting=True)
SILENT, ORPHAN = seen("a", is_told=False), seen("z", is_told=False)


@pytest.mark.parametrize(
    ("pods", "made", "steps"),
    [
        ([], [], (CreatePlaceholder(A), CreatePlaceholder(B))),
        ([], ["a"], (CreatePlaceholder(B),)),
        ([seen("a"), seen("b")], [], ()),
        ([SILENT, seen("b")], [], (UpdatePlaceholder(SILENT),)),
        ([ORPHAN, seen("a")], [], (RemovePlaceholder(ORPHAN), CreatePlaceholder(B))),
        ([seen("z", is_deleting=True), seen("a"), seen("b")], [], ()),
        ([LEAVING, seen("b")], [], ()),  # its name is taken until it is gone
        ([BOUND, seen("b")], [], (RemovePlaceholder(BOUND),)),
        ([ENDED, seen("b")], [], (RemovePlaceholder(ENDED),)),
    ],
)
def test_what_is_missing_between_what_is_wanted_and_what_is_there(
    pods: list[PodSeen], made: list[str], steps: tuple[object, ...]
) -> None:
    assert find_steps(WANTED, pods, made) == steps
