"""`swell demo`"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client import Client, Job

PATIENCE_S = 60.0

RENDEZVOUS = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        server.settimeout(20)
        peer, _ = server.accept()
        print(f"rank 0 of {world}: {peer.recv(100).decode()}", flush=True)
else:
    for _ in range(200):
        try:
            with socket.create_connection(address, timeout=20) as peer:
                peer.sendall(f"rank {rank} says hello".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    print(f"rank {rank} of {world}: sent my hello", flush=True)
time.sleep(1)
"""
CASE = 'import os; n = int(os.environ["JOB_COMPLETION_INDEX"]); print(f"case {n}: {n * n}")'
TRAIN = """
import os, time
print("on", os.environ["NUM_GPUS"], "GPU(s):", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
weight = 0.0
for step in range(1, 31):
    weight -= 0.1 * 2 * (weight - 3.0)
    print(f"step {step}: loss {(weight - 3.0) ** 2:.6f}", flush=True)
    time.sleep(0.1)
"""
FAILS = 'print("loading data", flush=True); raise FileNotFoundError("no data set at /data/imagenet")'


@click.command("demo")
def command() -> int:
    """Start a private server with four simulated GPUs, run a handful of real jobs, and check what happened.

    Needs no GPU and leaves nothing behind. Exits with 0 only if everything went as told.
    """
    from swell.client.client import Client
    from swell.client.embedded import stop_server
    from swell.state import StateFolder

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="swell-demo-") as name:
        folder = StateFolder(Path(name) / "state")
        try:
            _start(folder)
            story = Story(Client(folder))
            story.tell()
        finally:
            for job in Client(folder).jobs() if folder.lock_holder("server") else []:
                if not job.has_ended:
                    job.cancel(grace_s=1).wait()
            stop_server(folder)
    took = time.monotonic() - began
    if story.broken:
        print(f"\n{len(story.broken)} thing(s) did not go as told:", *story.broken, sep="\n  - ", file=sys.stderr)
        return 1
    print(f"\nEverything went as told, in {took:.0f} s; the server and its files are gone. Now try your own:")
    program = sys.argv[0] if "/" in sys.argv[0] else "swell"
    print(f"  {program} run -- python train.py\n  {program} ps\n  {program} --help")
    return 0


def _start(folder: Any) -> None:
    from swell.client.embedded import ensure_server

    folder.prepare()
    folder.write_json(folder.config, {"gpus": 4, "cpus_milli": 4000})
    print("Starting a server for a machine with 4 simulated GPUs ...", flush=True)
    ensure_server(folder)


@dataclass
class Story:
    """What is told, step by step, and what turned out otherwise."""

    client: Client
    broken: list[str] = field(default_factory=list)

    def tell(self) -> None:
        gang = self._submit("gang", RENDEZVOUS, tasks=2, gpus=1, told="two ranks that must start together")
        train = self._submit("train", TRAIN, gpus=2, told="a small training run on two GPUs")
        waits = self._submit("waits", TRAIN, gpus=3, told="wants three GPUs while only fewer are free")
        array = self._submit("cases", CASE, array="0-19%4", cpus=0.25, told="twenty independent cases, four at once")
        fails = self._submit("fails", FAILS, cpus=0.25, told="will fail")
        never = self._submit("never", TRAIN, gpus=9, told="wants more GPUs than there are")

        for job in (gang, train):
            _await(lambda job=job: job.refresh().state, lambda state: state == "running")  # type: ignore[misc]
        self._say_why(waits, "WaitingForRoom")
        self._say_why(never, "CannotRunHere")
        self._table()

        self._expect(gang, "succeeded", 0)
        self._log(gang, rank=0, wanted="rank 0 of 2: rank 1 says hello")
        self._expect(array, "succeeded", 0)
        self._log(array, rank=19, wanted="case 19: 361")
        self._expect(fails, "failed", 1)
        self._log(fails, rank=0, wanted="FileNotFoundError: no data set at /data/imagenet")
        self._expect(train, "succeeded", 0)
        self._expect(waits, "succeeded", 0)
        self._check(_start_of(waits) >= _end_of(gang), "'waits' began before there was room for it")
        never.cancel().wait()
        self._expect(never, "cancelled", None)
        self._table()

    # -- telling -------------------------------------------------------------------------------------------------

    def _submit(self, name: str, script: str, *, told: str, **options: Any) -> Job:
        job = self.client.submit([sys.executable, "-c", script], name=name, **options)
        flags = " ".join(f"--{key} {value}" for key, value in options.items())
        print(f"  swell run {flags:<24} # job {job.id} {name}: {told}", flush=True)
        return job

    def _say_why(self, job: Job, code: str) -> None:
        reason = _await(lambda: job.why(), lambda found: found is not None and found.code == code)
        self._check(reason is not None and reason.code == code, f"'{job.name}' should be {code}, but is {reason}")
        if reason is not None:
            print(f"\n$ swell why {job.name}\n  {reason.code}: {reason.message}\n  next: {reason.next}", flush=True)

    def _table(self) -> None:
        from swell.cli.printing import print_table
        from swell.cli.ps import short_rows

        print("\n$ swell ps")
        jobs = sorted((job.document for job in self.client.jobs()), key=lambda job: int(job["id"]))
        print_table(*short_rows(jobs), states=2)
        sys.stdout.flush()

    def _log(self, job: Job, *, rank: int, wanted: str) -> None:
        text = b"".join(job.logs(rank=rank)).decode()
        print(f"\n$ swell logs --rank {rank} --tail 3 {job.name}", *text.splitlines()[-3:], sep="\n  ", flush=True)
        self._check(wanted in text, f"the log of '{job.name}' lacks {wanted!r}")

    # -- checking ------------------------------------------------------------------------------------------------

    def _expect(self, job: Job, state: str, code: int | None) -> None:
        job.wait(timeout_s=PATIENCE_S)
        true = (job.state, job.exit_code)
        self._check(true == (state, code), f"'{job.name}' should be {state} with code {code}, but is {true}")

    def _check(self, is_true: bool, otherwise: str) -> None:
        if not is_true:
            self.broken.append(otherwise)


def _await(look: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not is_good(found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _start_of(job: Job) -> str:
    return str(job.document["started_at"])


def _end_of(job: Job) -> str:
    return str(job.document["ended_at"])
