"""One server acts at a time; the next one takes over, and clocks need not agree."""

from __future__ import annotations

import datetime
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.election.lease import LEASES, Lease, NotHeld
from swell.errors import NotFound

from .apiserver import ApiServer
from .conftest import access_to
from .faults import Fault, Scripted
from .leasing import play

NOON = datetime.datetime(2026, 11, 16, 12, 0, 0, 250, tzinfo=datetime.UTC)


class Server:
    """One of ours, with a clock that is advanced by hand."""

    def __init__(self, port: ApiClient, identity: str, start: float = 0.0, ended: tuple[str, ...] = ()) -> None:
        self.time = start
        self.told: list[str] = []
        self.lease = Lease(
            port,
            "ml",
            "swell",
            identity,
            ended=ended,
            monotonic=lambda: self.time,
            now=lambda: NOON,
            on_held=lambda: self.told.append("held"),
            on_lost=lambda: self.told.append("lost"),
        )

    def tick(self, after_s: float = 0.0) -> bool:
        self.time += after_s
        self.lease.tick()
        return self.lease.is_held


def spec(port: ApiClient) -> dict[str, Any]:
    found: dict[str, Any] = port.get(LEASES, "swell", "ml")["spec"]
    return found


def test_the_first_server_makes_the_lease_and_holds_it(port: ApiClient) -> None:
    first = Server(port, "a")
    assert not first.lease.is_held
    assert first.tick()
    assert spec(port) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-16T12:00:00.000250Z",
        "renewTime": "2026-11-16T12:00:00.000250Z",
        "leaseTransitions": 1,
    }
    first.lease.guard()
    assert (first.lease.generation, first.told) == (1, ["held"])


def test_a_holder_that_renews_is_left_in_peace(port: ApiClient) -> None:
    first, second = Server(port, "a"), Server(port, "b", start=5e5)
    for _ in range(20):
        assert (first.tick(5.0), second.tick(5.0)) == (True, False)
    assert (first.lease.generation, first.told, second.told) == (1, ["held"], [])
    with pytest.raises(NotHeld) as caught:
        second.lease.guard()
    assert str(caught.value) == "'a' holds the Lease 'swell' in namespace 'ml'; it does nothing until it gets it"


def test_a_holder_that_says_nothing_is_followed_after_the_whole_duration_as_the_next_one_saw_it(
    port: ApiClient,
) -> None:
    first, second = Server(port, "a"), Server(port, "b", start=5e5)
    first.tick()
    assert [second.tick(after_s) for after_s in (0.0, 7.0, 7.9, 0.1)] == [False, False, False, True]
    assert (second.lease.generation, spec(port)["holderIdentity"]) == (2, "b")
    assert not first.tick(9.9)  # it still believed in it a moment ago, and would have renewed it
    assert first.told == ["held", "lost"]
    with pytest.raises(NotHeld) as caught:
        first.lease.guard()
    assert str(caught.value) == (
        "this server lost the Lease 'swell' in namespace 'ml' to 'b'; it does nothing until it gets it back"
    )


def test_who_cannot_renew_stops_to_believe_before_anybody_else_may_take_over(
    server: ApiServer, port: ApiClient
) -> None:
    first = Server(port, "a")
    first.tick()
    server.faults = Scripted(answers=deque([Fault.SERVER_ERROR] * 9))
    assert [first.tick(after_s) for after_s in (5.0, 4.9, 0.1)] == [True, True, False]
    assert first.told == ["held", "lost"]
    with pytest.raises(
        NotHeld, match=r"could not renew the Lease 'swell' .*etcdserver: request timed out.*gets it back"
    ):
        first.lease.guard()
    server.faults = Scripted()
    assert first.tick(60.0)
    assert (first.lease.generation, first.told) == (2, ["held", "lost", "held"])


def test_a_renewal_counts_from_when_it_was_sent(port: ApiClient) -> None:
    first = Server(port, "a")

    class Slow:
        """Answers take eleven seconds."""

        def __getattr__(self, verb: str) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                answer = getattr(port, verb)(*arguments)
                first.time += 11.0
                return answer

            return call

    slow: Any = Slow()
    first.lease = Lease(slow, "ml", "swell", "a", monotonic=lambda: first.time)
    with pytest.raises(NotFound):
        spec(port)
    assert not first.tick()
    assert spec(port)["holderIdentity"] == "a"


