"""What pools tell the server, what it answers, and what it makes of them for jobs that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.service import WAIT_S, Answer, Service, submission
from api.test_impossible import offer
from swell.controller.pools import POOLS_MAX, WorkerPools
from swell.errors import Conflict, NotFound
from swell.model.cluster import Device, Node
from swell.model.codec import from_document, to_document
from swell.model.launch import node_document
from swell.model.pool import PoolDemand, PoolOffer, PoolPhase, PoolReport, PoolWorker

ID = "lab-0123abcd"
KEY = "k" * 32


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A machine of 64 CPUs and four GPUs."""
    made = Service(tmp_path)
    offer(made, made.worker)
    yield made
    made.close()


def token(service: Service, scope: str = "pool") -> str:
    answer = service.ask("POST", "/tokens", {"name": f"t-{scope}", "scope": scope})
    assert answer.status == 201
    return str(answer.json["token"])


def report(**changes: Any) -> PoolReport:
    return replace(PoolReport("lab", "slurm", KEY, PoolOffer(128000, 65536), 0, 4), **changes)


def worker(state: str = "pending", name: str = ID, **changes: Any) -> PoolWorker:
    return replace(PoolWorker(name, "17", state, state.upper()), **changes)


def sync(service: Service, told: PoolReport, shown: str | None = None) -> PoolDemand:
    options = {} if shown is None else {"token": shown}
    answer = service.ask("POST", "/pools/sync", to_document(told), **options)
    assert answer.status == 200, answer
    return from_document(PoolDemand, answer.json)


def submit(service: Service, **spec: Any) -> Answer:
    return service.ask("POST", "/jobs", {**submission("large", **spec), "wait_for_nodes": False})


def register(service: Service, node: Node, **terms: Any) -> None:
    """A worker of the pool comes."""
    shown = service.ask("POST", "/pools/worker-token", {}).json["token"]
    headers = {"Swell-Worker": node.id, "Swell-Worker-Key": "a" * 40}
    body = {"node": node_document(node), "version": 0, "terms": {"lease_s": 600.0, **terms}}
    assert service.ask("POST", "/workers/sync", body, token=shown, headers=headers).status == 200
    until_node(service, node.id)


def reason(service: Service, job: int, *words: str) -> dict[str, Any]:
    """Once it says all of this."""
    found = service.until_true(job, lambda found: all(word in str(found["reason"]) for word in words))
    told: dict[str, Any] = found["reason"]
    return told


def until_node(service: Service, name: str = ID, *, is_there: bool = True) -> None:
    """The worker is among the nodes of the latest plan, or gone from them."""
    end = time.monotonic() + WAIT_S
    while any(node.id == name for node in service.controller.snapshot.nodes) is not is_there:
        assert time.monotonic() < end, service.controller.snapshot.nodes
        time.sleep(0.01)


def test_a_pools_token_opens_what_pools_ask_for_and_nothing_else(service: Service) -> None:
    shown = token(service)
    assert sync(service, report(), shown) == PoolDemand(0)
    made = service.ask("POST", "/pools/worker-token", {}, token=shown)
    assert made.status == 201
    for method, where in [("GET", "/jobs"), ("GET", "/pools"), ("POST", "/tokens"), ("POST", "/pools/lab/stop")]:
        assert service.ask(method, where, {} if method == "POST" else None, token=shown).error == (
            403,
            "Denied",
            "the token 't-pool' is for a pool: it opens what pools ask for, and nothing else",
        )
    of_worker = {"Swell-Worker": "a", "Swell-Worker-Key": "a" * 40}
    body = {"node": node_document(Node("a", 4000, 8192)), "version": 0, "terms": {"lease_s": 600.0}}
    assert service.ask("POST", "/workers/sync", body, token=shown, headers=of_worker).status == 403
    assert service.ask("POST", "/workers/sync", body, token=made.json["token"], headers=of_worker).status == 200


