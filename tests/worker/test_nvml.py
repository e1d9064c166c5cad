"""What the driver says of the GPUs, and what is not believed. NVML is replaced where it is loaded from, as a module."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nvml import STANDINS, Driver, process
from swell.worker.nvml import COMPUTE, GRAPHICS, OLDER, mib

DEF = ast.FunctionDef
DEVICES = "[[d.id, d.memory_mib, d.model, d.simulated, d.is_watched] for d in nvml.devices()]"
PROCESSES = "[[[p.pid, p.used_mib, p.is_graphics] for p in r.processes or ()] for r in nvml.read()]"


def asked(driver: Driver, *expressions: str) -> list[Any]:
    """What these are, one after the other, in a process that loads the driver's NVML."""
    script = "import dataclasses, json; from swell.worker.nvml import Nvml; nvml = Nvml()\n"
    script += f"print(json.dumps([{', '.join(expressions)}]))"
    env = {**os.environ, **driver.environment}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    result: list[Any] = json.loads(done.stdout)
    return result


def test_the_real_library_has_every_function_that_the_standin_has_and_that_we_ask() -> None:
    functions = [node.name for node in ast.parse((STANDINS / "pynvml.py").read_text()).body if isinstance(node, DEF)]
    asked = [*COMPUTE, *GRAPHICS, *[name + OLDER for name in (*COMPUTE, *GRAPHICS)]]
    names = [name for name in (*functions, *asked) if name.startswith("nvml")]
    assert len(names) > 12
    assert [name for name in names if not callable(getattr(pynvml, name, None))] == []


def test_gpus_are_found_by_uuid_with_their_memory(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a", "GPU-b")
    expected = [[uuid, 40960, "NVIDIA A100", False, True] for uuid in ("GPU-a", "GPU-b")]
    assert asked(driver, DEVICES) == [expected]


def test_a_gpu_that_does_not_answer_is_not_offered_and_the_others_are(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a", "GPU-b", "GPU-c")
    driver.change("GPU-b", broken=True)
    assert asked(driver, "[d.id for d in nvml.devices()]", "nvml.problem()") == [
        ["GPU-a", "GPU-c"],
        "GPU 1 is not used: NVML says GPU is lost",
    ]


def test_a_machine_without_a_driver_offers_no_gpu(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    driver.say(is_broken=True)
    expected = [[], [], None, "there are no GPUs: NVML says Driver Not Loaded"]
    assert asked(driver, DEVICES, PROCESSES, "nvml.versions()", "nvml.problem()") == expected


def test_a_reading_says_what_each_gpu_does(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    driver.change("GPU-a", used_mib=3000, utilization=42, processes=[process(10, 2900)])
    assert asked(driver, "[dataclasses.asdict(r) for r in nvml.read()]", "nvml.versions()") == [
        [
            {
                "id": "GPU-a",
                "total_mib": 40960,
                "used_mib": 3000,
                "utilization": 42,
                "processes": [{"pid": 10, "used_mib": 2900, "is_graphics": False}],
            }
        ],
        ["550.54", "12.550.54"],
    ]


def test_one_that_computes_and_draws_is_counted_once(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    driver.change("GPU-a", processes=[process(10, 100, "compute+graphics"), process(9, 50, "graphics")])
    assert asked(driver, PROCESSES) == [[[[9, 50, True], [10, 100, False]]]]


def test_process_ids_and_memory_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    unknown = {"pid": 11, "used_bytes": None}
    too_much = {"pid": 12, "used_bytes": 0xFFFFFFFFFFFFFFFF}
    driver.change("GPU-a", processes=[process(0, 1), process(1 << 22 | 1, 1), unknown, too_much, process(13, 7)])
    assert asked(driver, PROCESSES) == [[[[11, None, False], [12, None, False], [13, 7, False]]]]


@pytest.mark.parametrize("gpu", [{"lists": False}, {"processes": [{"pid": 11, "used_bytes": None}]}])
def test_a_gpu_whose_driver_does_not_say_who_uses_how_much_is_not_watched(tmp_path: Path, gpu: dict[str, Any]) -> None:
    driver = Driver(tmp_path, "GPU-a")
    driver.change("GPU-a", **gpu)
    assert asked(driver, DEVICES) == [[["GPU-a", 40960, "NVIDIA A100", False, False]]]


def test_a_driver_that_fails_is_opened_again_when_it_is_back(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    script = """
import sys
from swell.worker.nvml import Nvml
nvml = Nvml()
for _ in sys.stdin:
    print([reading.id for reading in nvml.read()], flush=True)
"""
    env = {**os.environ, **driver.environment}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        answers = []
        for is_broken in (False, True, True, False):
            driver.say(is_broken=is_broken)
            print("read", file=asking.stdin, flush=True)
            answers.append(asking.stdout.readline().strip())
        asking.stdin.close()
    assert answers == ["['GPU-a']", "[]", "[]", "['GPU-a']"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1, 1), (1 << 20, 1), (16 << 20, 16), ((16 << 20) + 1, None), (-1, None), (None, None), (1.5, None)],
)
def test_memory_is_whole_mebibytes_of_what_the_gpu_has(value: object, expected: int | None) -> None:
    assert mib(value, 16) == expected
