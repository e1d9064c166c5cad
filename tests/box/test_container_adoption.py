"""Containers of a box server's users outlive everything of ours, and their codes are known."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from box.containers import WAITS, at, inspect, made_box, made_gate, nothing_is_left, processes_of, shell
from box.machine import Machine, Person, up_before_and_empty_after
from server import Gate, Result, ended

pytestmark = pytest.mark.slow
shared = pytest.fixture(made_box, scope="module")


@pytest.fixture
def box(shared: Machine) -> Iterator[Machine]:
    yield from up_before_and_empty_after(shared)


@pytest.fixture
def gate(box: Machine) -> Iterator[Gate]:
    yield from made_gate(box)


def kill_everything_but_the_container(machine: Machine, person: Person, job: int) -> int:
    """Server, worker, keeper, script and podman; returns the container's first process."""
    pid, monitor = (inspect(machine, person, job)["State"][name] for name in ("Pid", "ConmonPid"))
    keeper = int(machine.client().place(job)["pid"])
    machine.down(signal.SIGKILL)
    machine.kill_worker()
    ours = Path("/proc/self/ns/pid").readlink()
    for one in [keeper, *processes_of(machine, person)]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended with those before it
            if one != monitor and Path(f"/proc/{one}/ns/pid").readlink() == ours:
                with ended(one):
                    os.kill(one, signal.SIGKILL)
    assert Path(f"/proc/{pid}").stat().st_uid == person.uid
    return int(pid)


def test_two_users_containers_are_adopted_after_everything_but_them_was_killed(box: Machine, gate: Gate) -> None:
    people = box.people[:2]
    jobs = {}
    for code, person in enumerate(people, start=5):
        job = person.start(*at(gate), *shell(f"echo before; read line < {gate}; echo after; exit {code}"))
        box.until_output(job, b"before")
        jobs[job] = code
    first, second = jobs
    for person, job in zip(people, (first, second), strict=True):
        if box.state.lock_holder("server") is None:
            box.up()
            box.until(job, "running")
        kill_everything_but_the_container(box, person, job)
    box.up()
    for job in jobs:
        box.until(job, "running")
    for _ in jobs:
        gate.open()
    assert {job: box.until(job, "failed")["exit_code"] for job in jobs} == jobs
    assert {job: box.until(job, "failed")["attempts"] for job in jobs} == dict.fromkeys(jobs, 1)
    assert [b"".join(box.client().logs(job)) for job in jobs] == [b"before\nafter\n"] * 2
    for person in people:
        nothing_is_left(box, person)


def test_the_code_of_one_that_ended_while_nobody_watched_is_learnt(box: Machine, gate: Gate) -> None:
    anna = box.people[0]
    job = anna.start(*at(gate), *shell(f"echo up; read line < {gate}; exit 6"))
    box.until_output(job, b"up")
    pid = kill_everything_but_the_container(box, anna, job)
    with ended(pid):
        gate.open()
    box.up()
    assert box.until(job, "failed")["exit_code"] == 6
    nothing_is_left(box, anna)


def test_an_adopted_one_can_be_entered_and_cancelled(box: Machine) -> None:
    anna = box.people[0]
    job = anna.start(*shell(WAITS))
    box.until_output(job, b"ready")
    kill_everything_but_the_container(box, anna, job)
    box.up()
    box.until(job, "running")
    assert anna.swell("exec", str(job), "--", "id", "-u") == Result(0, f"{anna.uid}\n", "")
    assert anna.swell("cancel", str(job)).code == 0
    assert box.until(job, "cancelled")["exit_code"] == 9
    nothing_is_left(box, anna)
