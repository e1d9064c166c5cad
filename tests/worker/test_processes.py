"""Who of a task is asked to end, and in which order?"""

from __future__ import annotations

import os
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


def test_the_order_of_a_long_line_is_found_by_passing_everybody_once() -> None:
    """A job's chain of 16,000 processes held the worker for 87 s: for each of them its whole line was walked."""
    count = 200_000  # walked for each, this takes hours
    chain = {pid: pid - 1 for pid in range(1, count)}
    backwards = {pid: chain[pid] for pid in reversed(chain)}
    for parents in (chain, backwards):
        assert processes.generations(parents) == {pid: pid for pid in chain}


def test_a_task_in_a_control_group_is_found_without_looking_at_everybody_else(tmp_path, monkeypatch) -> None:
    """Each task of a gang looked at every process of the machine when it was to end."""
    (tmp_path / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in (os.getppid(), os.getppid(), 1)))
    monkeypatch.setattr(processes, "_pids", lambda: pytest.fail("all processes were looked at"))
    confined = processes.Confined(os.getuid() + 1, (tmp_path,))
    assert processes.members(1, (), confined) == [os.getppid()]
