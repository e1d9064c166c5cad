"""Which runs still make progress, and which are stuck? Made-up events, as a table."""

from __future__ import annotations

import pytest

from experiments.logs import gang, pod, submitted
from swell.experiments.events import EventKind, RunEvent
from swell.experiments.stuck import RunProgress

STUCK_S = 120.0
GANGS = [gang("a", 2), gang("b", 2)]
ASKED = [submitted("a"), submitted("b")]
WHOLE = [*pod("a", 0, bound=1, running=2), *pod("a", 1, bound=1, running=3)]
HALVES = [*pod("a", 0, bound=1, running=2), *pod("b", 0, bound=1, running=2)]
TAKEN = RunEvent(200.0, EventKind.DELETED, "a")


@pytest.mark.parametrize(
    ("story", "events", "now_s", "is_stuck"),
    [
        ("nothing was ever bound", ASKED, 121, True),
        ("nothing was bound yet", ASKED, 119, False),
        ("a whole gang runs for an hour", [*ASKED, *WHOLE], 3600, False),
        ("halves of two gangs run, and each waits for its other rank", [*ASKED, *HALVES], 123, True),
        ("halves of two gangs began to run a moment ago", [*ASKED, *HALVES], 121, False),
        ("all ranks have a node, but not all run", [*ASKED, *WHOLE[:3]], 123, True),
        ("a whole gang runs beside a half one", [*ASKED, *WHOLE, *pod("b", 0, running=2)], 3600, False),
        ("a rank of it has ended, and the other waits", [*ASKED, *WHOLE, *pod("a", 0, succeeded=50)], 171, True),
        ("a rank of it has just ended", [*ASKED, *WHOLE, *pod("a", 0, succeeded=50)], 169, False),
        ("a rank of it has failed, and the other waits", [*ASKED, *WHOLE, *pod("a", 1, failed=500)], 621, True),
        (
            "a rank of it has failed, and began again",
            [*ASKED, *WHOLE, *pod("a", 1, failed=500, created=501, bound=502, running=503)],
            3600,
            False,
        ),
        ("it was preempted after it had run for long", [*ASKED, *WHOLE, *pod("a", 0, released=900)], 1019, False),
        ("it was preempted, and nothing came of it", [*ASKED, *WHOLE, *pod("a", 0, released=900)], 1021, True),
        ("its object was deleted, and its pods with it", [*ASKED, *WHOLE, TAKEN], 321, True),
        (
            "one rank is bound again and again",
            [*ASKED, *(one for at in range(1, 900, 10) for one in pod("a", 0, bound=at, released=at + 5))],
            900,
            True,
        ),
    ],
)
def test_a_run_is_stuck_when_nothing_new_happens_and_no_whole_gang_runs(
    story: str, events: list[RunEvent], now_s: float, is_stuck: bool
) -> None:
    progress = RunProgress(GANGS)
    for event in events:
        progress.apply(event)
    assert progress.is_stuck(now_s, STUCK_S) is is_stuck, story
