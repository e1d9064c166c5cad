"""Workers as tasks of Azure Batch: what is sent, what is read, and azure-batch against a fake server on loopback."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pools.azure import JOB, KEY, SIGNATURE, AzureWorld
from pools.contract import TOKEN, PoolContract, order
from pools.unsteady import Answer, Trouble
from swell.errors import NotFound, Rejected, SwellError, Unavailable
from swell.model.pool import run_at, worker_at
from swell.pools.azure_batch.options import AzureBatchOptions
from swell.pools.azure_batch.parse import KEPT_MAX, parse_tasks, refusal, surplus
from swell.pools.azure_batch.render import render_task, render_text, run_options
from swell.pools.backend import BackendWorker, WorkerState
from swell.pools.kinds import find_kind

IMAGE = "swelllab.azurecr.io/swell-torch:1"
SERVICE = "https://swelllab.westeurope.batch.azure.com"
CONTAINER = "https://swelllab.blob.core.windows.net/logs"
GIVEN = {
    "image": IMAGE,
    "account_name": "swelllab",
    "account_key": KEY,
    "service_url": SERVICE,
    "log_container_url": f"{CONTAINER}?{SIGNATURE}",
    "job_id": JOB,
}


def options(**more: Any) -> AzureBatchOptions:
    found: AzureBatchOptions = find_kind("azure-batch").read({**GIVEN, **more})
    return found


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    world = AzureWorld()
    yield world
    world.close()


class TestAzureBatch(PoolContract):
    """Against the fake server."""

    def test_an_order_that_is_refused_says_why_and_starts_nothing(self, world: AzureWorld) -> None:  # type: ignore[override]
        """As in the suite; with the wrong key nothing can be listed either."""
        world.refuse()
        with pytest.raises(Rejected, match="AuthenticationFailed: Server failed to authenticate") as refused:
            world.backend("lab").launch(order())
        assert TOKEN not in str(refused.value)
        world.options = world.refused
        assert world.backend("lab").observe() == ()


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_worker_is_a_task_whose_output_is_uploaded_when_it_ends() -> None:
    task = render_task(order(id="lab-0123abcd", gpus=1), options(mounts="/mnt/nfs:/shared"))
    words = shlex.split(task.pop("commandLine"))
    assert task == {
        "id": "lab-0123abcd",
        "displayName": "Swell worker of pool lab",
        "containerSettings": {
            "imageName": IMAGE,
            "containerRunOptions": "--rm --init --user=root --cpus=2 --memory=4096m --shm-size=2048m --gpus=all "
            "--volume=/mnt/nfs:/shared",
        },
        "environmentSettings": [{"name": "SWELL_WORKER_TOKEN", "value": TOKEN}],
        "outputFiles": [
            {
                "filePattern": "../std*.txt",
                "destination": {"container": {"containerUrl": f"{CONTAINER}?{SIGNATURE}", "path": "lab-0123abcd"}},
                "uploadOptions": {"uploadCondition": "taskcompletion"},
            }
        ],
        "constraints": {"maxTaskRetryCount": 0},
        "userIdentity": {"autoUser": {"scope": "pool", "elevationLevel": "admin"}},
    }
    assert words[:2] == ["sh", "-c"]
    assert "--pass-down-termination" in words
    assert TOKEN not in words


def test_a_task_that_batch_starts_again_is_another_worker_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """The new worker had a new key and the name of the old one: it was refused until the lease of that was over."""
    program = tmp_path / "swell"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    wanted = order(id="lab-0123abcd", executable=str(program), folder_prefix=str(tmp_path))
    words = shlex.split(render_task(wanted, options())["commandLine"])
    before = int(time.time())
    done = subprocess.run(words, env={"PATH": os.environ["PATH"], "SWELL_WORKER_TOKEN": TOKEN}, stdout=subprocess.PIPE)
    said = dict(itertools.pairwise(done.stdout.decode().splitlines()))  # of what is said twice the last counts
    name = said["--name"]
    assert (worker_at(name), before <= run_at(name) <= time.time()) == ("lab-0123abcd", True)
    folder = tmp_path / f"swell-worker-{name}"
    assert (said["--folder"], said["--token-file"]) == (str(folder), str(folder / "given-token"))
    assert (folder / "given-token").read_text() == TOKEN


def test_a_person_is_shown_neither_token_nor_signature_nor_key() -> None:
    shown = render_text(order(), options()) + repr(options())
    assert not [secret for secret in (TOKEN, "secret-signature", KEY) if secret in shown]


def test_a_user_who_is_not_root_gets_no_rights_of_an_administrator() -> None:
    told = options(user="1000:1000")
    assert "userIdentity" not in render_task(order(), told)
    assert "--user=1000:1000" in run_options(order(), told)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(({name: None}, f"--{name.replace('_', '-')}") for name in GIVEN if name != "image"),
        ({"account_key": "no key!"}, "no base64"),
        ({"account_name": "Lab"}, "cannot be right"),
        ({"service_url": "http://swelllab.westeurope.batch.azure.com"}, "cannot be right"),
        ({"job_id": "a/b"}, "cannot be right"),
        ({"user": "root --privileged"}, "cannot be right"),
        ({"log_container_url": "https://x/?sig=secret-signature"}, "must look like"),
        ({"mounts": "/a --privileged"}, "absolute paths"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Rejected, match=said) as refused:
        find_kind("azure-batch").read({name: text for name, text in {**GIVEN, **given}.items() if text is not None})
    assert "secret-signature" not in str(refused.value)


def test_the_key_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "batch.key"
    given = {name: text for name, text in GIVEN.items() if name != "account_key"}
    with pytest.raises(Rejected, match="cannot be read"):
        find_kind("azure-batch").read({**given, "account_key_file": file})
    file.write_text(KEY + "\n")
    assert find_kind("azure-batch").read({**given, "account_key_file": file}) == options()


# -- what is read ------------------------------------------------------------------------------------------------------

LOG = f"{SERVICE}/jobs/{JOB}/tasks/lab-0123abcd/files/stderr.txt"
NO_IMAGE = {"category": "usererror", "code": "ContainerPullFailed", "message": "Failed to pull", "details": []}
NO_UPLOAD = {"code": "OutputFilesError", "message": "Upload", "details": [{"name": "Status", "value": "403"}]}


def task(state: str, **execution: Any) -> dict[str, Any]:
    return {"id": "lab-0123abcd", "state": state, **({"executionInfo": execution} if execution else {})}


STARTED = "2026-11-18T10:00:00.5Z"
STARTED_S = 1794996000


def worker(state: WorkerState, word: str, **more: Any) -> BackendWorker:
    return BackendWorker("lab-0123abcd", f"{JOB}/lab-0123abcd", state, word, **{"log": LOG, **more})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (task("active"), worker(WorkerState.PENDING, "active")),
        (task("preparing"), worker(WorkerState.PENDING, "preparing")),
        (task("running", startTime=STARTED), worker(WorkerState.RUNNING, "running", last_run=STARTED_S)),
        (
            task("completed", exitCode=0, startTime=STARTED),
            worker(WorkerState.ENDED, "completed", exit_code=0, is_proof=True, last_run=STARTED_S),
        ),
        (task("completed", exitCode=0), worker(WorkerState.ENDED, "completed", exit_code=0)),  # which run was it?
        (
            task(
                "completed",
                exitCode=137,
                startTime=STARTED,
                failureInfo={"code": "FailureExitCode", "message": "exit code 137"},
            ),
            worker(
                WorkerState.ENDED,
                "completed",
                detail="FailureExitCode: exit code 137",
                exit_code=137,
                is_proof=True,
                last_run=STARTED_S,
            ),
        ),
        (
            task("completed", failureInfo=NO_IMAGE),
            worker(WorkerState.ENDED, "completed", detail="ContainerPullFailed: Failed to pull"),
        ),
        (
            task("completed", exitCode=0, startTime=STARTED, failureInfo=NO_UPLOAD),
            worker(
                WorkerState.ENDED,
                "completed",
                detail="OutputFilesError: Upload: 403",
                exit_code=0,
                is_proof=True,
                last_run=STARTED_S,
            ),
        ),
        (task("suspended"), worker(WorkerState.UNKNOWN, "suspended")),
    ],
)
def test_what_a_task_says_of_a_worker(given: dict[str, Any], wanted: BackendWorker) -> None:
    others = [{"id": "train", "state": "running"}, {"id": "lab-2-0123abcd", "state": "running"}]
    assert parse_tasks([given, *others], "lab", JOB, SERVICE) == (wanted,)


def test_only_the_newest_of_those_that_have_ended_are_kept() -> None:
    def ended(number: int) -> dict[str, Any]:
        moment = f"2026-11-18T10:{number // 60:02}:{number % 60:02}Z"
        return {"id": f"lab-{number:08x}", "state": "completed", "executionInfo": {"endTime": moment}}

    tasks = [*(ended(number) for number in range(KEPT_MAX + 2)), task("running"), {"id": "train", "state": "completed"}]
    assert surplus(tasks, "lab") == ("lab-00000001", "lab-00000000")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "InvalidRequestBody", Rejected),
        (403, "AuthenticationFailed", Rejected),
        (404, "JobNotFound", Rejected),
        (404, "FileNotFound", NotFound),
        (409, "JobCompleted", Rejected),
        (408, "OperationTimedOut", Unavailable),
        (429, "TooManyRequests", Unavailable),
        (500, "InternalError", Unavailable),
        (503, "ServerBusy", Unavailable),
        (200, "", Unavailable),
    ],
)
def test_what_a_refusal_means(status: int, code: str, kind: type[SwellError]) -> None:
    said = refusal("launching worker lab-1", status, code, "why\nRequestId: 1")
    assert type(said) is kind
    assert str(said).startswith(f"launching worker lab-1: {code + ': ' if code else ''}why RequestId: 1")


# -- on the wire -------------------------------------------------------------------------------------------------------


def test_a_list_of_several_pages_is_read_whole(world: AzureWorld) -> None:
    backend, orders = world.backend("lab"), [order() for _ in range(8)]
    for one in orders:
        backend.launch(one)
    assert [found.id for found in backend.observe()] == sorted(one.id for one in orders)


def test_what_waits_for_a_machine_is_told_from_what_runs(world: AzureWorld) -> None:
    """CodaLab's manager called both active."""
    backend = world.backend("lab")
    ids = [backend.launch(order()) for _ in range(3)]
    world.task(ids[0]).state = "preparing"
    world.start(ids[1])
    found = {one.backend_id: one.state for one in backend.observe()}
    assert found == dict(zip(ids, (WorkerState.PENDING, WorkerState.RUNNING, WorkerState.PENDING), strict=True))


