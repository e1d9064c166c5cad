"""Turns: a user's own requests wait for each other, and nobody else's do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from swell.api.turns import AT_ONCE, LOOKS_PER_S, WAITING_MAX, Turns, at_rest, look_again
from swell.errors import TooMany


def told(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


class Crowd:
    """Requests that stay in work until they are let go."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self.go = asyncio.Event()

    async def request(self, user: str) -> None:
        async with self.turns.one(user):
            self.begun.append(user)
            await self.go.wait()

    def send(self, user: str, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self.request(user)) for _ in range(count)]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_whoever_sends_a_hundred_requests_stands_in_nobodys_way():
    async def story() -> None:
        crowd = Crowd()
        sent = crowd.send("anna", 100) + crowd.send("ben", 1)
        await settle()
        assert crowd.begun == ["anna"] * AT_ONCE + ["ben"]
        crowd.go.set()
        await asyncio.gather(*sent)
        assert crowd.begun.count("anna") == 100

    told(story())


def test_a_line_has_an_end_and_who_comes_then_is_told_what_to_do():
    async def story() -> None:
        crowd = Crowd()
        sent = crowd.send("anna", AT_ONCE + WAITING_MAX)
        await settle()
        with pytest.raises(TooMany, match=f"^{WAITING_MAX} requests of anna are already waiting"):
            await crowd.request("anna")
        for one in sent:
            one.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
        crowd.go.set()
        await crowd.request("anna")  # all that went away have left the line

    told(story())


def test_a_request_that_waits_for_something_to_happen_gives_its_turn_to_another():
    async def story() -> None:
        turns, news, begun = Turns(), asyncio.Event(), []

        async def poll(number: int) -> None:
            async with turns.one("anna"):
                begun.append(number)
                async with at_rest():
                    await news.wait()

        sent = [asyncio.ensure_future(poll(number)) for number in range(3 * AT_ONCE)]
        await settle()
        assert begun == list(range(3 * AT_ONCE))
        news.set()
        await asyncio.gather(*sent)

    told(story())


def test_who_rests_within_a_rest_has_its_turn_once_afterwards():
    async def story() -> None:
        turns, begun = Turns(), []

        async def poll(number: int) -> None:
            async with turns.one("anna"):
                async with at_rest(), at_rest():
                    await asyncio.sleep(0)
                begun.append(number)

        await asyncio.gather(*(poll(number) for number in range(5 * AT_ONCE)))
        assert sorted(begun) == list(range(5 * AT_ONCE))

    told(story())


def test_however_many_follow_their_user_looks_so_often_a_second_and_no_more():
    async def story() -> None:
        turns, clock = Turns(), asyncio.get_running_loop().time

        async def look() -> float:
            async with turns.one("anna"), at_rest():
                await look_again()
                return clock()

        began = clock()
        looked = await asyncio.gather(*(look() for _ in range(21)))
        assert max(looked) - began >= 20 / LOOKS_PER_S - 0.01

    told(story())
