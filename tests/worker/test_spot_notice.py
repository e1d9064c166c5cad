"""EC2 takes a machine back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from ec2 import NOTICE, MachineData
from swell.worker.spot_notice import SpotNotice, parse_notice

SAID = "terminate at 2026-11-18T10:00:00Z"


@pytest.fixture
def data() -> Iterator[MachineData]:
    data = MachineData()
    yield data
    data.close()


class Told:
    """What was announced, and when to look."""

    def __init__(self, url: str) -> None:
        self.notices: list[str] = []
        self._event = threading.Event()
        self.watch = SpotNotice(self._tell, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url}, pause_s=0.01)
        self.watch.start()

    def _tell(self, notice: str) -> None:
        self.notices.append(notice)
        self._event.set()

    def wait(self) -> list[str]:
        assert self._event.wait(20)
        return self.notices


@pytest.mark.parametrize(
    ("status", "body", "notice"),
    [
        (404, b"<html>", None),
        (200, b'{"action": "terminate", "time": "2026-11-18T10:00:00Z"}', SAID),
        (200, b"<html>a captive portal</html>", None),
        (200, b"[]", None),
        (200, b'{"action": "stop"}', None),
        (200, b"\xff", None),
        (500, b'{"action": "terminate", "time": "now"}', None),
    ],
)
def test_only_ec2s_own_words_are_a_notice(status: int, body: bytes, notice: str | None) -> None:
    assert parse_notice(status, body) == notice


def test_a_notice_is_told_once_with_a_token_that_is_renewed(data: MachineData) -> None:
    told = Told(data.url)
    data.await_asked(("GET", 401), ("PUT", 200), ("GET", 404))
    data.token = "second"
    data.await_asked(("GET", 401), ("PUT", 200), ("GET", 404))
    data.notice = NOTICE
    assert told.wait() == [SAID]


def test_a_machine_that_is_not_ec2s_runs_on_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    data = MachineData()
    data.close()
    with caplog.at_level(logging.WARNING, "swell.worker.spot_notice"):
        watch = SpotNotice(lambda _: None, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": data.url}, pause_s=0.0)
        for _ in range(3):
            assert watch._ask() is None
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "EC2's spot notices cannot be read, and the worker runs on without"
    ]