def answer(status: int, code: str) -> Answer:
    body = json.dumps({"code": code, "message": {"lang": "en-US", "value": code}}).encode()
    return Answer(status, body, (("Content-Type", "application/json"), ("Retry-After", "0")))


BUSY, BROKEN = answer(429, "TooManyRequests"), answer(503, "ServerBusy")
JSON = (("Content-Type", "application/json"),)
SHORT = (BUSY, BROKEN, answer(500, "InternalError"), Trouble.CUT)
ODD = (
    Answer(200, b"{}", JSON),
    Answer(200, b"<html>a captive portal</html>", (("Content-Type", "text/html"),)),
    Answer(200, b'{"value": "many"}', JSON),
    Answer(200, b'{"value": [5]}', JSON),
    Answer(200, b'{"value": [{"id": "lab-0123abcd"}]}', JSON),
    Answer(200, b'{"value": [{"id": 7, "state": "running"}]}', JSON),
    Answer(200, b"{", JSON),
    Answer(200, b"\xff\xfe", JSON),
    Answer(502, b"<html>upstream</html>", (("Content-Type", "text/html"),)),
)


@pytest.mark.parametrize("trouble", SHORT, ids=repr)
def test_a_short_trouble_is_asked_through(world: AzureWorld, trouble: Any) -> None:
    backend, wanted = world.backend("lab"), order()
    backend.launch(wanted)
    world.proxy.next.append(trouble)
    assert [found.id for found in backend.observe()] == [wanted.id]