@pytest.mark.parametrize("scope", ["read", "submit", "worker"])
def test_no_smaller_scope_lets_a_pool_in(service: Service, scope: str) -> None:
    answer = service.ask("POST", "/pools/sync", to_document(report()), token=token(service, scope))
    assert (answer.status, service.ask("GET", "/pools").json) == (403, {"pools": []})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Lab"},
        {"name": "../lab"},
        {"kind": "slurm\nspoofed"},
        {"workers_max": -1},
        {"workers_min": 5},
        {"workers_max": 10**9},
        {"offer": {"cpus_milli": 0, "memory_mib": 1}},
        {"offer": {"cpus_milli": 1000, "memory_mib": "many"}},
        {"offer": {"cpus_milli": 1000, "memory_mib": 1, "gpus": 10**6}},
        {"offer": {"cpus_milli": 1000, "memory_mib": 1, "tag": "a b"}},
        {"phase": "dreaming"},
        {"retry_s": float("1e300")},
        {"problem": "x" * 5000},
        {"workers": [{"id": "other-0123abcd", "backend_id": "1", "state": "pending"}]},
        {"workers": [{"id": "lab-gpu-0123abcd", "backend_id": "1", "state": "pending"}]},  # of the pool lab-gpu
        {"workers": [{"id": ID, "backend_id": "1"}]},
        {"workers": [{"id": ID, "backend_id": "1", "state": "pending", "word": "\x1b[31m"}]},
        {"workers": [{"id": ID, "backend_id": 5, "state": "pending"}]},
        {"workers": "all"},
        {"unknown": 1},
    ],
)
def test_a_report_that_cannot_be_is_refused_and_changes_nothing(service: Service, change: dict[str, Any]) -> None:
    answer = service.ask("POST", "/pools/sync", to_document(report()) | change)
    assert (answer.status, answer.json["error"]["kind"]) == (422, "Rejected")
    assert service.ask("GET", "/pools").json == {"pools": []}
    for body in ([], "pool", None, 5):
        assert service.ask("POST", "/pools/sync", body).status == 422


def test_a_job_that_only_a_pool_could_run_is_accepted_and_waits_for_it(service: Service) -> None:
    assert submit(service, cpus=100).status == 422
    sync(service, report())
    job = submit(service, cpus=100)
    assert job.status == 201, job
    number = job.json["jobs"][0]["id"]
    assert reason(service, number, "WaitingForPool")["message"] == (
        "no node can run it now; pool 'lab' (slurm) starts a worker for it"
    )
    assert sync(service, report()) == PoolDemand(1, (number,))
    sync(service, report(workers=(worker(detail="Priority"),)))
    assert reason(service, number, ID)["message"] == (
        f"no node can run it now; pool 'lab' (slurm) has a worker on its way: {ID}, in slurm 17 (PENDING: Priority)"
    )
    assert submit(service, cpus=129).status == 422  # nobody could
    assert submit(service, gpus=8).status == 422


def test_a_gang_that_needs_more_workers_than_the_pool_may_have_is_refused(service: Service) -> None:
    sync(service, report(workers_max=2))
    assert submit(service, cpus=100, tasks=2).status == 201
    assert submit(service, cpus=100, tasks=3).status == 422


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"phase": PoolPhase.FAILING, "problem": "sbatch: error: Invalid account", "retry_s": 40.0},
            "pool 'lab' (slurm) could not start workers: sbatch: error: Invalid account; it tries again in 40 s",
        ),
        (
            {"phase": PoolPhase.BLIND, "problem": "squeue: no answer"},
            "pool 'lab' (slurm) cannot ask slurm for its workers: squeue: no answer",
        ),
        ({"phase": PoolPhase.STOPPING}, "pool 'lab' (slurm) is being stopped"),
        (
            {"workers_max": 1, "workers": (worker("running", has_registered=True),)},
            "pool 'lab' (slurm) has its maximum of 1 worker",
        ),
    ],
)
def test_why_says_what_keeps_a_pool_from_starting_a_worker(
    service: Service, changes: dict[str, Any], said: str
) -> None:
    sync(service, report())
    number = submit(service, cpus=100).json["jobs"][0]["id"]
    sync(service, report(**changes))
    assert reason(service, number, said)["message"] == f"no node can run it now; {said}"


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": PoolPhase.FAILING, "problem": "x" * 1000},
        {"phase": PoolPhase.BLIND, "problem": "x" * 1000},
        {"workers": (worker(detail="x" * 1000),)},
    ],
)
def test_a_reason_quotes_no_more_than_a_line_of_what_a_backend_said(service: Service, changes: dict[str, Any]) -> None:
    """A waiting job's reason was a thousand characters of squeue's; `swell pool ps` has them all."""
    sync(service, report())
    number = submit(service, cpus=100).json["jobs"][0]["id"]
    sync(service, report(**changes))
    quoted = reason(service, number, "x" * 100)["message"]
    assert "x" * 198 + " …" in quoted
    assert "x" * 199 not in quoted
    (pool,) = service.ask("GET", "/pools").json["pools"]
    assert "x" * 1000 in str(pool)


