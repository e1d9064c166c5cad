"""What workers on other machines may ask of the server: with a token of their own scope, and in their own name only."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.service import Answer, Service
from swell.api import workers
from swell.api.security import (
    BODY_BYTES_MAX,
    WORKER_CONTAINERS_MAX,
    WORKER_FILES_BYTES_MAX,
    WORKER_REPORT_BYTES_MAX,
    containers_in,
    too_large,
)
from swell.api.workers import SMALL_BYTES
from swell.config import Config
from swell.engines.workers import WorkerReport
from swell.engines.workers.received_logs import LOG_OFFSET_MAX
from swell.model.cluster import Device, Node
from swell.model.job import AttemptId
from swell.model.launch import GpuSeen, RunSeen, TaskSeen, node_document, run_document, task_document
from swell.model.placement import Effect, Taint
from swell.model.told import check

KEYS = {"a": "a" * 40, "b": "b" * 40}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


def token(service: Service, scope: str = "worker", **more: Any) -> str:
    answer = service.ask("POST", "/tokens", {"name": f"t-{scope}", "scope": scope, **more})
    assert answer.status == 201
    return str(answer.json["token"])


def ask(
    service: Service, shown: str, node: str, what: str, body: object, *, key: str | None = None, method: str = "POST"
) -> Answer:
    headers = {"Swell-Worker": node, "Swell-Worker-Key": KEYS[node] if key is None else key}
    return service.ask(method, f"/workers/{what}", body, token=shown, headers=headers)


def report(node: str, **changes: Any) -> dict[str, Any]:
    offered = node_document(Node(node, 4000, 8192))
    return {"node": offered, "version": 0, "terms": {"lease_s": 600.0}, **changes}


def test_a_workers_token_opens_what_workers_ask_for_and_nothing_else(service: Service) -> None:
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    assert service.ask("GET", "/jobs", token=shown).error == (
        403,
        "Denied",
        "the token 't-worker' is for workers: it opens what they ask for, and nothing else",
    )
    assert service.ask("POST", "/tokens", {"name": "more", "scope": "worker"}, token=shown).status == 403


@pytest.mark.parametrize(("scope", "status"), [("read", 403), ("submit", 403), ("admin", 403)])
def test_no_other_scope_lets_a_worker_in(service: Service, scope: str, status: int) -> None:
    assert ask(service, token(service, scope), "a", "sync", report("a")).status == status


def test_a_token_that_was_revoked_or_has_expired_is_refused_from_then_on(service: Service) -> None:
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    assert service.ask("DELETE", "/tokens/t-worker").status == 204
    assert ask(service, shown, "a", "sync", report("a")).status == 401
    expired = token(service, lasts_s=0.001)
    assert ask(service, expired, "a", "sync", report("a")).status == 401


@pytest.mark.parametrize("what", ["sync", "logs", "leave"])
def test_a_worker_that_uses_the_name_of_another_is_refused(service: Service, what: str) -> None:
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    body: object = report("a") if what == "sync" else []
    assert ask(service, shown, "a", what, body, key=KEYS["b"]).status == 409
    assert ask(service, shown, "a", what, body, key="short").status in (401, 403)
    node = ask(service, shown, "b", "sync", report("a"))  # the header and the report differ
    assert node.status in (401, 403)


def test_the_worker_of_the_servers_own_machine_keeps_its_name(service: Service) -> None:
    """Whoever is quicker: its tasks outlive the server, and their logs are its own."""
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    own = {"node": node_document(Node("a", 4000, 8192)), "version": 0}
    assert service.ask("POST", "/workers/sync", own, token="the-workers-token").status == 200
    assert ask(service, shown, "a", "sync", report("a")).status == 409


@pytest.mark.parametrize(
    "terms",
    [
        {"lease_s": 0},
        {"lease_s": 1e9},
        {"lease_s": "long"},
        {"lease_s": float("nan")},
        {"lease_s": 600, "tag": "a b"},
        {"lease_s": 600, "tag": 5},
        {"lease_s": 600, "is_leaving": "yes"},
        {"lease_s": 600, "unknown": 1},
        {},
        None,
    ],
)
def test_terms_that_cannot_be_are_refused(service: Service, terms: Any) -> None:
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a", terms=terms)).status == 422
    assert service.controller.snapshot.nodes == ()


@pytest.mark.parametrize(
    "pieces",
    [
        b"",
        b"null\n",
        b"[1]\n",
        b'[["1.1",0,0,5]]\nabc',
        b'[["1.1",0,-1,1]]\nabc',
        b'[["../x",0,0,1]]\na',
        b'[["1.1",Infinity,0,1]]\na',
        b'[["1.1",0,NaN,1]]\na',
        b'[["1.1",1.5,0,1]]\na',
        b'[["1.1",true,0,1]]\na',
        b'{"a": 1}\na',
        b"[" * 100_000,
    ],
)
def test_pieces_of_logs_that_cannot_be_read_are_refused(service: Service, pieces: bytes) -> None:
    shown = token(service)
    ask(service, shown, "a", "sync", report("a"))
    answer = ask(service, shown, "a", "logs", pieces)
    assert answer.status == 422


def test_a_piece_of_a_log_that_no_file_can_have_is_refused_and_the_others_are_kept(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At an offset of a pebibyte it was answered with 500, and the others of its request were lost."""
    shown = token(service)
    ask(service, shown, "a", "sync", report("a"))
    engine, kept = service.services.workers, []

    def write(node: str, attempt: AttemptId, index: int, offset: int, data: bytes) -> int:
        if offset == LOG_OFFSET_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        kept.append((str(attempt), index, offset, data))
        return offset + len(data)

    monkeypatch.setattr(engine, "write_log", write)
    named = json.dumps([["1.1", 0, LOG_OFFSET_MAX, 1], ["1.1", 1, 0, 1]]).encode()
    answer = ask(service, shown, "a", "logs", named + b"\nab")
    assert (answer.status, kept) == (422, [("1.1", 1, 0, b"b")])
    assert "the log of task 0 of attempt 1.1 cannot have a piece at" in answer.error[2]