@pytest.mark.parametrize("trouble", [*SHORT, *ODD, Trouble.TORN], ids=repr)
def test_a_long_one_is_unknown_and_never_zero(world: AzureWorld, trouble: Any) -> None:
    backend = world.backend("lab")
    backend.launch(order())
    world.proxy.always = trouble
    with pytest.raises(Unavailable, match="listing the workers of pool lab on Azure Batch"):
        backend.observe()


def test_trouble_on_a_later_page_is_no_end_of_the_list(world: AzureWorld) -> None:
    backend = world.backend("lab")
    for _ in range(5):
        backend.launch(order())
    world.proxy.next.extend([None, Answer(200, b"{}", JSON)])
    with pytest.raises(Unavailable):
        backend.observe()


def test_an_answer_that_never_comes_is_not_waited_for_long(world: AzureWorld) -> None:
    world.proxy.always = Trouble.HANGS
    with pytest.raises(Unavailable, match="timed out"):
        world.backend("lab", answer_s=0.1).observe()


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.TORN, BROKEN, BUSY], ids=repr)
def test_a_launch_is_one_worker_however_often_it_is_sent(world: AzureWorld, trouble: Any) -> None:
    backend, wanted = world.backend("lab"), order()
    world.proxy.next.append(trouble)
    for _ in range(2):  # the second time as after a failure
        with suppress(Unavailable):
            backend.launch(wanted)
    assert [found.id for found in backend.observe()] == [wanted.id]


