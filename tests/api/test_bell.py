"""Whoever waits for a bell hears every ring that came after they looked."""

from __future__ import annotations

import asyncio
import threading
import time

from swell.api.bell import Bell

LONG_S = 20.0  # a missed ring shows as this much waiting


def elapsed(story) -> float:  # type: ignore[no-untyped-def]
    began = time.monotonic()
    asyncio.run(story)
    return time.monotonic() - began


def test_a_ring_before_anybody_ever_waited_is_not_lost():
    """Between a look and the very first wait the bell did not know its loop yet, and the ring went nowhere."""
    bell = Bell()
    bell.ring()
    assert elapsed(bell.wait(LONG_S)) < 5


def test_a_ring_from_another_thread_wakes_everybody_who_waits():
    bell = Bell()

    async def story() -> None:
        await bell.wait(LONG_S)  # the first one returns at once
        waiting = [asyncio.ensure_future(bell.wait(LONG_S)) for _ in range(5)]
        await asyncio.sleep(0)
        threading.Thread(target=bell.ring).start()
        await asyncio.gather(*waiting)

    assert elapsed(story()) < 5


def test_without_a_ring_the_wait_ends_after_its_time():
    bell = Bell()

    async def story() -> None:
        await bell.wait(LONG_S)
        await bell.wait(0.05)
        await bell.wait(0)
        await bell.wait(-1)

    assert elapsed(story()) < 5


def test_a_closed_bell_lets_everybody_go_and_keeps_nobody():
    bell = Bell()

    async def story() -> None:
        await bell.wait(LONG_S)
        waiting = asyncio.ensure_future(bell.wait(LONG_S))
        await asyncio.sleep(0)
        threading.Thread(target=bell.close).start()
        await waiting
        await bell.wait(LONG_S)

    assert elapsed(story()) < 5


def test_a_ring_after_the_loop_has_ended_disturbs_nobody():
    """A job ended while the server was going down: the commit that recorded it rang, the bell raised, the store's
    only writer died of it, and the server waited for its answer for ever."""
    bell = Bell()
    asyncio.run(bell.wait(LONG_S))
    bell.ring()
    bell.close()
    assert bell.is_closed


def test_no_ring_between_looking_and_waiting_is_ever_missed():
    bell, count, seen = Bell(), [0], []

    def change() -> None:
        while len(seen) < 200:
            if len(seen) == count[0]:
                count[0] += 1
                bell.ring()

    async def story() -> None:
        await bell.wait(LONG_S)
        thread = threading.Thread(target=change)
        thread.start()
        while len(seen) < 200:
            if count[0] > len(seen):
                seen.append(count[0])
            else:
                await bell.wait(LONG_S)
        thread.join()

    assert elapsed(story()) < LONG_S / 2


def test_a_ring_for_some_names_wakes_those_who_wait_under_them_and_no_others():
    bell, woken = Bell(), []

    async def wait(name: str) -> None:
        await bell.wait(LONG_S, name)
        woken.append(name)

    async def story() -> None:
        await bell.wait(LONG_S)
        waiting = {name: asyncio.ensure_future(wait(name)) for name in ("a", "b", "c")}
        await asyncio.sleep(0)
        for names in ({"a"}, {"c", "nobody"}):
            threading.Thread(target=bell.ring, args=(names,)).start()
        await asyncio.gather(waiting["a"], waiting["c"])
        assert sorted(woken) == ["a", "c"]
        threading.Thread(target=bell.ring).start()
        await waiting["b"]

    assert elapsed(story()) < 5