def test_a_log_of_a_job_that_this_worker_does_not_run_is_not_taken(service: Service) -> None:
    shown = token(service)
    ask(service, shown, "a", "sync", report("a"))
    named = json.dumps([["1.1", 0, 0, 4]]).encode()
    assert ask(service, shown, "a", "logs", named + b"\nlies").json == {"sizes": [None]}
    assert not (service.state.tasks / "1.1").exists()
    assert ask(service, shown, "a", f"environments/{'e' * 64}", None, method="GET").status == 404


WRONG = (
    None,
    True,
    -1,
    1.5,
    1 << 60,
    10**30,
    float("nan"),
    float("inf"),
    "8",
    "\ud800",
    "x" * 10_000,
    [],
    [[]],
    [1, "a"],
    {},
    {"a": 1},
    {"parse": []},
)
SEEN = TaskSeen(AttemptId(1, 1), 0, "a", 0, 1000.0, 1001.0, 1, "", "", 5)
RUN = RunSeen(AttemptId(1, 1), "a", 1, (0,), 0, False, "", GpuSeen(1, 1, 1.0), held="0-3", port=4000)
GPU = Device("g0", 100, "H100")
MACHINE = Node("a", 4000, 8192, (GPU,), unenforced=(("memory", "none"),), lost=(replace(GPU, id="g1"),))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield from places(one, (*path, name))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def whole_report(service: Service) -> dict[str, Any]:
    return json.loads(
        json.dumps(
            {
                **report("a", server=service.services.server_id),
                "node": node_document(MACHINE),
                "tasks": [task_document(SEEN)],
                "runs": [run_document(RUN)],
                "terms": {"lease_s": 600.0, "tag": "", "is_exclusive": False},
                "gpu_utilization": 0.5,
                "hold_s": 0,
            }
        )
    )


