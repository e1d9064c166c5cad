"""What happens to work when server and worker are killed at random moments?

One round, from one seed: a private server, a gang, an array, single jobs; while at least one task runs, the
server, the worker or both are killed with SIGKILL several times, and jobs are submitted all the while. At the end
nothing may be lost, nothing may have run twice, every exit code must be known, and no process may be left.

`.venv/bin/python -m tests.crash.rounds SEED` repeats one round.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from swell.client import Client, Job
from swell.client.connection import path
from swell.client.embedded import ensure_server, stop_server
from swell.errors import SwellError
from swell.machine.state_folder import StateFolder

KILLS = 4
TASK = r"""
import os, sys, time
key = os.environ["SWELL_JOB_ID"] + "." + os.environ["SWELL_TASK_INDEX"]
folder, seconds, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
try:
    os.close(os.open(f"{folder}/ran/{key}", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    os.close(os.open(f"{folder}/twice/{key}", os.O_CREAT))
print("begin", key, flush=True)
time.sleep(seconds)
print("end", key, flush=True)
sys.exit(code + int(os.environ["SWELL_TASK_INDEX"]) if code else 0)
"""


class Playable(Protocol):
    def run(self) -> list[str]: ...


@dataclass
class Expected:
    """A job that was accepted, and how it must end."""

    job: int
    indices: list[int]
    state: str
    exit_code: int


@dataclass
class Round:
    seed: int
    folder: Path
    expected: list[Expected] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.state = StateFolder(self.folder / "state")
        for name in ("ran", "twice"):
            (self.folder / name).mkdir()

    def run(self) -> list[str]:
        """What went wrong; empty when everything held."""
        self.state.prepare()
        self.state.write_json(self.state.config, {"gpus": 4, "cpus_milli": 4000})
        ensure_server(self.state)
        try:
            self._submit("anchor", ["--", "3.0", "0"], indices=[0])  # one task that runs through every kill
            for _ in range(KILLS):
                self._submit_some()
                self._wait_for_a_task()
                self._kill()
                ensure_server(self.state)
            problems = self._verify()
        finally:
            end_everything(self.state)
        return problems + left_behind(self.folder)

    # -- work --------------------------------------------------------------------------------------------------

    def _submit_some(self) -> None:
        seconds = f"{self.random.uniform(0.0, 0.4):.3f}"
        code = self.random.choice([0, 0, 0, 3])
        kind = self.random.choice(["single", "gang", "array", "array", "urgent"])
        if kind == "single":
            self._submit("single", ["--", seconds, str(code)], indices=[0], code=code)
        elif kind == "urgent":  # arrays before it must give room back
            self._submit("urgent", ["--", seconds, "0"], indices=[0], priority=9, cpus=3)
        elif kind == "gang":
            self._submit("gang", ["--", seconds, "0"], indices=[0, 1], tasks=2)
        else:
            count = self.random.randint(3, 12)
            self._submit(
                "array", ["--", seconds, str(code)], indices=list(range(count)), code=code, array=f"0-{count - 1}%3"
            )

    def _submit(self, name: str, argv: list[str], *, indices: list[int], code: int = 0, **spec: object) -> None:
        """Repeated under one key until accepted, as a careful client does; the server may die at any moment."""
        command = [sys.executable, "-c", TASK, str(self.folder), *argv[1:]]
        manifest = {
            "apiVersion": "swell/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"command": command, "cpus": 0.5, **spec},
        }
        body = {"manifest": manifest, "workdir": str(self.folder), "env": dict(os.environ)}
        headers = {"Idempotency-Key": f"{self.seed}-{name}-{len(self.expected)}"}
        for _ in range(100):
            with contextlib.suppress(SwellError, OSError):
                answer = Client(self.state).connection.json("POST", path("jobs"), body, headers=headers)
                state = "failed" if code else "succeeded"
                exit_code = code + min(indices) if code else 0
                self.expected.append(Expected(answer["jobs"][0]["id"], indices, state, exit_code))
                return
            ensure_server(self.state)
        raise AssertionError(f"seed {self.seed}: {name} was never accepted")

    # -- faults ------------------------------------------------------------------------------------------------

    def _wait_for_a_task(self) -> None:
        until = time.monotonic() + 20
        while not any((self.folder / "ran").iterdir()):
            assert time.monotonic() < until, f"seed {self.seed}: no task began within 20 s"
            time.sleep(0.01)
        time.sleep(self.random.uniform(0.0, 0.3))  # the random moment

    def _kill(self) -> None:
        victims = self.random.choice([["server"], ["worker"], ["server", "worker"], ["worker", "server"]])
        submitter = threading.Thread(target=self._submit_some) if self.random.random() < 0.5 else None
        if submitter:
            submitter.start()
        for victim in victims:
            pid = self.state.lock_holder(victim)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(self.random.choice([0.0, 0.0, 0.02]))
        if submitter:
            submitter.join()

    # -- the end -----------------------------------------------------------------------------------------------

    def _verify(self) -> list[str]:
        client = Client(self.state)
        problems = []
        for expected in self.expected:
            job = self._wait(client, expected.job)
            true = (job.state, job.exit_code)
            if true != (expected.state, expected.exit_code):
                told = (expected.state, expected.exit_code)
                problems.append(f"job {job.id} ({job.name}) should be {told}, is {true}: {job.document['reason']}")
            problems += self._verify_tasks(client, expected)
        known = {expected.job for expected in self.expected}
        extra = {job.id for job in client.jobs(all=True)} - known
        if extra:
            problems.append(f"jobs {sorted(extra)} were accepted twice")
        problems += [f"task {path.name} ran twice" for path in (self.folder / "twice").iterdir()]
        return problems + self._verify_usage(client)

    def _verify_usage(self, client: Client) -> list[str]:
        """Every attempt is counted once; a gang for as long as it held its room, an array's slots at most so long."""
        jobs = [client.show(expected.job) for expected in self.expected]
        lives = [(job, life) for job in jobs for life in job["attempts"]]
        total = client.usage(days=2)["total"]
        problems = []
        if total["attempts"] != len(lives):
            problems.append(f"{len(lives)} attempts, but {total['attempts']} are counted")
        gangs = sum(cpu_s(job["spec"], life) for job, life in lives if not job["spec"]["array"])
        arrays = sum(cpu_s(job["spec"], life) for job, life in lives if job["spec"]["array"])
        counted = 3600 * total["cpu_hours"]
        if not gangs - 0.1 <= counted <= gangs + arrays + 0.1:  # hours are told to the sixth digit
            problems.append(f"{counted} CPU-seconds are counted, not {gangs} to {gangs + arrays}")
        return problems

    def _wait(self, client: Client, job: int) -> Job:
        found = client.job(job).wait(timeout_s=60)
        assert found.has_ended, f"seed {self.seed}: job {job} has not ended after 60 s: {found.document}"
        return found

    def _verify_tasks(self, client: Client, expected: Expected) -> list[str]:
        problems = []
        lives = client.show(expected.job)["attempts"]
        tasks = [(task["index"], task["exit_code"]) for life in lives for task in life["tasks"]]
        codes = dict(tasks)
        if len(codes) != len(tasks):
            problems.append(f"a task of job {expected.job} is recorded twice: {tasks}")
        for index in expected.indices:
            if not (self.folder / "ran" / f"{expected.job}.{index}").exists():
                problems.append(f"task {expected.job}.{index} never ran")
            if codes.get(index) is None:
                problems.append(f"the exit code of task {expected.job}.{index} is not known")
            log = b"".join(client.logs(expected.job, rank=index)).decode()
            key = f"{expected.job}.{index}"
            if log != f"begin {key}\nend {key}\n":
                problems.append(f"the log of task {key} is {log!r}")
        return problems


def cpu_s(spec: dict[str, Any], life: dict[str, Any]) -> float:
    """Of a life, were all its slots held from its beginning to its end."""
    begin, end = (datetime.fromisoformat(life[name]) for name in ("created_at", "ended_at"))
    slots = spec["array"]["at_once"] if spec["array"] else len(life["placements"])
    return float(slots * spec["roles"][0]["cpus_milli"] / 1000 * (end - begin).total_seconds())


def end_everything(state: StateFolder) -> None:
    """Whatever went wrong: no job and no server of the round goes on."""
    with contextlib.suppress(SwellError):
        for job in Client(state).jobs():
            if not job.has_ended:
                job.cancel(grace_s=0).wait(timeout_s=10)
    stop_server(state)


def left_behind(folder: Path) -> list[str]:
    """Processes that know this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder).encode() in environ + command.encode() and int(entry.name) != os.getpid():
                found.append(f"left behind: {entry.name} {command}")
    return found


def play(seed: int, make: Callable[[int, Path], Playable] = Round) -> list[str]:
    """One round in a folder of its own; the folder is kept when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"swell-crash-{seed}-"))
    problems = make(seed, folder).run()
    if problems:
        return [f"seed {seed}: {problem} (kept: {folder})" for problem in problems]
    shutil.rmtree(folder)
    return []


if __name__ == "__main__":
    sys.exit(subprocess.list2cmdline(play(int(sys.argv[1]))) or 0)