def test_a_job_that_waits_for_room_here_is_told_of_the_pool_that_helps_and_of_the_one_that_cannot(
    service: Service,
) -> None:
    first = submit(service, cpus=64).json["jobs"][0]["id"]
    service.worker.until_asked(first)
    sync(service, report(name="tiny", offer=PoolOffer(1000, 1024)))
    second = submit(service, cpus=64).json["jobs"][0]["id"]
    told = reason(service, second, "WaitingForRoom", "no pool has workers")
    assert told["message"].endswith(
        "no pool has workers for it (pool 'tiny' (slurm): at most 4 workers of 1 CPU, 1 GiB, 0 GPUs)"
    )
    sync(service, report())
    assert reason(service, second, "WaitingForRoom", "starts a worker for it")["evidence"]["pools"] == ["lab"]


def test_a_worker_that_is_a_node_is_told_to_its_pool(service: Service) -> None:
    shown = service.ask("POST", "/pools/worker-token", {}).json["token"]
    headers = {"Swell-Worker": ID, "Swell-Worker-Key": "a" * 40}
    terms = {"lease_s": 600.0, "backend": {"backend": "slurm", "id": "17", "log": "/logs/17.out"}}
    body = {"node": node_document(Node(ID, 128000, 65536)), "version": 0, "terms": terms}
    assert service.ask("POST", "/workers/sync", body, token=shown, headers=headers).status == 200
    until_node(service)
    told = report(workers=(worker("running"),))
    assert sync(service, told) == PoolDemand(0, present=(ID,), known=(ID,))
    (pool,) = service.ask("GET", "/pools").json["pools"]
    assert (pool["running"], pool["busy"], pool["workers"][0]["node"]) == (1, 0, "idle")


def test_a_pool_whose_workers_have_less_than_it_says_starts_no_more_of_them_for_what_they_cannot_run(
    service: Service,
) -> None:
    """Each worker came, ran nothing, left after ten minutes, and was started again: on a cloud that is paid for."""
    told = report(offer=PoolOffer(128000, 65536, 2, 24576))
    sync(service, told)
    number = submit(service, cpus=100).json["jobs"][0]["id"]
    reason(service, number, "starts a worker for it")
    assert sync(service, told) == PoolDemand(1, (number,))
    register(service, Node(ID, 80000, 65536, (Device("g0", 23028, "A10G"),), lost=(Device("g1", 23028, "A10G"),)))
    told = replace(told, workers=(worker("running"),))
    assert sync(service, told) == PoolDemand(0, present=(ID,))
    assert reason(service, number, "no pool has workers")["message"].endswith(
        "no pool has workers for it (pool 'lab' (slurm): at most 4 workers of 80 CPUs, 64 GiB, 2 GPUs; "
        "its workers have 80 CPUs (--cpus 128), 23028MiB on each GPU (--gpu-memory 24GiB))"
    )
    (pool,) = service.ask("GET", "/pools").json["pools"]
    assert pool["problem"] == "its workers have 80 CPUs (--cpus 128), 23028MiB on each GPU (--gpu-memory 24GiB)"
    assert submit(service, cpus=100).status == 422
    told = replace(told, offer=PoolOffer(110000, 65536))  # started again with other options: that worker is of before
    assert submit(service, cpus=90).status == 422
    assert sync(service, told).workers == 1
    assert submit(service, cpus=100).status == 201


