"""The Python client against the real API."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from api.service import USER, Service
from swell.client import Client, Reason
from swell.errors import Conflict, NotFound, Rejected
from swell.machine.state_folder import StateFolder


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("client"))
    made.state.token.write_text(USER)
    yield made
    made.close()


@pytest.fixture
def client(service) -> Client:
    return Client(StateFolder(service.state.root))


def test_a_job_is_submitted_from_here_with_this_umask_and_environment(service, client, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOUR", "blue")
    before = os.umask(0o027)
    try:
        job = client.submit(["echo", "hi"], name="here", gpus="1..2", env={"A": "b"}, priority=2, time="5m")
    finally:
        os.umask(before)
    record = service.store.job(job.id)
    assert (record.spec.workdir, record.spec.umask, record.spec.env) == (str(tmp_path), 0o027, (("A", "b"),))
    assert (record.spec.width_max, record.spec.time_limit_s, record.priority) == (2, 300.0, 2)
    assert service.store.environment(record.environment)["COLOUR"] == "blue"
    assert os.umask(before) == before


def test_a_job_is_watched_to_its_end(service, client):
    job = client.submit(["true"], name="watched")
    service.worker.begin(job.id, b"hello\n")
    assert job.refresh().state == "running"
    assert job.why() is None
    assert not job.wait(timeout_s=0.05).has_ended
    service.worker.end(job.id, 3)
    assert (job.wait().state, job.exit_code, repr(job)) == ("failed", 3, f"<Job {job.id} watched failed>")
    assert b"".join(job.logs(follow=True)) == b"hello\n"
    assert isinstance(job.why(), Reason)
    assert str(job.why()).startswith("TaskFailed: ")


def test_a_log_is_read_in_pieces_from_any_offset(service, client):
    job = client.submit(["true"], name="pieces")
    service.worker.begin(job.id, b"x" * (1 << 20) + b"end")
    pieces = list(client.logs(job.id))
    assert [len(piece) for piece in pieces] == [1 << 20, 3]
    tail = client.read_log(job.id, offset=-3)
    assert (tail.start, tail.next, tail.data, tail.is_complete) == (1 << 20, (1 << 20) + 3, b"end", False)


def test_a_file_is_checked_without_being_submitted(service, client):
    text = "apiVersion: swell/v1\nkind: Job\nspec: {command: [a]}\n"
    before = len(client.jobs(all=True))
    assert client.submit_files({"": text}, dry_run=True).specs[0]["name"] == "a"
    assert len(client.jobs(all=True)) == before
    assert [job.name for job in client.submit_manifest(f"{text}---\n{text}")] == ["a", "a"]


def test_errors_of_the_server_arrive_as_they_are(client):
    with pytest.raises(Rejected, match=r"gpus: '2\.\.1': the maximum 1 is below the minimum 2; write 1\.\.2"):
        client.submit(["true"], gpus="2..1")
    with pytest.raises(NotFound, match="there is no job 'nobody-here'"):
        client.show("nobody-here")
    for _ in range(2):
        client.submit(["true"], name="pair", gpus=99, wait_for_nodes=True)
    with pytest.raises(Conflict, match="2 jobs are named 'pair'; name the job by id: "):
        client.cancel("pair")


def test_a_misspelt_word_is_refused_before_anything_is_sent(client):
    with pytest.raises(TypeError, match=r"submit\(\) knows no 'gpu'; it knows after, .*, gpus, "):
        client.submit(["true"], gpu=1)


def test_a_job_is_cancelled_and_deleted(client):
    job = client.submit(["true"], name="short-lived", gpus=99, wait_for_nodes=True)
    assert job.cancel(grace_s=1).wait(timeout_s=10).state == "cancelled"
    client.delete(job.id)
    with pytest.raises(NotFound):
        client.job(job.id)
    assert [event["kind"] for event in client.events(limit=1000) if event["job"] == job.id][-1] == "Deleted"


def test_events_are_followed_as_they_happen(client):
    job = client.submit(["true"], name="followed", gpus=99, wait_for_nodes=True)
    stream = client.follow_events(job=job.id, after=0)
    assert next(stream)["kind"] == "Submitted"
    stream.close()


def test_nodes_are_listed(service, client):
    service.worker.sync()
    assert [node["name"] for node in client.nodes()] == ["box"]
