"""Which logs of a worker elsewhere are sent first, and when it has sent enough for now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swell.model.job import AttemptId
from swell.worker import log_sender
from swell.worker.log_sender import LogSender

ATTEMPT = AttemptId(1, 1)


class Line:
    """Stands for the server: takes everything, and remembers which logs were in each request."""

    def __init__(self, grow: dict[int, Path] | None = None) -> None:
        self.requests: list[list[int]] = []
        self._grow = grow or {}  #: logs whose task writes as much as was sent

    def send_logs(self, body: bytes) -> list[int | None]:
        named = json.loads(body.partition(b"\n")[0])
        self.requests.append([index for _, index, _, _ in named])
        for _, index, _, length in named:
            if index in self._grow:
                with self._grow[index].open("ab") as file:
                    file.write(b"x" * length)
        if len(self.requests) > 20:
            raise OSError("it never comes to an end")
        return [offset + length for _, _, offset, length in named]

    def close(self) -> None:
        pass


def sender_of(root: Path, logs: dict[int, bytes]) -> LogSender:
    made = LogSender(root, Line, wake=lambda: None)
    for index, data in logs.items():
        folder = root / str(ATTEMPT) / str(index)
        folder.mkdir(parents=True)
        (folder / "log").write_bytes(data)
        made.follow(ATTEMPT, index, has_ended=False)
    return made


def test_a_few_chatty_tasks_leave_nobody_out(tmp_path: Path, monkeypatch) -> None:
    """The oldest logs always came first: the end of a task behind them was never told."""
    monkeypatch.setattr(log_sender, "PIECE_BYTES", 10)
    monkeypatch.setattr(log_sender, "REQUEST_BYTES", 20)
    sender = sender_of(tmp_path, {0: b"a" * 100, 1: b"b" * 100, 2: b"end"})
    sender.follow(ATTEMPT, 2, has_ended=True)
    line = Line(grow={index: tmp_path / str(ATTEMPT) / str(index) / "log" for index in (0, 1)})
    with pytest.raises(OSError, match="never"):  # they write as fast as it is sent
        sender.send_once(line)
    assert line.requests[:2] == [[0, 1], [2, 0, 1]]
    assert sender.is_done(ATTEMPT, 2)


def test_many_quiet_tasks_are_looked_at_once(tmp_path: Path, monkeypatch) -> None:
    """With as many as a request has pieces it went on for ever."""
    monkeypatch.setattr(log_sender, "PIECES_MAX", 3)
    sender = sender_of(tmp_path, {index: b"a" if index == 6 else b"" for index in range(7)})
    line = Line()
    sender.send_once(line)
    assert line.requests == [[6]]
