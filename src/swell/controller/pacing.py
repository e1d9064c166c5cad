"""How long do we rest after a cycle, while events keep coming?

A few times what it cost: planning anew all that waits and runs must not take the core from those who carry plans out.
Yet a cycle also costs what it starts, and that is not saved by waiting: after a burst of thousands the rest would take
half a minute, in which nobody's job is started, held or cancelled. So a rest has an end of its own.
"""

from __future__ import annotations

SPACING = 3.0  # at most a quarter of one core goes into planning,
SPACING_MAX = 9.0  # and a tenth of it where a cycle takes long: thousands of pods, and others need the core as well
SHORT_S, LONG_S = 0.025, 0.06  # up to here it does not, from here on it does
REST_S_MAX = 2.0  # a tenth is kept with 50,000 jobs: a cycle that finds nothing new takes 0.23 s there


def rest_s(busy_s: float) -> float:
    """After a cycle that took so much of a core."""
    length = min(1.0, max(0.0, (busy_s - SHORT_S) / (LONG_S - SHORT_S)))
    return min(REST_S_MAX, busy_s * (SPACING + (SPACING_MAX - SPACING) * length))
