"""Who of a task is asked to end, and in which order?"""

from __future__ import annotations

import signal

import pytest

from swell.worker import processes


@pytest.mark.parametrize(
    ("what", "parents", "order"),
    [
        ("numbers that grew", {10: 2, 11: 10, 12: 11}, [10, 11, 12]),
        ("numbers that began anew", {32767: 2, 300: 32767, 301: 300}, [32767, 300, 301]),
        ("a daemon beside it", {40: 30, 30: 20, 20: 2, 35: 1}, [20, 35, 30, 40]),
        ("a number that was used again while we looked", {50: 51, 51: 50}, [50, 51]),
    ],
)
def test_who_waits_for_another_is_asked_before_it(
    what: str, parents: dict[int, int], order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, signal.Signals]] = []
    monkeypatch.setattr(processes, "members", lambda *_: [*parents])
    monkeypatch.setattr(processes, "_parent", parents.__getitem__)
    monkeypatch.setattr(processes, "_signal", lambda pid, number: sent.append((pid, number)))
    asked: set[int] = set()
    processes.terminate(None, (), asked)
    assert sent == [(pid, number) for pid in order for number in (signal.SIGTERM, signal.SIGCONT)], what
    assert asked == set(order)
