"""What has this process been asked to do?

Written by the threads that hear the server and by the signal handler, read by training. Every field is one word of
memory and is replaced whole, so training and the signal handler need no lock; the two threads have one.

The server is heard twice, in answers to reports and in answers to questions. A report's answer may have been written
before and arrive after what a question has brought meanwhile; then it is old and not heard. Otherwise the order would
be forgotten, and the server, which was told that we know it, would not repeat it.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, Optional, Tuple

#: The epoch under way, counted from 0, and the steps of it that this attempt has done.
Position = Tuple[int, int]


class Asked(NamedTuple):
    """What the server asks of this process."""

    stop_after_epoch: Optional[int] = None  #: None: go on
    stop_at_step: Optional[Position] = None  #: None: not inside an epoch
    tell_step: bool = False  #: the server wants to know this rank's step, to choose the one at which all ranks stop
    yield_now: bool = False

    @property
    def known(self) -> str:
        """What a question says that this process knows already; the server spells it the same way."""
        text = "" if self.stop_after_epoch is None else str(self.stop_after_epoch)
        text += "?" if self.tell_step else ""
        return text if self.stop_at_step is None else f"{text}@{self.stop_at_step[0]}.{self.stop_at_step[1]}"


NOTHING_ASKED = Asked()


class Orders:
    __slots__ = ("_lock", "asked", "heard", "may_stop", "terminated")

    def __init__(self) -> None:
        self.asked = NOTHING_ASKED
        self.terminated = False  #: SIGTERM has come; never taken back
        self.may_stop = False  #: a step is worth a closer look; the only thing that every step reads
        self._lock = threading.Lock()
        self.heard = 0  #: how often the server has been heard

    @property
    def yield_now(self) -> bool:
        """The server's word; it may take it back."""
        return self.asked.yield_now

    @property
    def stop_after_epoch(self) -> Optional[int]:
        return self.asked.stop_after_epoch

    def hear(self, asked: Asked, *, asked_at: Optional[int] = None) -> None:
        """`asked_at`: what `heard` was when this was asked for; None: it cannot be old."""
        with self._lock:
            if asked_at is None or asked_at == self.heard:
                self.asked = asked
                self.may_stop = asked.yield_now or asked.stop_at_step is not None
                if self.terminated:  # read last: the signal's handler has no lock
                    self.may_stop = True
                self.heard += 1

    def terminate(self) -> None:
        """SIGTERM has come."""
        self.terminated = True
        self.may_stop = True

    def want_stop(self, epochs_done: int) -> bool:
        """Before an epoch begins. Ranks agree without talking because each compares its own count with the same
        number."""
        asked = self.asked
        if self.terminated or asked.yield_now:
            return True
        if asked.stop_at_step is not None and asked.stop_at_step <= (epochs_done, 0):
            return True
        return asked.stop_after_epoch is not None and asked.stop_after_epoch <= epochs_done

    def want_stop_at_step(self, position: Position, *, is_alone: bool) -> bool:
        """After a step. SIGTERM reaches ranks at different steps, so only a rank that is alone stops for it here."""
        stop_at = self.asked.stop_at_step
        if stop_at is not None and stop_at <= position:
            return True
        return is_alone and (self.terminated or self.asked.yield_now)
