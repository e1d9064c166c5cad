"""How many tasks of an array end per second, beside HyperQueue and beside no manager at all?

All contenders run one after the other in every round, in an order drawn from the seed, with as many tasks at once
as there are CPUs. Ours is the durable path: client, server and worker are three processes, every end is on disk. The
clock runs from the submission to the moment at which the client knows that the job has ended.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.children import per_second
from bench.folders import subfolder
from bench.hyperqueue_install import hyperqueue_python
from bench.installation import Installation, installed
from bench.rows import Row, Setting, middle, progress

WARM_UP = 20
RECORDING = '"$@"; echo $? > "$0"'  # what a shell script of one's own would do


@dataclass(slots=True)
class Contender:
    name: str
    once: Callable[[], tuple[float, dict[str, Any]]]  #: tasks per second, and what else is known
    rates: list[float] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def middle_detail(self) -> dict[str, Any]:
        """What is known of the run whose rate is the middle one."""
        return self.details[self.rates.index(sorted(self.rates)[len(self.rates) // 2])]


def run(setting: Setting) -> Iterator[Row]:
    with installed(setting.folder, cpus=setting.cpus) as ours:
        _array(ours, WARM_UP)
        swell = Contender("swell", partial(_array, ours, setting.tasks))
        others = [
            Contender("hyperqueue, stdout and stderr kept", partial(_hyperqueue, setting, "files")),
            Contender("hyperqueue, no output kept", partial(_hyperqueue, setting, "none")),
            Contender("sh that records the exit code", partial(_sh, setting)),
            Contender("fork and exec, nothing recorded", partial(_raw, setting)),
        ]
        _take_turns([swell, *others], setting)
    for other in others:
        yield _row(swell, other)


def _take_turns(contenders: list[Contender], setting: Setting) -> None:
    order = setting.random()
    for number in range(setting.repeats):
        for contender in order.sample(contenders, len(contenders)):
            rate, detail = contender.once()
            contender.rates.append(rate)
            contender.details.append(detail)
            progress(f"tasks, round {number + 1} of {setting.repeats}: {contender.name} {rate:.0f}/s")


def _row(ours: Contender, theirs: Contender) -> Row:
    detail = {
        "ratio_by_round": [mine / other for mine, other in zip(ours.rates, theirs.rates, strict=True)],
        "ours_all": ours.rates,
        "theirs_all": theirs.rates,
        "ours_detail": ours.middle_detail(),
        "theirs_detail": theirs.middle_detail(),
    }
    aim = "ratio above 1" if theirs.name.startswith("hyperqueue") else ""
    name = f"array of /bin/true, beside {theirs.name}"
    return Row("tasks", name, "tasks/s", middle(ours.rates), middle(theirs.rates), aim, detail)


def _array(ours: Installation, count: int) -> tuple[float, dict[str, Any]]:
    before = ours.cpu_s()
    began = time.perf_counter()
    job = ours.client.submit(["/bin/true"], cpus=1, array=f"1-{count}").wait()
    took = time.perf_counter() - began
    if job.state != "succeeded":
        raise RuntimeError(f"the array ended as {job.state}: {job.why()}")
    used = {name: 1000 * (seconds - before[name]) / count for name, seconds in ours.cpu_s().items()}
    return count / took, {"cpu_ms_per_task": used}


def _hyperqueue(setting: Setting, output: str) -> tuple[float, dict[str, Any]]:
    python = hyperqueue_python()
    script = Path(__file__).with_name("hyperqueue_array.py")
    folder = subfolder(setting.folder, "hyperqueue")
    argv = [str(python), "-I", str(script), str(folder), str(setting.tasks), str(setting.cpus), output]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    detail = {
        "as_its_client_sees": setting.tasks / found["client_s"],
        "cpu_ms_per_task": 1000 * found["cpu_s"] / setting.tasks,
    }
    return setting.tasks / found["last_s"], detail


def _sh(setting: Setting) -> tuple[float, dict[str, Any]]:
    folder = subfolder(setting.folder, "sh")

    def argv(number: int) -> list[str]:
        return ["/bin/sh", "-c", RECORDING, f"{folder}/{number}", "/bin/true"]

    return per_second(argv, count=setting.tasks, width=setting.cpus), {}


def _raw(setting: Setting) -> tuple[float, dict[str, Any]]:
    return per_second(lambda _: ["/bin/true"], count=setting.tasks, width=setting.cpus), {}
