"""Of several servers one takes in what kubectl applies, whatever they see of each other, and when."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.api_client import Page, Selection
from swell.engines.kubernetes.election.intake import Intake
from swell.engines.kubernetes.election.lease import LEASES, OWN_ONLY, Lease
from swell.errors import Denied

from .apiserver import ApiServer
from .conftest import access_to
from .faults import Fault, Scripted


class Clock:
    time = 0.0


class Server:
    """One of ours in a namespace of its own; all have one clock, which is advanced by hand."""

    def __init__(self, port: ApiClient, namespace: str, clock: Clock, *, may_list: bool = True) -> None:
        self.lease = Lease(port, namespace, "swell", f"server-of-{namespace}", monotonic=lambda: clock.time)
        self.lease.notes = {} if may_list else OWN_ONLY
        self.intake = Intake(port, self.lease, monotonic=lambda: clock.time)
        self.is_paused = False

    def live(self) -> None:
        if not self.is_paused:
            self.lease.tick()
            self.intake.look_now_and_then()

    @property
    def takes(self) -> bool:
        return self.intake.takes("ml")


class World:
    def __init__(self, server: ApiServer, port: ApiClient) -> None:
        self.clock = Clock()
        self.server, self.port = server, port
        self.servers: list[Server] = []

    def join(self, namespace: str, **options: Any) -> Server:
        joined = Server(self.port, namespace, self.clock, **options)
        self.servers.append(joined)
        return joined

    def live(self, seconds: int) -> None:
        """Second by second; never do two take in the same."""
        for _ in range(seconds):
            self.clock.time += 1.0
            for one in self.servers:
                one.live()
                assert sum(other.takes and not other.is_paused for other in self.servers) <= 1

    def until(self, one: Server, seconds: int) -> int:
        """After how many seconds it takes in."""
        for waited in range(seconds):
            if one.takes:
                return waited
            self.live(1)
        raise AssertionError(f"not within {seconds} s: {one.intake.in_words()}")


class NoList(ApiClient):
    """As somebody sees the API server who may not list Leases."""

    is_denied = True

    def list(self, selection: Selection) -> Page:
        if self.is_denied:
            raise Denied(f"our role lacks the verb 'list' on {selection.resource}")
        return super().list(selection)


@pytest.fixture
def world(server: ApiServer, port: ApiClient) -> World:
    return World(server, port)


def test_a_server_that_is_alone_takes_in_everything_at_once(world: World) -> None:
    only = world.join("a")
    assert not only.takes
    only.live()
    assert only.takes
    assert only.intake.in_words() == "this server takes in what kubectl applies in all namespaces"


def test_the_oldest_takes_in_and_the_others_say_who_does(world: World) -> None:
    first, second = world.join("a"), world.join("b")
    world.live(60)
    assert [one.takes for one in (first, second)] == [True, False]
    assert (first.intake.leaves("ml"), second.intake.leaves("ml")) == (False, True)
    assert second.intake.in_words() == (
        "'server-of-a', whose Lease is a/swell, takes in what kubectl applies; "
        "this server runs only what is submitted to it"
    )


def test_when_the_oldest_ends_or_is_silent_the_next_one_follows(world: World) -> None:
    first, second = world.join("a"), world.join("b")
    world.live(30)
    first.lease.close()
    world.servers.remove(first)
    assert world.until(second, 30) <= 6

    third = world.join("c")
    world.live(30)
    second.is_paused = True
    assert 10 <= world.until(third, 60) <= 25


def test_the_oldest_takes_over_again_only_when_the_other_has_noticed(world: World) -> None:
    first, second = world.join("a"), world.join("b")
    world.live(30)
    first.is_paused = True
    world.until(second, 60)
    world.live(10)
    first.is_paused = False
    world.live(5)
    assert not first.takes
    assert world.until(first, 60) <= 30
    assert not second.takes


def test_a_server_that_was_paused_takes_in_nothing_when_it_wakes_up(world: World) -> None:
    first, second = world.join("a"), world.join("b")
    world.live(30)
    first.is_paused = True
    world.until(second, 60)
    assert not first.takes  # before it has looked at anything
    assert second.takes


def test_who_cannot_look_stops_before_another_begins_and_hands_nothing_over(world: World) -> None:
    only = world.join("a")
    world.live(30)
    world.server.faults = Scripted(answers=deque([Fault.SERVER_ERROR] * 500))
    world.clock.time += 5.0
    only.intake.look_now_and_then()
    assert not only.intake.leaves("ml")
    world.clock.time += 6.0
    only.intake.look_now_and_then()
    assert (only.takes, only.intake.leaves("ml")) == (False, False)


def test_a_server_that_may_not_list_leases_has_its_own_namespace_and_the_oldest_leaves_it_alone(
    world: World, server: ApiServer
) -> None:
    first = world.join("a")
    world.live(10)
    denied = NoList(access_to(server), answer_s=5.0)
    limited = Server(denied, "ml", world.clock, may_list=False)
    limited.intake.look()
    assert not limited.intake.may_list
    world.servers.append(limited)
    world.live(5)
    assert not limited.takes  # the first may not have noticed yet
    world.live(30)
    assert [(one.takes, one.intake.takes("other")) for one in (first, limited)] == [(False, True), (True, False)]
    assert [one.intake.in_words() for one in (first, limited)] == [
        "this server takes in what kubectl applies in all namespaces, but for ml: the servers there do",
        f"this server takes in what kubectl applies in namespace 'ml' only: it may not list {LEASES} in all of them",
    ]
    denied.close()


def test_a_server_whose_right_to_list_leases_is_taken_away_takes_in_nothing(world: World, server: ApiServer) -> None:
    """It began with its own namespace, which the oldest took in as well: no Lease said otherwise."""
    world.join("a")
    port = NoList(access_to(server), answer_s=5.0)
    port.is_denied = False
    limited = Server(port, "ml", world.clock)
    world.servers.append(limited)
    world.live(30)
    port.is_denied = True
    world.live(60)
    assert not limited.takes
    port.close()


def test_a_lease_of_an_older_version_is_labelled_when_it_is_taken(world: World) -> None:
    body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": "swell", "labels": {"mine": "1"}}}
    world.port.create(LEASES, {**body, "spec": {}}, "a")
    world.join("a").live()
    assert world.port.get(LEASES, "swell", "a")["metadata"]["labels"] == {"mine": "1", "swell.dev/lease": "server"}
