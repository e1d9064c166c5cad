"""What is kept of a pod, from what its kubelet says."""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.picture import Restarted, moment, read_pod

AT = "2026-01-01T00:00:10Z"
FAILED = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": AT}}
WAITS = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": "u", "creationTimestamp": AT},
        "spec": {"containers": []},
        "status": {"phase": "Running", "containerStatuses": list(containers)},
    }


@pytest.mark.parametrize(
    ("what", "containers", "restarted"),
    [
        ("nothing has begun", (), None),
        ("it runs", ({"restartCount": 0, "state": {"running": {"startedAt": AT}}},), None),
        ("it ended for the first time", ({"restartCount": 0, "state": FAILED},), None),
        ("it waits", ({"restartCount": 2, "state": WAITS, "lastState": FAILED},), Restarted(2, 1, "Error", None)),
        ("it ended a moment ago", ({"restartCount": 2, "state": FAILED},), Restarted(2, 1, "Error", None)),
        (
            "it runs again",
            ({"restartCount": 2, "state": {"running": {"startedAt": AT}}, "lastState": FAILED},),
            Restarted(2, 1, "Error", moment(AT)),
        ),
        (
            "the second of two does, as a kubelet lists them by name",
            (
                {"restartCount": 0, "state": {"running": {"startedAt": AT}}},
                {"restartCount": 5, "state": WAITS, "lastState": FAILED},
            ),
            Restarted(5, 1, "Error", None),
        ),
    ],
)
def test_a_container_that_was_begun_again(what: str, containers: tuple[dict[str, Any], ...], restarted: object) -> None:
    assert read_pod(pod(*containers)).restarted == restarted, what
