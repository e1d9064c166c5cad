"""How does what other threads ask reach the loop?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from swell.controller.intents import Intent
from swell.controller.world import World
from swell.errors import Unavailable

CLOSED = "the server is ending; ask again when it is there again"
Message = Callable[[World], object]  # what is stored already; the world is brought up to it

T = TypeVar("T")


class Inbox:
    """What is to be carried out in the next cycle. For any thread."""

    def __init__(self) -> None:
        self.wanted = threading.Event()  #: a cycle is, as soon as may be
        self._mutex = threading.Lock()
        self._intents: list[tuple[Intent[Any], Future[Any]]] = []
        self._messages: list[Message] = []
        self._is_closed = False  #: nobody carries out what is asked any more

    def intend(self, intent: Intent[T]) -> Future[T]:
        """Carried out by the loop, in its next cycle; done when that is on disk."""
        future: Future[T] = Future()
        with self._mutex:
            if self._is_closed:
                raise Unavailable(CLOSED)
            self._intents.append((intent, future))
        self.wanted.set()
        return future

    def tell(self, message: Message, *, is_urgent: bool = True) -> None:
        with self._mutex:
            self._messages.append(message)
        if is_urgent:
            self.wanted.set()

    def take_intents(self) -> list[tuple[Intent[Any], Future[Any]]]:
        """Those that nobody has given up."""
        with self._mutex:
            intents, self._intents = self._intents, []
        return [(intent, future) for intent, future in intents if future.set_running_or_notify_cancel()]

    def take_messages(self) -> list[Message]:
        with self._mutex:
            messages, self._messages = self._messages, []
        return messages

    def refuse_more(self) -> None:
        """Nobody carries out what is asked from now on: whoever waits hears so."""
        with self._mutex:
            self._is_closed = True
        for _, future in self.take_intents():
            future.set_exception(Unavailable(CLOSED))
