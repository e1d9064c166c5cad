"""How long to wait before asking a silent server again?"""

from __future__ import annotations

import random

SHORTEST_S = 0.2
LONGEST_S = 5.0


class Backoff:
    def __init__(self) -> None:
        self._next_s = SHORTEST_S
        # Its own generator: drawing from the shared one would change what a seeded script computes.
        self._random = random.Random()  # noqa: S311

    def draw_s(self) -> float:
        """Twice as long every time, and a random half of it, so that a thousand jobs do not come back at once."""
        longest, self._next_s = self._next_s, min(LONGEST_S, 2 * self._next_s)
        return longest * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._next_s = SHORTEST_S
