"""`run-scheduler` on a real server: shares of a GPU, containers, ports, and the older submit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.doors.foreign import Foreign
from server import Gate

from .containers import ContainerRuntime, ContainerServer, free_port
from .training import EXAMPLES

pytestmark = pytest.mark.slow

#: the machine's own Python in every container: run-scheduler has no word for it
PYTHON = "--volume /usr:/usr:ro"
TOLD = ("CUDA_VISIBLE_DEVICES", "NUM_GPUS", "RESERVED_MEM")
SHOW = f"""
import json, os
print(json.dumps({{name: os.environ.get(name) for name in {TOLD}}}), flush=True)
open(os.environ.get("GATE", "/custom/gate"), "rb", buffering=0).readline()  # one line: the next is another job's
"""
LOOK = """
import os, runpy
print("in", os.getcwd(), "with", open("/data/in").read(), flush=True)
runpy.run_path("/custom/plain.py", run_name="__main__")
"""
SERVE = """
import runpy, socket
port = socket.create_server(("", 80))
print("listening", flush=True)
line, _ = port.accept()
line.sendall(b"from inside")
line.close()
runpy.run_path("/custom/plain.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, runtime: ContainerRuntime) -> Iterator[ContainerServer]:
    """Two GPUs of 16 GiB."""
    with ContainerServer(tmp_path_factory.mktemp("scheduler"), runtime, PYTHON, gpus=2) as shared:
        yield shared
        assert shared.left() == []


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Somebody's folder, in a home with datasets."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets/in").write_text("given data")
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in (("show.py", SHOW), ("look.py", LOOK), ("serve.py", SERVE)):
        (folder / name).write_text(text)
    shutil.copy(EXAMPLES / "kubeprofiler/plain.py", folder)
    return folder


def schedule(box: ContainerServer, code: Path, *words: str, **variables: str) -> int:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    where = ("--custom_dir", str(code), "--snapshots_dir", str(code.parent / "shots"))
    return box.beside("run-scheduler", "job", *where, *words, HOME=str(code.parent), PATH=path, **variables).id


def told(box: ContainerServer, job: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box.until_output(job, b"\n"))
    return found


def let_end(box: ContainerServer, gate: Gate, *jobs: int) -> None:
    for _ in jobs:
        gate.open()
    for job in jobs:
        box.until(job, "succeeded")


SHARE = ("--script_path", "show.py", "--is_single_gpu", "True", "--estimated_memory", "4096")


def test_two_jobs_share_one_gpu_and_know_what_they_may_use_of_it(box: ContainerServer, code: Path, gate: Gate) -> None:
    one, two = (schedule(box, code, *SHARE, GATE=str(gate)) for _ in range(2))
    expected = {"CUDA_VISIBLE_DEVICES": "sim-0", "NUM_GPUS": "1", "RESERVED_MEM": "4096"}
    assert [told(box, one), told(box, two)] == [expected, expected]
    [node] = box.client().nodes()
    assert node["gpus"][0]["shares"] == [{"job": one, "memory_mib": 4096}, {"job": two, "memory_mib": 4096}]
    let_end(box, gate, one, two)


def test_with_sharing_disabled_each_has_a_gpu_of_its_own(box: ContainerServer, code: Path, gate: Gate) -> None:
    one, two = (schedule(box, code, *SHARE, "--disable_gpu_sharing", GATE=str(gate)) for _ in range(2))
    found = [told(box, job) for job in (one, two)]
    assert [(one["CUDA_VISIBLE_DEVICES"], one["RESERVED_MEM"]) for one in found] == [
        ("sim-0", "4096"),
        ("sim-1", "4096"),
    ]
    [node] = box.client().nodes()
    assert [(gpu["job"], gpu["shares"]) for gpu in node["gpus"]] == [(one, []), (two, [])]
    let_end(box, gate, one, two)


def test_in_a_container_the_three_folders_are_mounted_and_the_script_reports(box: ContainerServer, code: Path) -> None:
    words = ("--image_name", box.runtime.image, "--script_path", "look.py", "--max_epochs", "3")
    job = schedule(box, code, *words, *SHARE[2:])
    document = box.until(job, "succeeded", "failed")
    log = b"".join(box.client().logs(job)).decode()
    assert (document["state"], document["progress"]["epochs_done"]) == ("succeeded", 3.0), log
    assert log.startswith("in /custom with given data\nepoch 1: loss ")
    assert (code.parent / f"shots/{box.store[:8]}-{job}/weight.json").exists()


def test_a_port_of_this_machine_leads_into_the_container_which_still_reports(box: ContainerServer, code: Path) -> None:
    port = free_port()
    words = ("--image_name", box.runtime.image, "--script_path", "/custom/serve.py", "--max_epochs", "2")
    job = schedule(box, code, *words, "--port_mapping", f"{port}:80")
    box.until_output(job, b"listening")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        assert line.makefile("rb").read() == b"from inside"
    document = box.until(job, "succeeded", "failed")
    progress = document["progress"]["epochs_done"]
    assert (document["state"], progress) == ("succeeded", 2.0), b"".join(box.client().logs(job))


def test_a_guess_of_an_hour_or_less_is_refused_and_nothing_is_submitted(box: ContainerServer, code: Path) -> None:
    before = box.jobs()
    done = box.beside("run-scheduler", "job", "--script_path", "show.py", "--est_nhours", "1", HOME=str(code.parent))
    assert (done.code, "est_nhours is 1, but must be more than 1" in done.stderr) == (2, True), done
    assert box.jobs() == before


def test_the_older_submit_shares_a_gpu_when_it_says_so(box: ContainerServer, code: Path) -> None:
    """Its `disableGPUSharing` is true unless it says otherwise."""
    gate = Gate(code / "gate")
    door = Foreign(box.swell("door", "address", "kubeprofiler").stdout.strip())
    body = {"jobName": "old", "scriptPath": "show.py", "directoryToMount": str(code), "dockerImage": box.runtime.image}
    body |= {"isSingleGPU": True, "estimatedMemory": 4096}
    answers = [door.ask("POST", "/submit", {**body, **more}) for more in ({"disableGPUSharing": False},) * 2 + ({},)]
    assert [status for status, _ in answers] == [201, 201, 201], answers
    jobs = [answer["id"] for _, answer in answers]
    assert [told(box, job)["CUDA_VISIBLE_DEVICES"] for job in jobs] == ["sim-0", "sim-0", "sim-1"]
    let_end(box, gate, *jobs)
    gate.close()
