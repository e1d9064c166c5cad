"""Names of priorities, as the cluster has them."""

from __future__ import annotations

from collections import deque

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.watch.priority_classes import FRESH_S, PriorityClasses
from swell.model.cluster import PriorityClass

from .apiserver import ApiServer
from .faults import Fault, Scripted


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def add(server: ApiServer, name: str, value: int) -> None:
    document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
    server.storage.create("priorityclasses", ("", name), document)


def test_they_are_listed_once_for_a_burst_and_again_later(server: ApiServer, port: ApiClient) -> None:
    clock = Clock()
    classes = PriorityClasses(port, clock)
    add(server, "high", 1000)
    assert [classes.table() for _ in range(3)] == [{"high": PriorityClass(1000)}] * 3
    assert len(server.seen) == 1
    add(server, "system-node-critical", 2_000_001_000)
    clock.time += FRESH_S
    assert classes.table() == {"high": PriorityClass(1000), "system-node-critical": PriorityClass(2_000_001_000)}


def test_what_was_known_counts_while_the_cluster_does_not_answer(server: ApiServer, port: ApiClient) -> None:
    clock = Clock()
    classes = PriorityClasses(port, clock)
    add(server, "high", 1000)
    classes.table()
    server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    clock.time += FRESH_S
    assert classes.table() == {"high": PriorityClass(1000)}


def test_without_the_right_to_list_them_there_are_none(server: ApiServer, port: ApiClient) -> None:
    server.denied["list", "priorityclasses"] = 'User "swell" cannot list resource "priorityclasses" in API group ""'
    assert PriorityClasses(port).table() == {}