def test_a_job_that_is_not_there_is_named_with_what_makes_it(world: AzureWorld) -> None:
    world.options = AzureBatchOptions(
        IMAGE, world.options.account_name, KEY, world.proxy.url, world.options.log_container_url, "another"
    )
    with pytest.raises(Rejected, match=r"JobNotFound.*az batch job create"):
        world.backend("lab").observe()


def test_the_log_of_a_worker_outlives_its_machine(world: AzureWorld) -> None:
    backend = world.backend("lab")
    backend_id = backend.launch(order())
    with pytest.raises(NotFound, match="uploaded when its worker has ended"):
        list(backend.logs(backend_id))
    world.start(backend_id)
    world.write_log(backend_id, b"offers its machine\n")
    world.end(backend_id, 1)
    world.server.lose_machine(world.task(backend_id))
    assert b"".join(backend.logs(backend_id)) == b"offers its machine\n"


def test_a_log_that_cannot_be_had_says_so_without_the_signature(world: AzureWorld) -> None:
    backend = world.backend("lab")
    backend_id = backend.launch(order())
    world.server.close()
    world.proxy.next.append(answer(404, "FileNotFound"))
    with pytest.raises(SwellError) as failed:
        list(backend.logs(backend_id))
    assert "secret-signature" not in str(failed.value)


def test_tasks_that_have_ended_are_deleted_when_there_are_many(
    world: AzureWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swell.pools.azure_batch.parse.KEPT_MAX", 2)
    backend = world.backend("lab")
    for _ in range(4):
        world.end(backend.launch(order()), 0)
    last = order()
    backend.launch(last)
    assert sum(not found.is_live for found in backend.observe()) == 2
    assert [found.id for found in backend.observe() if found.is_live] == [last.id]
