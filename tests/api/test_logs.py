"""Logs by offset, and events as a stream that goes on where it was cut."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import pytest

from api.service import USER, Answer, Service
from swell.model.logindex import pack_entry

TEXT = b"one\ntwo\nthree\n"


@pytest.fixture(scope="module")
def job(service) -> int:
    """A running job that has written three lines."""
    made = service.submit("writer")
    service.worker.begin(made, TEXT)
    return int(made)


def log(service: Service, job: int, query: str = "") -> Answer:
    return service.ask("GET", f"/jobs/{job}/logs?{query}")


def offsets(answer: Answer) -> tuple[int, int, str]:
    headers = answer.headers
    return int(headers["Swell-Offset"]), int(headers["Swell-Next-Offset"]), headers["Swell-Complete"]


def test_a_log_is_the_bytes_that_were_written(service, job):
    answer = log(service, job)
    assert (answer.data, answer.headers["Content-Type"]) == (TEXT, "application/octet-stream")
    assert offsets(answer) == (0, len(TEXT), "false")
    assert answer.headers["Swell-State"] == "running"


@pytest.mark.parametrize(
    ("offset", "limit", "data"),
    [(4, 100, b"two\nthree\n"), (4, 3, b"two"), (-6, 100, b"three\n"), (-1000, 100, TEXT), (14, 5, b""), (999, 5, b"")],
)
def test_a_log_is_read_from_an_offset_or_from_the_end(service, job, offset, limit, data):
    answer = log(service, job, f"offset={offset}&limit={limit}")
    assert answer.data == data
    start, following, _ = offsets(answer)
    assert following - start == len(data)


def test_reading_on_from_the_next_offset_gives_every_byte_once(service, job):
    read, offset = b"", 0
    while piece := log(service, job, f"offset={offset}&limit=5"):
        if not piece.data:
            break
        read += piece.data
        offset = offsets(piece)[1]
    assert read == TEXT


def test_a_follower_is_answered_as_soon_as_something_is_written(service, job):
    answers: list[Answer] = []
    began = time.monotonic()
    follower = threading.Thread(target=lambda: answers.append(log(service, job, f"offset={len(TEXT)}&wait_s=8")))
    follower.start()
    service.worker.write(job, b"four\n")
    follower.join(10)
    assert answers[0].data == b"four\n"
    assert time.monotonic() - began < 5


def test_a_follower_of_a_quiet_task_is_answered_with_nothing_after_its_time(service, job):
    answer = log(service, job, "offset=10000&wait_s=0.05")
    assert (answer.status, answer.data, answer.headers["Swell-Complete"]) == (200, b"", "false")


def test_a_log_since_a_moment_begins_where_that_was_written(service, job):
    index = service.state.tasks / f"{job}.1" / "0" / "index"
    index.write_bytes(pack_entry(0, 100.0) + pack_entry(4, 200.0) + pack_entry(8, 300.0))
    assert log(service, job, "since=150&limit=4").data == b"two\n"
    assert log(service, job, "since=0&limit=4").data == b"one\n"
    assert log(service, job, "since=301").data == b""


def test_a_rank_that_the_job_does_not_have_is_not_found(service, job):
    said = f"job {job} has no task 1; its ranks are 0 to 0"
    assert log(service, job, "rank=1").error == (404, "NotFound", said)


def test_a_rank_below_zero_is_refused(service, job):
    assert log(service, job, "rank=-1").error[:2] == (422, "Rejected")


def test_a_task_of_an_array_is_named_by_its_index(service):
    array = service.submit("array", array="10-20:5", gpus=99)
    said = f"job {array} has no task 11; its array is 10-20:5"
    assert log(service, array, "rank=11").error == (404, "NotFound", said)
    assert log(service, array, "rank=15").data == b""


def test_a_job_that_has_not_begun_has_an_empty_log(service):
    answer = log(service, service.submit("unborn", gpus=99))
    assert (answer.status, answer.data, answer.headers["Swell-Complete"]) == (200, b"", "false")


def test_a_log_is_complete_when_the_task_has_ended_and_all_is_read(service):
    ended = service.submit("ended")
    service.worker.begin(ended, TEXT)
    service.worker.end(ended)
    assert offsets(log(service, ended)) == (0, len(TEXT), "false")
    assert offsets(log(service, ended, f"offset={len(TEXT)}&wait_s=8")) == (len(TEXT), len(TEXT), "true")


# -- events ------------------------------------------------------------------------------------------------------


class Stream:
    """A reader of server-sent events."""

    def __init__(self, service: Service, query: str = "", last: int | None = None) -> None:
        self._connection = service.connect()
        headers = {"Authorization": f"Bearer {USER}"} | ({} if last is None else {"Last-Event-ID": str(last)})
        self._connection.request("GET", f"/api/v1/events/stream?{query}", headers=headers)
        self.response: http.client.HTTPResponse = self._connection.getresponse()

    def next(self) -> dict[str, Any]:
        lines: dict[str, str] = {}
        while line := self.response.readline().decode().strip():
            name, _, value = line.partition(": ")
            lines[name] = value
        event: dict[str, Any] = json.loads(lines["data"])
        assert (lines["id"], lines["event"]) == (str(event["id"]), event["kind"])
        return event

    def close(self) -> None:
        self._connection.close()


def test_events_are_streamed_as_they_happen(service):
    stream = Stream(service)
    assert stream.response.headers["Content-Type"].startswith("text/event-stream")
    job = service.submit("streamed", gpus=99)
    event = stream.next()
    assert (event["kind"], event["job"], event["actor"]) == ("Submitted", job, "ann")
    stream.close()


def test_a_stream_that_was_cut_goes_on_after_the_last_event_that_was_seen(service):
    job = service.submit("cut", gpus=99)
    service.ask("POST", f"/jobs/{job}/cancel")
    service.until(job, "cancelled")
    first = Stream(service, f"job={job}&after=0")
    seen = first.next()
    first.close()
    again = Stream(service, f"job={job}&after=0", last=seen["id"])
    rest = [again.next(), again.next()]
    again.close()
    assert [event["kind"] for event in (seen, *rest)] == ["Submitted", "CancelRequested", "Ended"]


def test_a_stream_of_one_job_has_nothing_of_others(service):
    mine = service.submit("mine", gpus=99)
    stream = Stream(service, f"job={mine}")
    service.submit("others", gpus=99)
    service.ask("POST", f"/jobs/{mine}/cancel")
    assert [stream.next()["job"], stream.next()["job"]] == [mine, mine]
    stream.close()


def test_a_stream_of_a_job_that_does_not_exist_is_refused(service):
    assert service.ask("GET", "/events/stream?job=nobody-at-all").status == 404


def test_events_come_in_pages(service):
    for _ in range(3):
        service.submit("paged", gpus=99)
    first = service.ask("GET", "/events?limit=2").json["events"]
    following = service.ask("GET", f"/events?limit=2&after={first[-1]['id']}").json["events"]
    assert [event["id"] for event in first + following] == [1, 2, 3, 4]
    assert set(first[0]) == {"id", "at", "job", "kind", "actor", "origin", "detail"}