def test_what_the_backend_has_seen_end_is_given_up_at_once(service: Service) -> None:
    """Only with proof; a lost node's lease is waited for."""
    sync(service, report(workers=(worker(),)))
    register(service, Node(ID, 128000, 65536))
    sync(service, report(workers=(worker("ended"),)))
    assert any(node.id == ID for node in service.controller.snapshot.nodes)
    sync(service, report(workers=(worker("ended", is_gone=True),)))
    until_node(service, is_there=False)


@pytest.mark.parametrize(("last_run", "is_there"), [(0, False), (2, False), (3, True)])
def test_the_end_of_a_worker_that_was_started_again_gives_up_its_last_run_and_none_before(
    service: Service, last_run: int, is_there: bool
) -> None:
    """Its node was not found by the worker's id, so its lease was waited for, and `pool ps` had no node."""
    sync(service, report(workers=(worker(),)))
    register(service, Node(f"{ID}-r2", 128000, 65536), backend={"backend": "slurm", "id": "17", "log": ""})
    assert sync(service, report(workers=(worker("running"),))).known == (ID,)
    (pool,) = service.ask("GET", "/pools").json["pools"]
    assert pool["workers"][0]["node"] == "idle"
    sync(service, report(workers=(worker("ended", is_gone=True, last_run=last_run),)))
    until_node(service, f"{ID}-r2", is_there=is_there)
    assert any(node.id == f"{ID}-r2" for node in service.controller.snapshot.nodes) is is_there


@pytest.mark.parametrize("was_named", [False, True])
def test_only_a_worker_that_the_pool_has_named_before_it_registered_is_given_up(
    service: Service, was_named: bool
) -> None:
    """Any pool's token could declare a living worker dead, and its job ran twice."""
    sync(service, report(workers=(worker(),) if was_named else ()))
    register(service, Node(ID, 128000, 65536))
    said = report(workers=(worker("ended", is_gone=True),))
    if not was_named:
        sync(service, report(workers=(worker("running"),)))  # as if it were its own
    sync(service, said)
    until_node(service, is_there=not was_named)
    assert any(node.id == ID for node in service.controller.snapshot.nodes) is not was_named


def test_people_stop_pools_and_end_workers_and_the_pool_hears_it(service: Service) -> None:
    told = report(workers=(worker("running"), worker("pending", "lab-00000000", backend_id="18")))
    sync(service, told)
    assert service.ask("POST", "/pools/kill", {"worker": "18"}).json == {
        "pool": "lab",
        "worker": "lab-00000000",
        "backend_id": "18",
    }
    assert service.ask("POST", "/pools/kill", {"worker": ID, "force": True}).status == 202
    assert service.ask("POST", "/pools/kill", {"worker": "nobody"}).status == 404
    assert service.ask("POST", "/pools/lab/stop", {"workers": True}).json == {"told": True}
    assert service.ask("POST", "/pools/other/stop", {}).status == 404
    asked = sync(service, told)
    assert asked == PoolDemand(0, kills=("lab-00000000", ID), forced=(ID,), is_stopping=True, ends_workers=True)
    sync(service, report(phase=PoolPhase.STOPPED))
    assert service.ask("GET", "/pools").json == {"pools": []}
    events = service.ask("GET", "/events").json["events"]
    kinds = [event["kind"] for event in events if event["kind"].startswith("Pool")]
    assert kinds == [
        "PoolStarted",
        "PoolWorkerKillRequested",
        "PoolWorkerKillRequested",
        "PoolStopRequested",
        "PoolStopped",
    ]


# -- what the server remembers ---------------------------------------------------------------------------------------


