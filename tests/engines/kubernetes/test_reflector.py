"""The reflector against an API server that fails: afterwards it shows what a fresh list shows."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.reflector import Backoff, WatchPace

from .apiserver import ApiServer
from .faults import Fault, Scripted
from .following import PATIENCE_S, QUICK, Follower, state_of
from .rounds import play
from .storage import Storage

ALL_PODS = Selection(PODS)


@contextmanager
def following(port: ApiClient, selection: Selection = ALL_PODS, pace: WatchPace = QUICK) -> Iterator[Follower]:
    follower = Follower(port, selection, pace)
    try:
        yield follower
    finally:
        assert follower.reflector.stop()


def put(server: ApiServer, name: str, namespace: str = "a", **spec: object) -> None:
    server.storage.create("pods", (namespace, name), {"kind": "Pod", "apiVersion": "v1", "spec": spec})


def state(server: ApiServer) -> dict[tuple[str, str], object]:
    return state_of(server.storage.state("pods"))


def lists(server: ApiServer) -> int:
    return len(server.lists())


def test_what_was_there_and_what_follows_is_shown(server: ApiServer, port: ApiClient) -> None:
    put(server, "one")
    with following(port) as follower:
        follower.await_state(state(server))
        put(server, "two")
        server.storage.update("pods", ("a", "one"), {"metadata": {"name": "one", "namespace": "a"}, "spec": {"n": 1}})
        server.storage.delete("pods", ("a", "two"), {})
        put(server, "three", namespace="b")
        follower.await_state(state(server))
    assert lists(server) == 1


def test_a_snapshot_never_changes_and_what_has_not_changed_is_the_same_object(
    server: ApiServer, port: ApiClient
) -> None:
    put(server, "one")
    with following(port) as follower:
        follower.await_state(state(server))
        before = follower.reflector.snapshot()
        assert follower.reflector.snapshot() is before
        put(server, "two")
        follower.await_state(state(server))
        after = follower.reflector.snapshot()
    assert (set(before), set(after)) == ({("a", "one")}, {("a", "one"), ("a", "two")})
    assert before["a", "one"] is after["a", "one"]


def test_only_the_selected_objects_are_shown_and_one_that_stops_to_match_is_gone(
    server: ApiServer, port: ApiClient
) -> None:
    def label(name: str, value: str) -> dict[str, object]:
        return {"metadata": {"name": name, "namespace": "a", "labels": {"app": value}}}

    server.storage.create("pods", ("a", "ours"), label("ours", "x"))
    server.storage.create("pods", ("a", "theirs"), label("theirs", "y"))
    server.storage.create("pods", ("b", "elsewhere"), label("elsewhere", "x"))
    with following(port, Selection(PODS, namespace="a", labels="app=x")) as follower:
        first = follower.await_state({("a", "ours"): state(server)["a", "ours"]})
        server.storage.update("pods", ("a", "ours"), label("ours", "z"))
        then = follower.await_state({})
        server.storage.update("pods", ("a", "theirs"), label("theirs", "x"))
        last = follower.await_state({("a", "theirs"): state(server)["a", "theirs"]})
    assert [set(shown) for shown in (first, then, last)] == [{("a", "ours")}, set(), {("a", "theirs")}]


def test_a_long_list_comes_in_pages_of_one_moment(server: ApiServer, port: ApiClient) -> None:
    for number in range(1203):
        put(server, f"pod-{number}")
    with following(port) as follower:
        follower.await_state(state(server))
    assert [request.query.get("continue") is not None for request in server.seen[:3]] == [False, True, True]


@pytest.mark.parametrize("fault", [Fault.TORN, Fault.DROPPED, Fault.ENDED, Fault.SLOW])
def test_a_watch_that_breaks_is_resumed_without_a_list(server: ApiServer, port: ApiClient, fault: Fault) -> None:
    server.bookmark_s = 60.0
    put(server, "one")
    with following(port) as follower:
        follower.await_state(state(server))
        server.faults = Scripted(lines=deque([fault]))
        put(server, "two")
        follower.await_state(state(server))
    assert lists(server) == 1


@pytest.mark.parametrize("fault", [Fault.GARBAGE, Fault.ERROR_EVENT, Fault.ODD_ERROR_EVENT, Fault.HALF_OPEN])
def test_a_watch_that_cannot_be_understood_or_says_nothing_is_followed_by_a_list(
    server: ApiServer, port: ApiClient, fault: Fault
) -> None:
    server.bookmark_s = 60.0
    with following(port) as follower:
        assert follower.reflector.wait_until_synced(PATIENCE_S)
        server.faults = Scripted(lines=deque([fault]))
        put(server, "one")
        follower.await_state(state(server))
    assert lists(server) == 2


def test_a_repeated_event_changes_nothing(server: ApiServer, port: ApiClient) -> None:
    server.bookmark_s = 60.0
    with following(port) as follower:
        assert follower.reflector.wait_until_synced(PATIENCE_S)
        server.faults = Scripted(lines=deque([Fault.REPEATED]))
        put(server, "one")
        put(server, "two")
        follower.await_state(state(server))
    assert (lists(server), len(follower.changes)) == (1, 2)


def test_a_version_that_the_api_server_has_forgotten_is_followed_by_a_list(server: ApiServer, port: ApiClient) -> None:
    server.bookmark_s = 60.0
    put(server, "one")
    with following(port) as follower:
        follower.await_state(state(server))
        server.faults = Scripted(lines=deque([Fault.DROPPED]))
        with server.storage.moved:  # the watch sees none of it before it is forgotten
            server.storage.delete("pods", ("a", "one"), {})
            put(server, "two")
            server.storage.compact()
        follower.await_state(state(server))
    assert lists(server) == 2


def test_a_list_older_than_what_is_known_is_not_believed(server: ApiServer, port: ApiClient) -> None:
    with following(port) as follower:
        assert follower.reflector.wait_until_synced(PATIENCE_S)
        for number in range(5):
            put(server, f"pod-{number}")
        follower.await_state(state(server))
        server.faults = Scripted(answers=deque([Fault.STALE, Fault.STALE]), lines=deque([Fault.GARBAGE]))
        server.storage.delete("pods", ("a", "pod-0"), {})
        follower.await_state(state(server))
    deleted = [change.key for change in follower.changes if change.after is None]
    assert deleted == [("a", "pod-0")]


@pytest.mark.parametrize("end", [Fault.ERROR_EVENT, Fault.DROPPED])
def test_a_cluster_set_back_to_an_older_state_is_believed_in_the_end(
    server: ApiServer, port: ApiClient, end: Fault
) -> None:
    """An etcd restored from a backup counts from an old number on; a watch from a version of its future is silent."""
    for number in range(5):
        put(server, f"pod-{number}")
    with following(port) as follower:
        follower.await_state(state(server))
        server.faults = Scripted(lines=deque([end]))
        with server.storage.moved:
            server.storage = Storage()
            put(server, "other")
        shown = follower.await_state(state(server))
    assert set(shown) == {("a", "other")}


def test_a_list_is_made_from_time_to_time_without_a_reason(server: ApiServer, port: ApiClient) -> None:
    put(server, "one")
    with following(port, pace=replace(QUICK, resync_s=0.5)) as follower:
        follower.await_state(state(server))
        one = follower.reflector.snapshot()["a", "one"]
        server.await_asked(3, lists=True)
        assert follower.reflector.snapshot()["a", "one"] is one
        assert len(follower.changes) == 1


def test_trouble_is_said_until_it_is_over(server: ApiServer, port: ApiClient) -> None:
    server.denied["list", "pods"] = 'pods is forbidden: User "u" cannot list resource "pods" in API group ""'
    with following(port) as follower:
        assert not follower.reflector.wait_until_synced(0.0)
        server.await_asked(2)
        assert "Swell's role lacks the verb 'list' on pods" in str(follower.reflector.trouble)
        server.denied.clear()
        assert follower.reflector.wait_until_synced(PATIENCE_S)
        assert follower.reflector.trouble is None


@pytest.mark.parametrize("asked", [1, 2], ids=["list", "watch"])
def test_it_stops_at_once_while_nothing_comes(server: ApiServer, port: ApiClient, asked: int) -> None:
    server.faults = Scripted(answers=deque([*[None] * (asked - 1), Fault.HALF_OPEN]))
    follower = Follower(port, ALL_PODS, replace(QUICK, silence_s=60.0))
    server.await_asked(asked)
    began = time.monotonic()
    assert follower.reflector.stop()
    assert time.monotonic() - began < 2.0


def test_faults_wait_ever_longer_up_to_a_cap_and_never_the_same() -> None:
    backoff = Backoff(WatchPace(first_s=1.0, cap_s=8.0), random.Random(1))
    waits = [backoff.next_s() for _ in range(6)]
    assert all(whole / 2 <= wait <= whole for wait, whole in zip(waits, (1, 2, 4, 8, 8, 8), strict=True))
    assert len(set(waits)) == 6
    backoff.reset()
    assert backoff.next_s() <= 1.0


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_faults_it_shows_what_a_fresh_list_shows(tmp_path: Path, seed: int) -> None:
    """Repeat one with `.venv/bin/python -m tests.engines.kubernetes.rounds SEED`."""
    played = play(seed, tmp_path)
    assert played.shown == played.there
