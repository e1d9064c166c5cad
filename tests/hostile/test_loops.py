"""No single bad thing ends a loop: what goes wrong with one is said once, and the others go on."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server import PATIENCE_S
from swell.machine.worker_folder import WorkerFolder
from swell.machine.worker_options import WorkerOptions
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import Launch, LaunchRole
from swell.worker.agent import Agent
from swell.worker.nvml import GpuProcess, Nvml, Reading
from swell.worker.run import Run
from swell.worker.sampler import Sampler
from swell.worker.sync import Desired, ServerLink, address_of
from worker.test_environment import LAUNCH

GOOD = replace(LAUNCH, attempt=AttemptId(2, 1), own=(), env=(), roles=(LaunchRole(("true",)),), grace_s=1.0)
DEEP = "[" * 100_000


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.01)


def options_at(tmp_path: Path) -> WorkerOptions:
    return WorkerOptions(f"unix:{tmp_path}/server.sock", tmp_path / "worker-token", tmp_path)


def agent_at(tmp_path: Path) -> Agent:
    folder, options = WorkerFolder(tmp_path), options_at(tmp_path)
    folder.tasks.mkdir(exist_ok=True)
    made = Agent(options, folder, address_of(options), Node("a", 1000, 1000), Nvml(), None)
    made._link.store = "store"
    return made


def link_at(tmp_path: Path) -> ServerLink:
    options = options_at(tmp_path)
    node = Node("a", 1, 1)
    return ServerLink(options, WorkerFolder(tmp_path), address_of(options), node, boot_id="boot", wake=lambda: None)


def held(launch: Launch) -> dict[str, Any]:
    return {"launch": launch.to_document(), "port": 4000, "boot_id": "boot"}


def run_to_the_end(agent: Agent, attempt: AttemptId) -> None:
    until = time.monotonic() + PATIENCE_S
    agent.wake()
    while not agent._runs[attempt].is_finished:
        assert time.monotonic() < until
        agent._turn()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"launch": 1}',
        '{"launch": {}, "port": 1, "boot_id": "b"}',
        json.dumps({**held(LAUNCH), "port": "many"}),
        json.dumps({**held(LAUNCH), "launch": {**LAUNCH.to_document(), "attempt": "9" * 5000 + ".1"}}),
        json.dumps({**held(LAUNCH), "launch": {**LAUNCH.to_document(), "indices": "²"}}),
        DEEP,
        '"\ud800"',
    ],
)
def test_what_an_earlier_worker_has_left_of_one_run_does_not_keep_the_others_from_being_taken_up(
    text: str, tmp_path: Path
) -> None:
    agent = agent_at(tmp_path)
    for name in ("1.1", "2.1", "x", ".erased-3.1"):
        (tmp_path / "tasks" / name).mkdir()
        (tmp_path / "tasks" / name / "launch.json").write_text(text, errors="surrogatepass")
    (tmp_path / "tasks" / "5.1" / "launch.json").mkdir(parents=True)
    (tmp_path / "tasks" / "2.1" / "launch.json").write_text(json.dumps({**held(GOOD), "boot_id": agent._boot_id}))
    agent._take_up_all()
    assert list(agent._runs) == [GOOD.attempt]
    run_to_the_end(agent, GOOD.attempt)


@pytest.mark.parametrize("where", ["step", "look_at_logs", "take_up", "keeper_ended", "change"])
def test_a_run_that_fails_at_every_step_is_said_once_and_the_others_go_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = ("sleep", "5") if where == "change" else ("true",)
    bad = replace(GOOD, attempt=AttemptId(1, 1), roles=(LaunchRole(words),))
    right = getattr(Run, where)

    def fail(run: Run, *args: Any, **how: Any) -> Any:
        if run.launch.attempt == bad.attempt:
            raise RecursionError("whatever a user has thought of")
        return right(run, *args, **how)

    monkeypatch.setattr(Run, where, fail)
    agent = agent_at(tmp_path)
    with caplog.at_level(logging.ERROR):
        agent._apply(Desired(1, (bad, GOOD)), time.monotonic())
        run_to_the_end(agent, GOOD.attempt)
        for _ in range(3):
            agent._next_look = 0.0
            agent.wake()
            agent._turn()
        agent._apply(Desired(2, ()), time.monotonic())
    said = [record.message for record in caplog.records if "whatever a user" in record.message]
    assert len(said) == len(set(said)) <= 2
    assert len(said) >= 1 or where == "look_at_logs"
    assert (bad.attempt in agent._runs) == (where != "take_up")  # what was not taken up begins nothing


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_disk_that_takes_nothing_is_what_the_job_says_and_one_that_never_began_can_be_ended(
    is_stopping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a job was starting for ever without a word, and could not be cancelled either."""
    agent = agent_at(tmp_path)
    monkeypatch.setattr(
        agent._held, "write", lambda launch, *, port: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    agent._apply(Desired(1, (replace(GOOD, is_stopping=is_stopping),)), time.monotonic())
    [seen] = agent._link._outbox.runs.values()
    words = "the disk of the worker's folder takes nothing (No space left); what has not begun waits until it does"
    assert (seen.trouble, seen.left, seen.is_finished, seen.port) == (words, 0 if is_stopping else 2, is_stopping, 0)


def test_a_run_that_fails_is_not_tried_again_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    monkeypatch.setattr(Run, "step", lambda run, now, budget_s: tries.append(now) or 1 / 0)
    monkeypatch.setattr(Run, "next_deadline", lambda run: 0.0)  # it is always due
    agent = agent_at(tmp_path)
    agent._apply(Desired(1, (GOOD,)), time.monotonic())
    agent._next_look = time.monotonic() + 100
    for _ in range(3):
        agent.wake()
        agent._turn()
    assert len(tries) == 1
    assert agent._patience() > 1


def test_a_launch_that_cannot_be_read_does_not_keep_the_others_from_being_heard(tmp_path: Path) -> None:
    link = link_at(tmp_path)
    (tmp_path / "tasks/.environments").mkdir(parents=True)
    (tmp_path / "tasks/.environments" / GOOD.environment).write_text("{}")
    bad = [None, {}, [], {**GOOD.to_document(), "attempt": "9" * 5000}, {**GOOD.to_document(), "unknown": 1}]
    answer = {"store": "s", "server": "x", "version": 3, "launches": [*bad, GOOD.to_document()]}
    link._take_answer(None, answer)  # type: ignore[arg-type]
    assert link.take() == (Desired(3, (GOOD,)), True)


@pytest.mark.parametrize(
    "digest", ["../../../keys", "/etc/keys", "..", "", "e" * 63, "E" * 64, "e" * 64 + "\n", "e" * 64 + "/..", 5, None]
)
def test_what_is_no_digest_never_becomes_the_name_of_a_file(tmp_path: Path, digest: Any) -> None:
    """A launch named the caller's environment "../../../keys", and what the server answered was written there."""
    link = link_at(tmp_path)
    launch = {**GOOD.to_document(), "environment": digest}
    link._take_answer(None, {"store": "s", "server": "x", "version": 3, "launches": [launch]})  # type: ignore[arg-type]
    assert link.take() == (Desired(3, ()), True)
    assert list(tmp_path.iterdir()) == []


class Driver(Nvml):
    """One that answers nonsense first."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def read(self) -> tuple[Reading, ...]:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("the driver fell over")
        return (Reading("a", 100, 1, 0, (GpuProcess(1, 1), GpuProcess(2**22, None), GpuProcess(-1, 1))),)


def test_the_sampler_goes_on_after_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swell.worker.sampler.SAMPLE_S", 0.01)
    monkeypatch.setattr("swell.worker.sampler.PAUSE_S_MAX", 0.01)
    told = threading.Event()
    sampler = Sampler(Driver(), wake=told.set)
    sampler.start()
    assert told.wait(PATIENCE_S)
    (first, *_) = sampler.take()
    assert [reading.id for reading in first.readings] == ["a"]
    wait_for(lambda: bool(sampler.take()), "another sample")