def test_no_value_anywhere_in_a_report_harms_the_server(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that said `"cpus_milli": "8"` was believed: no plan could be made any more, for anybody."""
    taken: list[WorkerReport] = []
    sync = service.services.workers.sync
    monkeypatch.setattr(service.services.workers, "sync", lambda one: (taken.append(one), sync(one)))
    shown, whole = token(service), whole_report(service)
    assert ask(service, shown, "a", "sync", whole).status == 200
    for path in places(whole):
        for wrong in WRONG:
            body = replaced(whole, path, wrong)
            answer = ask(service, shown, "a", "sync", body)
            assert answer.status < 500, (path, wrong, answer.data)
    for one in taken:
        check(one.node)
        for part in (*one.tasks, *one.runs):
            check(part)
        assert all(type(one) is int for one in (one.node.cpus_milli, one.node.memory_mib, one.version))
    assert ask(service, shown, "a", "sync", replaced(whole, ("node", "cpus_milli"), "8")).status == 422


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("node", "cpus_milli"), True),
        (("node", "cpus_milli"), 10**400),
        (("tasks", 0, 3), 10**400),
        (("node", "memory_mib"), float("inf")),
        (("node", "devices", 0, "memory_mib"), "100"),
        (("node", "lost"), 5),
        (("node", "id"), ""),
        (("node", "id"), "a b"),
        (("node", "id"), "../a"),
        (("node", "id"), "a" * 254),
        (("node", "devices"), [{"id": str(n), "memory_mib": 1, "model": ""} for n in range(4097)]),
        (("node", "devices", 0, "model"), "x" * 1001),
        (("node", "unenforced"), [["memory", "no"]] * 17),
        (("runs", 0, "tensorboard"), "http://a\x1b[2J"),
        (("tasks", 0, 1), -1),
        (("tasks", 0, 3), float("nan")),
        (("tasks", 0, 0), 5),
        (("runs", 0, "in_use"), "ab"),
        (("runs", 0, "held"), "0-999999999"),
        (("runs", 0, "gpu"), [5]),
        (("runs", 0, "trouble"), "\ud800"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(service: Service, path: tuple[Any, ...], wrong: Any) -> None:
    answer = ask(service, token(service), "a", "sync", replaced(whole_report(service), path, wrong))
    assert answer.status == 422
    assert service.controller.snapshot.nodes == ()


GROUPS = Config(groups={"vision": ("somebody", "ann"), "audio": ("somebody",)})


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path, config=GROUPS)
    yield made
    made.close()


def test_a_token_for_the_workers_of_a_group_is_good_for_no_other(grouped: Service) -> None:
    shown = token(grouped, group="vision")
    terms = {"lease_s": 600.0, "group": "audio"}
    assert ask(grouped, shown, "a", "sync", report("a", terms=terms)).error == (
        403,
        "Denied",
        "this token is for workers of the group 'vision', and the worker says --group audio",
    )
    assert ask(grouped, shown, "a", "sync", report("a")).status == 200
    engine = grouped.services.workers
    assert engine is not None
    taint = Taint("swell.dev/group", "vision", Effect.NO_SCHEDULE)
    assert [node.taints for node in engine.observe().nodes if node.id == "a"] == [(taint,)]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"scope": "worker", "group": "video"}, "there is no group 'video'; there are: audio, vision"),
        (
            {"scope": "submit", "group": "vision"},
            "a token of the scope submit has no group; only workers are for one (--scope worker)",
        ),
    ],
)
def test_a_token_for_a_group_that_cannot_be_is_refused(grouped: Service, body: dict[str, str], problem: str) -> None:
    assert grouped.ask("POST", "/tokens", {"name": "t", **body}).error == (422, "Rejected", problem)


def test_a_job_has_the_groups_of_whoever_submits_it(grouped: Service) -> None:
    job = grouped.submit()
    assert grouped.ask("GET", f"/jobs/{job}/show").json["spec"]["roles"][0]["rules"]["groups"] == ["vision"]


@pytest.mark.parametrize(
    "terms",
    [
        {"group": "a b"},
        {"group": 3},
        {"backend": {"backend": "slurm", "id": 4711}},
        {"backend": {"backend": "slurm", "id": "1\n2"}},
        {"backend": {"backend": "slurm", "id": "1", "log": "x" * 1001}},
        {"backend": {"id": "1"}},
        {"backend": "slurm"},
        {"lease_s": 1},
        {"unknown": 1},
    ],
)
def test_terms_that_make_no_sense_are_refused(service: Service, terms: dict[str, Any]) -> None:
    shown = token(service)
    answer = ask(service, shown, "a", "sync", report("a", terms={"lease_s": 600.0, **terms}))
    assert (answer.status, answer.json["error"]["kind"]) == (422, "Rejected")


def test_what_a_worker_sends_is_read_beside_the_event_loop(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of 56 MB that was no report was read for 33 s on the event loop, while everybody waited.

    Small ones of a worker that is known are read in place: to hand each to a thread was a fifth of what 200 cost.
    """
    beside: list[bool] = []

    def note(function: Any) -> Any:
        def noting(*args: Any) -> Any:
            beside.append(threading.current_thread().name.startswith("workers_"))
            return function(*args)

        return noting

    for name in ("_sync", "_report", "_pieces"):
        monkeypatch.setattr(workers, name, note(getattr(workers, name)))
    monkeypatch.setattr(service.services.workers, "sync", note(service.services.workers.sync))
    shown = token(service)
    small = json.dumps(report("a")).encode()
    assert ask(service, shown, "a", "sync", small).status == 200  # what it is registered with goes to the disk
    assert ask(service, shown, "a", "sync", small).status == 200
    assert ask(service, shown, "a", "sync", small + b" " * SMALL_BYTES).status == 200
    assert ask(service, shown, "a", "logs", b"[]\n").status == 200
    assert beside == [False, False, True, *[False] * 3, *[True] * 4]


@pytest.mark.parametrize("filling", [b"[]", b"{}", b"0", b'"a"', b"[[[]]]"])
def test_a_list_of_a_million_things_that_are_no_tasks_is_refused_at_once(service: Service, filling: bytes) -> None:
    """Read in one piece, four mebibytes of `[],` keep the interpreter for a second, in whichever thread."""
    shown = token(service)
    before, after = json.dumps(report("a"))[:-1].encode() + b', "tasks": [', b"]}"
    count = (WORKER_REPORT_BYTES_MAX - len(before) - len(after)) // (len(filling) + 1)
    answer = ask(service, shown, "a", "sync", before + b",".join([filling] * count) + after)
    if containers_in(filling):
        too_many = f"the request has more than {WORKER_CONTAINERS_MAX} lists and objects; send fewer"
        assert answer.error == (413, "TooLarge", too_many)
    else:
        assert answer.error[:2] == (422, "Rejected")
        assert answer.error[2].startswith("the report cannot be read")
        assert len(answer.error[2]) < 500


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("sync", WORKER_REPORT_BYTES_MAX),
        ("logs", WORKER_FILES_BYTES_MAX),
        ("files/chunks", WORKER_FILES_BYTES_MAX),
        ("outputs", BODY_BYTES_MAX),
        ("leave", BODY_BYTES_MAX),
    ],
)
def test_a_worker_elsewhere_sends_no_more_than_honest_ones_do(service: Service, what: str, most: int) -> None:
    """All their endpoints took 64 MiB, which reports of a million tasks need in one piece, and nothing else."""
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    assert ask(service, shown, "a", what, b" " * (most + 1)).error == (413, "TooLarge", too_large(most))


def test_the_line_that_names_pieces_of_logs_is_bounded(service: Service) -> None:
    shown = token(service)
    assert ask(service, shown, "a", "sync", report("a")).status == 200
    answer = ask(service, shown, "a", "logs", b"[" + b"[]," * 500_000 + b"[]]\n")
    assert answer.error[:2] == (422, "Rejected")
    assert answer.error[2].endswith("names more than 10000; send fewer")


@pytest.mark.parametrize("field", ["tasks", "runs"])
@pytest.mark.parametrize("wrong", [5, "ab", {"a": 1}, None])
def test_what_is_no_list_is_said_in_words(service: Service, field: str, wrong: Any) -> None:
    status, kind, said = ask(service, token(service), "a", "sync", report("a", **{field: wrong})).error
    assert (status, kind) == (422, "Rejected")
    assert said.startswith(f"{field} must be a list, but is ")
