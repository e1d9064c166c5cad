"""Workers as jobs of AWS Batch, with boto3 against moto's server on loopback (a fake of AWS)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pools.aws import AwsWorld, Moto, point_sdk_at
from pools.contract import TOKEN, PoolContract, order
from pools.unsteady import Answer, Trouble
from swell.errors import Rejected, SwellError, Unavailable
from swell.pools.backend import WorkerState

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    moto = Moto()
    yield moto
    moto.close()


@pytest.fixture
def world(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    world = AwsWorld(moto)
    point_sdk_at(world.proxy.url, monkeypatch)
    yield world
    world.close()


class TestAwsBatch(PoolContract):
    """Against moto."""

    def test_an_order_that_is_refused_says_why_and_starts_nothing(self, world: AwsWorld) -> None:  # type: ignore[override]
        """As in the suite; an unknown queue has no list either, so the known one is looked at."""
        known, world.options = world.options, replace(world.options, job_queue="unknown")
        with pytest.raises(Rejected, match="Job queue unknown does not exist") as refused:
            world.backend("lab").launch(order())
        assert TOKEN not in str(refused.value)
        world.options = known
        assert world.backend("lab").observe() == ()


# -- on the wire -------------------------------------------------------------------------------------------------------


def test_ten_workers_are_one_definition_and_another_size_is_another_revision(world: AwsWorld) -> None:
    """CodaLab's manager registered one for each launch."""
    for _ in range(3):
        backend = world.backend("lab")
        for _ in range(2):
            backend.launch(order())
    world.backend("lab").launch(order(memory_mib=8192))
    world.backend("lab").launch(order())
    name = world.options.job_definition_name
    definitions = world.moto.client("batch").describe_job_definitions(jobDefinitionName=name)["jobDefinitions"]
    assert sorted(found["revision"] for found in definitions) == [1, 2]


def test_the_token_is_encrypted_in_parameter_store_and_put_there_once(world: AwsWorld) -> None:
    backend = world.backend("once")
    for _ in range(2):
        backend.launch(order("once"))
    path = "/swell/pools/once/worker-token"
    found = world.moto.client("ssm").get_parameter(Name=path, WithDecryption=True)["Parameter"]
    assert (found["Type"], found["Value"], found["Version"]) == ("SecureString", TOKEN, 1)
    ids = [found.backend_id for found in backend.observe()]
    assert TOKEN not in json.dumps(world.moto.client("batch").describe_jobs(jobs=ids)["jobs"])


def test_every_state_of_batch_is_told_apart(world: AwsWorld) -> None:
    backend, wanted = world.backend("lab"), order()
    backend_id = backend.launch(wanted)
    seen = []
    for status in ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"):
        world.moto.change(backend_id, status=status)
        (found,) = backend.observe()
        seen.append((found.word, found.state))
    assert seen == [
        ("SUBMITTED", WorkerState.PENDING),
        ("PENDING", WorkerState.PENDING),
        ("RUNNABLE", WorkerState.PENDING),
        ("STARTING", WorkerState.PENDING),
        ("RUNNING", WorkerState.RUNNING),
    ]
    world.end(backend_id, 3)
    (found,) = backend.observe()
    assert (found.state, found.exit_code, found.is_proof) == (WorkerState.ENDED, 3, True)


THROTTLED = Answer(
    429,
    b'{"message": "Rate exceeded"}',
    (("x-amzn-ErrorType", "TooManyRequestsException"), ("Content-Type", "application/json")),
)
BROKEN = Answer(500, b'{"message": "Internal"}', (("x-amzn-ErrorType", "ServerException"),))
SHORT = (THROTTLED, BROKEN, Trouble.CUT, Answer(503, b"<html>upstream</html>"))
ODD = (
    Answer(200, b"{}", (("Content-Type", "application/json"),)),
    Answer(200, b"<html>a captive portal</html>", (("Content-Type", "text/html"),)),
    Answer(200, b'{"jobSummaryList": [{"jobName": 5}]}', (("Content-Type", "application/json"),)),
    Answer(200, b'{"jobSummaryList": "many"}', (("Content-Type", "application/json"),)),
    Answer(200, b"\xff\xfe", (("Content-Type", "application/json"),)),
)


@pytest.mark.parametrize("trouble", SHORT, ids=repr)
def test_a_short_trouble_is_asked_through(world: AwsWorld, trouble: Any) -> None:
    backend, wanted = world.backend("lab"), order()
    backend.launch(wanted)
    world.proxy.next.append(trouble)
    assert [found.id for found in backend.observe()] == [wanted.id]


@pytest.mark.parametrize("trouble", [*SHORT, *ODD, Trouble.TORN], ids=repr)
def test_a_long_one_is_unknown_and_never_zero(world: AwsWorld, trouble: Any) -> None:
    backend = world.backend("lab")
    backend.launch(order())
    world.proxy.always = trouble
    with pytest.raises(Unavailable, match="listing the workers of pool lab on AWS Batch"):
        backend.observe()


def test_an_answer_that_never_comes_is_not_waited_for_long(world: AwsWorld) -> None:
    world.proxy.always = Trouble.HANGS
    with pytest.raises(Unavailable, match=r"[Tt]imeout"):
        world.backend("lab", answer_s=0.1).observe()


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.TORN, BROKEN, THROTTLED], ids=repr)
def test_a_launch_is_never_sent_twice_and_is_seen_by_its_id(world: AwsWorld, trouble: Any) -> None:
    backend, wanted = world.backend("lab"), order()
    backend.launch(order())  # the token is stored, and the definition registered
    begun = len(world.proxy.seen)
    world.proxy.next.extend([None, trouble])
    with pytest.raises(Unavailable, match=f"launching worker {wanted.id} on AWS Batch"):
        backend.launch(wanted)
    assert [line.split("?")[0] for line in world.proxy.seen[begun:]] == [
        "POST /v1/describejobdefinitions",
        "POST /v1/submitjob",
    ]
    arrived = isinstance(trouble, Trouble)
    assert [found.id for found in backend.observe()].count(wanted.id) == arrived


def test_an_account_that_is_not_known_is_told_how_to_log_in(world: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Rejected, match="aws sso login"):
        world.backend("lab").observe()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Rejected, match="nobody"):
        world.backend("lab")


def test_a_worker_that_waits_has_no_log_and_a_long_log_comes_in_pieces(world: AwsWorld) -> None:
    backend = world.backend("lab")
    backend_id = backend.launch(order())
    with pytest.raises(SwellError, match="has not started"):
        list(backend.logs(backend_id))
    world.start(backend_id)
    lines = [f"line {number}" for number in range(12_000)]
    for begin in range(0, len(lines), 4000):
        world.write_log(backend_id, "\n".join(lines[begin : begin + 4000]).encode())
    assert b"".join(backend.logs(backend_id)).decode().split("\n")[:-1] == lines
