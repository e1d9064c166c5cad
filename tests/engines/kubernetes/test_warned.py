"""Are warnings asked for once for all who want to know them?"""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.watch.warnings import COST, FRESH_S, Warned, Warnings
from swell.errors import SwellError

from .apiserver import ApiServer

AT = 1_763_294_400.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.step_s = 0.0  #: by how much it has moved when it is looked at again

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def warnings(port: ApiClient, clock: Clock) -> Warnings:
    return Warnings(port, clock)


def say(server: ApiServer, name: str, *, about: str, namespace: str = "team", **fields: Any) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"uid": about},
        "type": "Warning",
        "reason": "FailedMount",
        "message": name,
        "lastTimestamp": "2025-11-16T12:00:00Z",
        **fields,
    }
    server.storage.create("events", (namespace, name), event)


def lists(server: ApiServer) -> list[tuple[str, Any]]:
    return [(request.path, request.query.get("fieldSelector")) for request in server.lists()]


def test_all_who_ask_at_one_time_cost_one_list_of_a_namespace(
    server: ApiServer, warnings: Warnings, clock: Clock
) -> None:
    say(server, "first", about="a")
    say(server, "second", about="a")
    say(server, "elsewhere", about="b", namespace="other")
    say(server, "harmless", about="a", type="Normal")
    for pod in range(100):
        assert warnings.about(f"pod-{pod}", "team") == ()
    assert sorted(warnings.about("a", "team")) == [
        Warned(AT, "FailedMount", "first"),
        Warned(AT, "FailedMount", "second"),
    ]
    assert warnings.about("b", "team") == ()
    assert warnings.about("b", "other") == [Warned(AT, "FailedMount", "elsewhere")]
    events = [("/api/v1/namespaces/team/events", "type=Warning"), ("/api/v1/namespaces/other/events", "type=Warning")]
    assert lists(server) == events

    say(server, "third", about="a")
    clock.now += FRESH_S
    assert max(warnings.about("a", "team")) == Warned(AT, "FailedMount", "third")
    assert lists(server) == [*events, events[0]]


def test_where_lists_are_long_they_are_rare(server: ApiServer, warnings: Warnings, clock: Clock) -> None:
    clock.step_s = 1.0
    warnings.about("a", "team")  # takes a second, as its clock says
    clock.step_s = 0.0
    clock.now += COST - 0.1
    warnings.about("a", "team")
    assert len(lists(server)) == 1
    clock.now += 0.1
    warnings.about("a", "team")
    assert len(lists(server)) == 2


def test_a_list_that_fails_fails_for_all_who_would_have_shared_it(
    server: ApiServer, warnings: Warnings, clock: Clock
) -> None:
    server.denied["list", "events"] = 'events is forbidden: User "swell" cannot list resource "events"'
    for uid in ("a", "b"):
        with pytest.raises(SwellError, match="cannot list resource"):
            warnings.about(uid, "team")
    assert len(lists(server)) == 1
    server.denied.clear()
    clock.now += FRESH_S
    assert warnings.about("a", "team") == ()
