"""A job that could never run on the machines that are there is refused when it is submitted, not left to wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.service import WAIT_S, Answer, FakeWorker, Service, submission
from swell.api.services import Services
from swell.config import ClusterSettings, Config, UserLimits

OR = "; to queue it until a node is large enough, add --wait-for-nodes"


def submit(service: Service, **spec: Any) -> Answer:
    return service.ask("POST", "/jobs", {**submission("large", **spec), "wait_for_nodes": False})


def offer(service: Service, worker: FakeWorker) -> None:
    """Its machine, as the next plan sees it."""
    worker.sync()
    end = time.monotonic() + WAIT_S
    while service.controller.snapshot.nodes != (worker.node,):
        assert time.monotonic() < end, service.controller.snapshot.nodes
        time.sleep(0.01)


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Iterator[Service]:
    """64 CPUs, 64,000 MiB and four GPUs of 16 MiB."""
    made = Service(tmp_path_factory.mktemp("machine"))
    offer(made, made.worker)
    yield made
    made.close()


def test_what_if_says_that_a_job_can_never_run_and_what_could(machine):
    answer = machine.ask("POST", "/jobs", {**submission("huge", gpus=400), "what_if": True})
    [huge] = answer.json["what_if"]
    assert (huge["fits"], huge["expected_start"], huge["reason"]["code"]) == (False, None, "CannotRunHere")
    assert huge["problem"].startswith("it wants 1 CPU, 400 GPUs, but this machine has 64 CPUs, 4 GPUs; submit it with")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"gpus": 5}, "it wants 1 CPU, 5 GPUs, but this machine has 64 CPUs, 4 GPUs; submit it with --gpus 4 or less"),
        (
            {"gpus": "5..8"},
            "it wants at least 1 CPU, 5 GPUs, but this machine has 64 CPUs, 4 GPUs; submit it with --gpus 4 or less",
        ),
        ({"cpus": 65}, "it wants 65 CPUs, but this machine has 64 CPUs; submit it with --cpus 64 or less"),
        (
            {"memory": "1TiB"},
            (
                "it wants 1 CPU, 1024 GiB, but this machine has 64 CPUs, 62.5 GiB; submit it with --memory 64000MiB or "
                "less"
            ),
        ),
        (
            {"gpuMemory": "17MiB"},
            (
                "it wants 1 CPU, 17 MiB of one GPU's memory, but this machine has 64 CPUs, 16 MiB of one GPU's memory; "
                "submit it with --gpu-memory 16MiB or less"
            ),
        ),
        (
            {"tasks": 3, "gpus": 2},
            (
                "it wants 3 tasks of 1 CPU, 2 GPUs, all at once, but only 2 tasks fit on this machine; submit it with "
                "--tasks 2 or less"
            ),
        ),
        (
            {"array": "0-9", "gpus": 5},
            (
                "it wants 1 CPU, 5 GPUs for each task, but this machine has 64 CPUs, 4 GPUs; submit it with --gpus 4 "
                "or less"
            ),
        ),
    ],
)
def test_it_is_refused_with_what_was_asked_what_the_machine_has_and_what_to_do(machine, spec, problem):
    before = machine.store.listing(ended_since=None)
    answer = submit(machine, **spec)
    assert answer.error == (422, "Rejected", f"job 'large' can never run here: {problem}{OR}")
    assert machine.store.listing(ended_since=None) == before


def test_a_dry_run_says_so_beside_what_would_be_asked_for(machine):
    body = {**submission("dry", gpus=5), "dry_run": True}
    [spec] = machine.ask("POST", "/jobs", body).json["specs"]
    assert (spec["width_max"], spec["cannot_run_here"]) == (
        5,
        "it wants 1 CPU, 5 GPUs, but this machine has 64 CPUs, 4 GPUs; submit it with --gpus 4 or less",
    )
    [spec] = machine.ask("POST", "/jobs", {**submission("dry", gpus=4), "dry_run": True}).json["specs"]
    assert spec["cannot_run_here"] is None


def test_it_is_queued_all_the_same_for_who_waits_for_nodes(machine):
    job = machine.submit("patient", gpus=5)
    found = machine.until_true(job, lambda one: one["reason"]["code"] == "CannotRunHere")
    assert found["state"] == "queued"


@pytest.mark.parametrize("spec", [{"gpus": 4}, {"gpus": "1..99"}, {"array": "0-99", "gpus": 4}, {"cpus": 64}])
def test_what_could_run_is_accepted_whatever_others_hold(machine, spec):
    machine.submit("holder", gpus=4, cpus=64)
    assert submit(machine, **spec).status == 201


def test_gpus_of_outsiders_and_gpus_that_have_stopped_to_answer_count_as_there(machine):
    """They come back; only what the machine does not have is a reason to refuse."""
    whole = machine.worker.node
    first, second, *others = whole.devices
    taken = replace(first, outsiders_mib=16)
    machine.worker.node = replace(whole, devices=(taken, *others), lost=(second,))
    offer(machine, machine.worker)
    try:
        accepted = submit(machine, gpus=4)
        assert accepted.status == 201
        job = accepted.json["jobs"][0]["id"]
        found = machine.until_true(job, lambda one: one["reason"]["code"] == "WorkerUnreachable")
        assert found["reason"]["message"] == (
            f"it wants 1 CPU, 4 GPUs, which only fits on GPUs that do not respond: {second.id}"
        )
        assert submit(machine, gpus=5).status == 422
    finally:
        machine.worker.node = whole
        offer(machine, machine.worker)


def test_what_a_user_may_never_hold_is_refused_too(tmp_path):
    config = Config(users={"ann": UserLimits(gpus=2)})
    with contextlib.closing(Service(tmp_path, config=config)) as service:
        offer(service, service.worker)
        assert submit(service, gpus=3).error[2] == (
            "job 'large' can never run here: it wants 1 CPU, 3 GPUs, but ann may hold at most 2 GPUs; submit it with "
            f"--gpus 2 or less{OR}"
        )
        assert submit(service, gpus=2).status == 201


def test_a_server_without_a_worker_yet_refuses_nothing_small_and_waits_a_moment_to_judge_what_is_large(tmp_path):
    with contextlib.closing(Service(tmp_path)) as service:
        assert submit(service).status == 201  # at once: any machine can run it
        answers: list[Answer] = []
        asking = threading.Thread(target=lambda: answers.append(submit(service, gpus=5)))
        asking.start()
        offer(service, service.worker)
        asking.join(WAIT_S)
        assert [answer.status for answer in answers] == [422]


def test_where_no_machine_offers_itself_it_is_accepted(tmp_path):
    with contextlib.closing(Service(tmp_path)) as service:
        assert submit(service, gpus=5).status == 201


def test_a_cluster_whose_autoscaler_is_called_may_get_nodes_and_others_may_not(tmp_path):
    def services(settings: ClusterSettings | None, cluster: object) -> Services:
        with contextlib.closing(Service(tmp_path)) as service:
            return replace(service.services, config=Config(cluster=settings), cluster=cluster)

    cluster = object()
    assert services(None, None).may_get_nodes is False
    assert services(ClusterSettings(stand_ins=True), cluster).may_get_nodes is True
    assert services(ClusterSettings(stand_ins=False), cluster).may_get_nodes is False


def test_every_way_to_submit_a_job_asks_whether_it_could_ever_run():
    """Whoever accepts jobs goes through `accept`, which asks."""
    source = Path(__file__).parents[2] / "src" / "swell" / "api"
    asking = [path.name for path in source.rglob("*.py") if "controller.submit(" in path.read_text()]
    assert asking == ["accept.py"]