def test_a_second_pool_of_one_name_is_refused_while_the_first_is_heard_of() -> None:
    now = [0.0]
    pools = WorkerPools(monotonic=lambda: now[0])
    pools.report(report())
    with pytest.raises(Conflict, match="another pool is called 'lab'"):
        pools.report(report(key="another"))
    now[0] = 61.0
    pools.report(report(key="another"))
    with pytest.raises(Conflict):
        pools.report(report())


def test_what_happens_to_workers_is_told_once() -> None:
    pools = WorkerPools()
    stories = [
        report(),
        report(workers=(worker(),)),
        report(workers=(worker("running"),)),
        report(phase=PoolPhase.FAILING, problem="no", workers=(worker("ended", detail="exit code 1"),)),
        report(phase=PoolPhase.FAILING, problem="no", workers=(worker("ended"),)),
        report(),
    ]
    about = {"pool": "lab", "kind": "slurm"}
    of_worker = {**about, "worker": ID, "backend_id": "17"}
    assert [pools.report(one) for one in stories] == [
        [("PoolStarted", about)],
        [("PoolWorkerLaunched", of_worker)],
        [],
        [
            ("PoolWorkerEnded", {**of_worker, "state": "ENDED", "detail": "exit code 1"}),
            ("PoolFailing", {**about, "problem": "no"}),
        ],
        [],
        [("PoolRecovered", about)],
    ]


def test_after_a_restart_of_the_server_a_pool_still_may_bring_what_it_offers(tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    WorkerPools(path).report(report(workers=(worker(),)))
    assert [node.cpus_milli for node in WorkerPools(path).may_come(9)] == [128000] * 4
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text()[:-5])  # a power cut
    assert WorkerPools(path).may_come(9) == ()


def test_the_workers_of_a_pool_are_those_that_its_key_has_named_before_they_came(tmp_path: Path) -> None:
    now = [0.0]
    pools = WorkerPools(tmp_path / "pools.json", monotonic=lambda: now[0])
    by_hand, told = "lab-00000000", report(workers=(worker(), worker(name="lab-00000000")))
    pools.report(told, nodes={by_hand})
    pools.report(told, nodes={by_hand, ID})
    pools.report(told, nodes=set())  # the one that was started by hand has left: it is free to the next who names it
    assert [pools.has_launched(told, name) for name in (ID, by_hand, "lab-11111111")] == [True, True, False]
    again = WorkerPools(tmp_path / "pools.json", monotonic=lambda: now[0])  # after a restart of the server
    assert again.has_launched(told, ID)
    other = replace(told, key="another")
    assert not again.has_launched(other, ID)
    now[0] = 61.0
    again.report(other, nodes={by_hand, ID})
    assert not again.has_launched(other, ID)


def test_a_silent_pool_that_is_stopped_is_forgotten() -> None:
    now = [0.0]
    pools = WorkerPools(monotonic=lambda: now[0])
    pools.report(report())
    assert len(pools.may_come(9)) == 4
    assert pools.stop("lab", ends_workers=False)
    assert pools.may_come(9) == ()  # no job is accepted for a pool that somebody has stopped
    now[0] = 61.0
    assert pools.all() == []  # the first call was enough
    with pytest.raises(NotFound, match="there is no pool 'lab'; no pool is known here"):
        pools.find("lab")
    pools.report(report())
    now[0] = 122.0
    assert not pools.stop("lab", ends_workers=False)
    assert pools.all() == []


def test_there_are_not_any_number_of_pools() -> None:
    pools = WorkerPools()
    for number in range(POOLS_MAX):
        pools.report(report(name=f"lab-{number}"))
    with pytest.raises(Conflict, match="100 pools are known already"):
        pools.report(report())


def test_a_worker_that_two_backends_number_alike_is_named_by_its_name() -> None:
    pools = WorkerPools()
    pools.report(report(workers=(worker(),)))
    pools.report(report(name="gpu", workers=(worker(name="gpu-0123abcd"),)))
    with pytest.raises(Conflict, match="'17' could be"):
        pools.kill("17", is_forced=False)
    assert pools.kill(ID, is_forced=False)[1].id == ID
    assert pools.kill(f"{ID}-r1", is_forced=False)[1].id == ID
