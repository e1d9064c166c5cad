"""Jobs that share GPUs by memory, on a real server: who goes where, who waits and why, and a crash changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server import Gate, Server

pytestmark = pytest.mark.slow

SHARE = ("--gpu-memory", "6GiB")
MIB = 6 * 1024


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Server]:
    """Two GPUs of 16 GiB."""
    with Server(tmp_path, gpus=2) as own:
        yield own


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[list[Gate]]:
    """One for each job, so that a test says who ends."""
    made = [Gate(tmp_path / f"gate-{number}") for number in range(4)]
    yield made
    for gate in made:
        gate.close()


def start(box: Server, gate: Gate, *options: str) -> int:
    return box.start(*options, "--", "sh", "-c", f"echo on $CUDA_VISIBLE_DEVICES; read line < {gate}")


def device(box: Server, job: int) -> str:
    """By its own word."""
    return box.until_output(job, b"\n").split()[1].decode()


def held(box: Server) -> list[tuple[int | None, list[tuple[int, int]], int]]:
    """Of each GPU: who has it whole, who shares it, and what is free of it."""
    [node] = box.client().nodes()
    return [
        (gpu["job"], [(share["job"], share["memory_mib"]) for share in gpu["shares"]], gpu["memory_mib_free"])
        for gpu in node["gpus"]
    ]


def end(box: Server, gate: Gate, job: int) -> dict[str, Any]:
    gate.open()
    return box.until(job, "succeeded")


def test_three_shares_take_two_gpus_and_a_fourth_waits_until_one_ends(box: Server, gates: list[Gate]) -> None:
    one, two, three = (start(box, gate, *SHARE) for gate in gates[:3])
    assert [device(box, job) for job in (one, two, three)] == ["sim-0", "sim-0", "sim-1"]
    assert held(box) == [(None, [(one, MIB), (two, MIB)], 4096), (None, [(three, MIB)], 10240)]
    four = start(box, gates[3], "--gpu-memory", "12GiB")
    waits = box.until_true(four, lambda document: document["reason"]["code"] == "WaitingForRoom")["reason"]
    assert waits["message"] == (
        "it wants 1 CPU, 12 GiB of one GPU's memory; free here is 5 CPUs, 10 GiB of one GPU's memory; "
        f"the rest is used by jobs {one}, {two}, {three}"
    )
    assert (waits["evidence"]["wants_gpu_memory_mib"], waits["evidence"]["largest_free_gpu_memory_mib"]) == (
        12288,
        10240,
    )
    end(box, gates[2], three)
    assert device(box, four) == "sim-1"
    assert held(box) == [(None, [(one, MIB), (two, MIB)], 4096), (None, [(four, 12288)], 4096)]


def test_an_exclusive_one_gets_a_gpu_of_its_own_and_nobody_joins_it(box: Server, gates: list[Gate]) -> None:
    share, own = start(box, gates[0], *SHARE), start(box, gates[1], *SHARE, "--exclusive")
    assert [device(box, job) for job in (share, own)] == ["sim-0", "sim-1"]
    late = [start(box, gates[2], *SHARE), start(box, gates[3], *SHARE)]
    assert device(box, late[0]) == "sim-0"
    box.until_true(late[1], lambda document: document["reason"]["code"] == "WaitingForRoom")
    assert held(box) == [(None, [(share, MIB), (late[0], MIB)], 4096), (own, [], 0)]
    end(box, gates[1], own)
    assert device(box, late[1]) == "sim-1"


def test_an_array_of_shares_fills_what_others_leave_and_works_through_its_indices(box: Server, gate: Gate) -> None:
    one = start(box, gate, *SHARE)
    device(box, one)
    script = f"echo on $CUDA_VISIBLE_DEVICES; read line < {gate}"
    array = box.start("--array", "0-7%6", "--cpus", "0.5", "--gpu-memory", "4GiB", "--", "sh", "-c", script)
    box.until_true(array, lambda document: document["tasks"]["running"] == 6)
    assert held(box) == [(None, [(one, MIB), *[(array, 4096)] * 2], 2048), (None, [(array, 4096)] * 4, 0)]
    table = box.swell("nodes", "-o", "wide").stdout
    assert f"job {one} 6144 MiB, job {array} 2 x 4096 MiB, 2048 MiB free" in table
    for _ in range(9):
        gate.open()
    assert box.until(array, "succeeded")["tasks"]["succeeded"] == 8
    box.until(one, "succeeded")
    assert held(box) == [(None, [], 16384), (None, [], 16384)]


def test_killing_server_and_worker_changes_nothing_and_promises_nothing_twice(box: Server, gates: list[Gate]) -> None:
    one, two, three = (start(box, gate, *SHARE) for gate in gates[:3])
    waiting = start(box, gates[3], "--gpu-memory", "12GiB")
    before = [device(box, job) for job in (one, two, three)]
    held_before = held(box)
    box.kill()
    box.kill("worker")
    box.up()
    for job in (one, two, three):
        box.until(job, "running")
    box.until_true(waiting, lambda document: document["reason"]["code"] == "WaitingForRoom")
    assert held(box) == held_before
    shown = [box.client().show(job) for job in (one, two, three)]
    assert [document["attempts"][0]["placements"][0]["devices"] for document in shown] == [[name] for name in before]
    assert [len(document["attempts"]) for document in shown] == [1, 1, 1]

    box.kill()
    gates[0].open()  # ends while nobody looks
    box.kill("worker")
    box.up()
    assert box.until(one, "succeeded")["exit_code"] == 0
    assert box.client().job(waiting).document["state"] == "queued"  # 10 GiB are free on each, and it wants 12
    end(box, gates[2], three)
    assert device(box, waiting) == "sim-1"
    assert held(box) == [(None, [(two, MIB)], 10240), (None, [(waiting, 12288)], 4096)]
