"""Does it feel quick: commands, starts, submissions, memory, on an idle server and with 10,000 jobs stored?

Two mixes are stored, one after the other: jobs that wait in line behind an endless one, and jobs that can never run
on this machine. Every row stands beside a calibration of the same machine in the same minute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.children import cpu_s, fsync_ms
from bench.installation import SWELL, Installation, installed
from bench.rows import Row, Setting, at_95, middle, progress
from swell.client import Client

CPUS_OFFERED = 4  # declared, so that there is room for one job in front of any queue on any machine
COMMAND_RUNS = 7
REST_S = 0.05  # between timed starts; the server is idle again
AHEAD = 100  # priority of the timed jobs: they do not stand in the queue
TELL_TIME = ("/bin/date", "+%s%N")


@dataclass(frozen=True, slots=True)
class Mix:
    """What is stored, and why it stays there."""

    name: str
    cpus: str
    has_endless_job: bool


MIXES = (
    Mix("waiting behind an endless job", str(CPUS_OFFERED), True),
    Mix("that can never run here", str(1000 * CPUS_OFFERED), False),
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What this machine can do at best."""

    python_s: float
    fsync_ms: float
    exec_ms: float

    @classmethod
    def measure(cls, folder: Path) -> Calibration:
        python = [cpu_s((sys.executable, "-c", "pass"))[0] for _ in range(COMMAND_RUNS)]
        execs = [1000 * cpu_s(TELL_TIME)[1] for _ in range(50)]
        return cls(middle(python), middle(fsync_ms(folder)), middle(execs))

    def rows(self) -> Iterator[Row]:
        yield Row("feel", "calibration: python -c pass", "CPU s", None, self.python_s)
        yield Row("feel", "calibration: fsync of 4 KiB", "ms", None, self.fsync_ms)
        yield Row("feel", "calibration: fork, exec and wait", "ms", None, self.exec_ms)


def run(setting: Setting) -> Iterator[Row]:
    calibration = Calibration.measure(setting.folder)
    yield from calibration.rows()
    yield _command(calibration, "swell --help", ("--help",), "below 0.15")
    for mix in MIXES:
        with installed(setting.folder, cpus=CPUS_OFFERED) as ours:
            if mix.has_endless_job:
                ours.client.submit(["/bin/sleep", "infinity"], cpus=1)
            else:
                yield _starts(ours, setting, calibration, "idle server")
            yield from _with_many(ours, setting, calibration, mix)


def _with_many(ours: Installation, setting: Setting, calibration: Calibration, mix: Mix) -> Iterator[Row]:
    timed = min(setting.submissions, setting.stored)
    yield _submissions(ours, timed, calibration, mix)
    if setting.stored > timed:
        _store(ours, setting.stored - timed, mix)
    many = f"with {setting.stored} jobs {mix.name}"
    yield _memory(ours, f"server memory {many}", "VmRSS")
    for name, words in (("swell ps", ("ps",)), ("swell ps -o json", ("ps", "-o", "json"))):
        yield _command(calibration, f"{name} {many}", (*words, "--state", str(ours.state)), "below 0.25", ours)
    yield _starts(ours, setting, calibration, many)
    yield _memory(ours, f"server memory at its peak {many}", "VmHWM")


def _command(
    calibration: Calibration, name: str, words: tuple[str, ...], aim: str, ours: Installation | None = None
) -> Row:
    """CPU of the command's own process; the server's share stands beside it."""
    progress(f"feel: {name}")
    cpu_s((SWELL, *words))  # the first one finds a cold disk
    before = ours.cpu_s()["server"] if ours else 0.0
    runs = [cpu_s((SWELL, *words)) for _ in range(COMMAND_RUNS)]
    detail = {"wall_s": middle([took for _, took in runs])}
    if ours is not None:
        detail["server_cpu_s"] = (ours.cpu_s()["server"] - before) / COMMAND_RUNS
    return Row("feel", name, "CPU s", middle([used for used, _ in runs]), calibration.python_s, aim, detail)


def _starts(ours: Installation, setting: Setting, calibration: Calibration, where: str) -> Row:
    """From before the submission to the time that the started process tells."""
    progress(f"feel: {setting.starts} starts, {where}")
    took, accepted = [], []
    client = Client(ours.state)
    for _ in range(setting.starts):
        began = time.time_ns()
        job = client.submit(TELL_TIME, cpus=1, priority=AHEAD)
        accepted.append((time.time_ns() - began) / 1e6)
        job.wait()
        took.append((int(b"".join(job.logs())) - began) / 1e6)
        time.sleep(REST_S)
    detail = {"p95": at_95(took), "submit_call_median": middle(accepted)}
    name = f"submit to process start, {where}"
    return Row("feel", name, "ms", middle(took), calibration.exec_ms, "median below 100", detail)


def _submissions(ours: Installation, count: int, calibration: Calibration, mix: Mix) -> Row:
    before = ours.cpu_s()["server"]
    found = _store(ours, count, mix)
    detail = {**found, "server_cpu_s": ours.cpu_s()["server"] - before}
    name = f"submissions through the API, 32 in flight, jobs {mix.name}"
    rate = found["accepted"] / found["wall_s"]
    return Row("feel", name, "jobs/s", rate, 1000 / calibration.fsync_ms, "above 500", detail)


def _store(ours: Installation, count: int, mix: Mix) -> dict[str, float]:
    progress(f"feel: {count} submissions of jobs {mix.name}")
    argv = [sys.executable, "-m", "bench.submitter", str(ours.state), str(count), mix.cpus]
    said = subprocess.run(argv, check=True, stdout=subprocess.PIPE, start_new_session=True).stdout
    found: dict[str, float] = json.loads(said)
    if found["accepted"] != count:
        raise RuntimeError(f"only {found['accepted']} of {count} submissions were accepted")
    return found


def _memory(ours: Installation, name: str, field: str) -> Row:
    return Row("feel", name, "MB", ours.server_memory_mb(field), aim="below 150")