def test_closing_lets_the_next_one_take_over_at_once(port: ApiClient) -> None:
    first, second = Server(port, "a"), Server(port, "b")
    first.tick()
    second.tick()
    first.lease.close()
    assert (first.lease.is_held, first.told, spec(port)["holderIdentity"]) == (False, ["held", "lost"], "")
    assert second.tick()
    assert (second.lease.generation, spec(port)["leaseTransitions"]) == (2, 2)


def test_a_server_that_comes_back_under_its_name_need_not_wait_and_is_a_new_generation(port: ApiClient) -> None:
    Server(port, "a").tick()
    again = Server(port, "a")
    assert (again.tick(), again.lease.generation) == (True, 2)


@pytest.mark.parametrize("fault", [Fault.TORN, Fault.DROPPED])
def test_a_lost_answer_to_a_renewal_costs_nothing(server: ApiServer, port: ApiClient, fault: Fault) -> None:
    first = Server(port, "a")
    first.tick()
    server.faults = Scripted(answers=deque([fault]))
    assert [first.tick(5.0), first.tick(2.5), first.tick(5.0)] == [True, True, True]
    assert (first.lease.generation, first.told) == (1, ["held"])


def test_an_annotation_of_somebody_takes_nothing_away(port: ApiClient) -> None:
    first = Server(port, "a")
    first.tick()
    port.patch(LEASES, "swell", {"metadata": {"annotations": {"note": "x"}}}, "ml")
    assert (first.tick(5.0), first.tick(5.0), first.lease.generation) == (True, True, 1)
    assert port.get(LEASES, "swell", "ml")["metadata"]["annotations"] == {"note": "x"}


def test_who_was_faster_has_it(server: ApiServer, port: ApiClient) -> None:
    first, second, third = (Server(port, identity) for identity in "abc")
    first.tick()
    assert (second.tick(), third.tick()) == (False, False)
    assert (second.tick(15.0), third.tick(15.0)) == (True, False)


def test_a_lease_that_is_deleted_is_lost_and_made_again_with_a_newer_generation(port: ApiClient) -> None:
    first = Server(port, "a")
    first.tick()
    port.delete(LEASES, "swell", "ml")
    assert (first.tick(5.0), first.tick(2.5), first.lease.generation) == (False, True, 2)


@pytest.mark.parametrize("seed", range(8))
def test_never_do_two_hold_it(tmp_path: Path, seed: int) -> None:
    """Repeat one with `.venv/bin/python -m tests.engines.kubernetes.leasing SEED`."""
    assert play(seed, tmp_path).broken == []


def test_its_threads_get_it_keep_it_notice_the_loss_and_give_it_back(server: ApiServer, tmp_path: Path) -> None:
    """In real time, with a short duration; an API server that hangs does not delay the news."""
    port = ApiClient(access_to(server), answer_s=30.0)
    held, lost = threading.Event(), threading.Event()
    lease = Lease(port, "ml", "swell", "a", duration_s=1.0, on_held=held.set, on_lost=lost.set)
    lease.start()
    assert held.wait(10)
    asked = len(server.seen)
    server.await_asked(asked + 3)
    assert lease.is_held
    server.faults = Scripted(answers=deque([Fault.HALF_OPEN]))
    assert lost.wait(10)
    port.close()
    lease.close()
    with pytest.raises(NotHeld):
        lease.guard()


def test_without_a_role_it_is_said_which_verb_is_missing(server: ApiServer, port: ApiClient) -> None:
    server.denied["GET", "leases"] = 'leases is forbidden: User "u" cannot get resource "leases"'
    first = Server(port, "a")
    assert not first.tick()
    with pytest.raises(NotHeld, match=r"could not get the Lease .* lacks the verb 'get' on leases"):
        first.lease.guard()
    server.denied.clear()
    with pytest.raises(NotFound):
        spec(port)


def test_of_a_holder_that_is_known_to_have_ended_nobody_waits_for_the_end(port: ApiClient) -> None:
    first = Server(port, "a")
    assert first.tick()
    informed, ignorant = Server(port, "b", ended=("x", "a")), Server(port, "c", ended=("x",))
    assert not ignorant.tick()
    assert informed.tick()
    assert (spec(port)["holderIdentity"], informed.lease.generation) == ("b", 2)
    assert not ignorant.tick()
