"""What do 200 workers on other machines cost, and is anything lost when the server dies under their load?

The machines exist only in what they say (`simulated_workers.py`); server, HTTP, store and plans are real. Jobs of a
second keep all machines busy; in the middle the server is killed and started again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bench.installation import Installation, installed, swell
from bench.rows import Row, Setting, middle, progress
from bench.simulated_workers import SimulatedMachine, Tallies
from swell.client import Client
from swell.machine.state_folder import StateFolder

MACHINES = 200
JOBS = 5_000
AT_ONCE = 250  # documents in one submission
LASTS_S = 1.0
IDLE_S = 20.0
READY_S_MAX = 120.0
DONE_S_MAX = 1800.0
LOOK_S = 0.5


def run(setting: Setting) -> Iterator[Row]:
    jobs = min(JOBS, setting.stored)
    with installed(setting.folder, cpus=1) as ours:
        yield from asyncio.run(_measure(ours, setting.folder, jobs))


async def _measure(ours: Installation, folder: Path, jobs: int) -> list[Row]:
    tallies, rows = Tallies(), []
    place = urlsplit(str(ours.state.read_json(ours.state.server_file)["url"]))
    assert place.hostname is not None
    assert place.port is not None
    token = await asyncio.to_thread(_worker_token, ours.state, folder)
    machines = [
        SimulatedMachine(number, token, place.hostname, place.port, tallies, lasts_s=LASTS_S)
        for number in range(MACHINES)
    ]
    living = [asyncio.create_task(machine.run()) for machine in machines]
    client = ours.client
    await _until(lambda: len(client.nodes()) > MACHINES, READY_S_MAX)
    rows.append(await _idle(ours))
    began, before = time.perf_counter(), ours.cpu_s()["server"]
    await asyncio.to_thread(_submit, client, jobs)
    await _until(lambda: _ended(client) >= jobs // 2, DONE_S_MAX)
    cpu_s = ours.cpu_s()["server"] - before
    half_s = time.perf_counter() - began
    rows += _under_load(tallies, cpu_s, half_s)
    progress("the server is killed")
    os.kill(ours.server_pid, signal.SIGKILL)
    await asyncio.to_thread(swell, "up", "-d", "--cpus", "1", state=ours.state.root)
    again = Client(ours.state)
    await _until(lambda: _ended(again) >= jobs, DONE_S_MAX)
    for task in living:
        task.cancel()
    return [*rows, *await asyncio.to_thread(_kept, again, tallies, jobs)]


def _worker_token(state: StateFolder, folder: Path) -> str:
    answer = Client(state).connection.json("POST", "/api/v1/tokens", {"name": "bench", "scope": "worker"})
    (folder / "bench.token").write_text(str(answer["token"]))
    return str(answer["token"])


def _submit(client: Client, jobs: int) -> None:
    document = 'apiVersion: swell/v1\nkind: Job\nspec: {command: ["true"]}\n'
    for start in range(0, jobs, AT_ONCE):
        client.submit_manifest("---\n".join([document] * min(AT_ONCE, jobs - start)))


def _ended(client: Client) -> int:
    counts = client.server()["jobs"]
    return sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled"))


async def _until(is_true: object, patience_s: float) -> None:
    assert callable(is_true)
    until = time.monotonic() + patience_s
    while not await asyncio.to_thread(is_true):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {patience_s:g} s")
        await asyncio.sleep(LOOK_S)


async def _idle(ours: Installation) -> Row:
    began, before = time.perf_counter(), ours.cpu_s()["server"]
    await asyncio.sleep(IDLE_S)
    used = ours.cpu_s()["server"] - before
    took = time.perf_counter() - began
    share = 1000 * used / took / MACHINES
    return Row("workers", f"one of {MACHINES} idle workers", "CPU ms/s", share, aim="below 0.5")


def _under_load(tallies: Tallies, cpu_s: float, took_s: float) -> list[Row]:
    syncs = sorted(tallies.syncs_s)
    begun = sum(tallies.begun.values())
    at_99 = 1000 * syncs[len(syncs) * 99 // 100]
    return [
        Row("workers", f"jobs a second on {MACHINES} workers", "jobs/s", begun / took_s),
        Row("workers", "one job, from its submission to its end", "CPU ms", 1000 * cpu_s / max(1, begun)),
        Row("workers", f"sync of a worker among {MACHINES}, the middle", "ms", 1000 * middle(syncs)),
        Row("workers", f"sync of a worker among {MACHINES}, 99 %", "ms", at_99, aim="below 1000"),
    ]


def _kept(client: Client, tallies: Tallies, jobs: int) -> list[Row]:
    succeeded = int(client.server()["jobs"].get("succeeded", 0))
    twice = sum(count - 1 for count in tallies.begun.values())
    return [
        Row("workers", f"of {jobs} jobs, lost when the server was killed", "jobs", float(jobs - succeeded), aim="0"),
        Row("workers", f"of {jobs} jobs, begun twice", "jobs", float(twice), aim="0"),
    ]
