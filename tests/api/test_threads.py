"""Threads for a purpose: work of one user that hangs keeps the threads of that user, and no others."""

from __future__ import annotations

import threading

import pytest

from swell.api.threads import Threads

LONG_S = 10.0


@pytest.fixture
def pool():
    made = Threads("test", 4, per_user=2)
    yield made
    made.close()


def test_work_that_hangs_keeps_only_threads_of_its_own_user(pool):
    go, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> bool:
        begun.release()
        return go.wait(LONG_S)

    hanging = [pool.submit("anna", hang) for _ in range(12)]
    assert begun.acquire(timeout=LONG_S)
    assert begun.acquire(timeout=LONG_S)
    assert pool.submit("ben", lambda: "answered").result(LONG_S) == "answered"
    assert not begun.acquire(blocking=False)  # a third of anna's has not begun
    go.set()
    assert [one.result(LONG_S) for one in hanging] == [True] * 12


def test_what_was_given_up_is_not_begun_and_what_fails_is_told_to_who_asked(pool):
    go = threading.Event()
    busy = [pool.submit("anna", lambda: go.wait(LONG_S)) for _ in range(2)]
    given_up = pool.submit("anna", lambda: pytest.fail("it was begun"))
    broken = pool.submit("anna", lambda: 1 // 0)
    assert given_up.cancel()
    go.set()
    assert [one.result(LONG_S) for one in busy] == [True, True]
    with pytest.raises(ZeroDivisionError):
        broken.result(LONG_S)
