"""What is kept of a pod, from what its kubelet says."""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.watch.observed_objects import Restarted, moment, read_pod

AT = "2026-01-01T00:00:10Z"
FAILED = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": AT}}
WAITS = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}


def pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": "u", "creationTimestamp": AT},
        "spec": {"containers": [{"name": one.get("name", "main")} for one in containers] or [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": list(containers)},
    }


@pytest.mark.parametrize(
    ("what", "containers", "restarted"),
    [
        ("nothing has begun", (), None),
        ("it runs", ({"name": "main", "restartCount": 0, "state": {"running": {"startedAt": AT}}},), None),
        ("it ended for the first time", ({"name": "main", "restartCount": 0, "state": FAILED},), None),
        (
            "it waits",
            ({"name": "main", "restartCount": 2, "state": WAITS, "lastState": FAILED},),
            Restarted(2, 1, "Error", None),
        ),
        (
            "it ended a moment ago",
            ({"name": "main", "restartCount": 2, "state": FAILED},),
            Restarted(2, 1, "Error", None),
        ),
        (
            "it runs again",
            ({"name": "main", "restartCount": 2, "state": {"running": {"startedAt": AT}}, "lastState": FAILED},),
            Restarted(2, 1, "Error", moment(AT)),
        ),
        (
            "the second of two does, as a kubelet lists them by name",
            (
                {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": AT}}},
                {"name": "side", "restartCount": 5, "state": WAITS, "lastState": FAILED},
            ),
            Restarted(5, 1, "Error", None),
        ),
    ],
)
def test_a_container_that_was_begun_again(what: str, containers: tuple[dict[str, Any], ...], restarted: object) -> None:
    assert read_pod(pod(*containers)).restarted == restarted, what


def test_the_container_that_counts_is_the_first_of_the_specification_however_the_kubelet_lists_them() -> None:
    running = {"name": "aside", "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}}
    main = {"name": "main", "state": {"running": {"startedAt": AT}}}
    document = pod(main, running)
    document["status"]["containerStatuses"] = [running, main]

    assert read_pod(document).started_at == moment(AT)


def test_the_trouble_of_any_container_is_seen() -> None:
    trouble = {"name": "side", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}

    assert read_pod(pod({"name": "main", "state": {"running": {"startedAt": AT}}}, trouble)).waiting == (
        "ErrImagePull: no such image"
    )


@pytest.mark.parametrize(("said", "grace_s"), [({}, 30.0), ({"terminationGracePeriodSeconds": 0}, 0.0)])
def test_a_pod_that_asks_for_no_time_to_end_gets_none(said: dict[str, int], grace_s: float) -> None:
    document = pod()
    document["spec"] |= said

    assert read_pod(document).grace_s == grace_s


WORDS = '{"swell_attempt": "7.1", "report": {"rank": 0}}'


def terminated(code: int, message: str, name: str = "main") -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message, "finishedAt": AT}
    return {"name": name, "state": {"terminated": end}}


@pytest.mark.parametrize(
    ("what", "containers", "message", "last_words"),
    [
        ("nothing", (terminated(0, ""),), "", ""),
        ("a message of its own", (terminated(1, "no data"),), "no data", ""),
        ("a report", (terminated(0, WORDS),), "", WORDS),
        ("a report, and it failed", (terminated(1, WORDS),), "", WORDS),
        ("a report, and another failed", (terminated(0, WORDS), terminated(1, "no data", "side")), "no data", WORDS),
    ],
)
def test_a_report_that_a_container_has_left_is_no_message(
    what: str, containers: tuple[dict[str, Any], ...], message: str, last_words: str
) -> None:
    document = pod(*containers)
    document["status"]["phase"] = "Failed"
    ended = read_pod(document).ended
    assert ended is not None
    assert (ended.message, ended.last_words) == (message, last_words), what
