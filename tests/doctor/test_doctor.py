"""What `swell doctor` finds, on machines of all kinds and on this one."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nvml import Driver, process
from server import SWELL, Gate, Server
from swell.doctor import Finding
from swell.doctor.containers import containers_finding, examine_containers
from swell.doctor.gpus import ask_driver, driver_findings, mps
from swell.doctor.machine import Level, ask_limits, clock, examine_machine, limits, open_files
from swell.doctor.service import cluster_findings, examine_service
from swell.machine.state_folder import StateFolder

HIDDEN = "an unknown user (an unknown amount, process 7: not visible here)"
TOPICS = ["asked", "driver", "MPS", "containers", "limits", "clock", "open files", "state folder", "server", "worker"]


def gpu(**values: Any) -> dict[str, Any]:
    found = {"id": "GPU-a", "model": "A100", "memory_mib": 100, "used_mib": 50, "watched": True, "processes": []}
    return {**found, **values}


def user(**values: Any) -> dict[str, Any]:
    known = {"pid": 7, "used_mib": 40, "user": "ann", "command": "python x", "job": None, "store": None}
    return {**known, **values}


def told(said: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(finding.level), finding.text) for finding in driver_findings(said, "ours")]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (gpu(), ("ok", "GPU-a: A100, 100 MiB, 50 MiB used by nobody")),
        (
            gpu(processes=[user(job=12, store="ours")]),
            ("ok", "GPU-a: A100, 100 MiB, 50 MiB used by job 12 (40 MiB, process 7: python x)"),
        ),
        (
            gpu(processes=[user(store="ours")]),  # it says whose it is, and not which
            ("note", "GPU-a: A100, 100 MiB, 50 MiB used by ann (40 MiB, process 7: python x)"),
        ),
        (
            gpu(processes=[user(job=12, store="theirs")]),
            ("note", "GPU-a: A100, 100 MiB, 50 MiB used by ann (40 MiB, process 7: python x)"),
        ),
        (
            gpu(processes=[user(user=None, command=None, used_mib=None)], watched=False, used_mib=None),
            (
                "note",
                (
                    f"GPU-a: A100, 100 MiB, an unknown amount used by {HIDDEN}; the driver does not report memory "
                    "per process"
                ),
            ),
        ),
    ],
)
def test_who_uses_a_gpu_is_said(found: dict[str, Any], expected: tuple[str, str]) -> None:
    assert told({"versions": ["550", "12"], "problem": "", "gpus": [found]})[:2] == [("ok", "550, NVML 12"), expected]


def test_a_driver_that_hangs_is_a_problem() -> None:
    said = {"problem": "it did not answer within 20 s", "hangs": True}
    text = "an NVIDIA driver is loaded, but NVML does not work: it did not answer within 20 s"
    assert told(said) == [("problem", text)]


def test_a_driver_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in Driver(tmp_path).environment.items():
        monkeypatch.setenv(name, text)
    never = tmp_path / "never"
    os.mkfifo(never)
    monkeypatch.setenv("SWELL_TEST_NVML", str(never))
    assert ask_driver(0.5) == {"problem": "it did not answer within 0 s", "hangs": True}


def test_a_gpu_that_is_lost_is_a_problem() -> None:
    found = told({"versions": ["550", "12"], "problem": "GPU 1 is not used: NVML says GPU is lost", "gpus": [gpu()]})
    assert found[1] == ("problem", "GPU 1 is not used: NVML says GPU is lost")


@pytest.mark.parametrize(
    ("variables", "commands", "level", "text"),
    [
        ({}, {1: "init"}, "ok", "not running; jobs that share a GPU are time-sliced"),
        ({}, {9: "nvidia-cuda-mps", 8: "nvidia-cuda-mps"}, "note", "runs (process 8)"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/p"}, {9: "nvidia-cuda-mps"}, "note", "runs (process 9), pipes in /p"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/p"}, {}, "problem", "CUDA_MPS_PIPE_DIRECTORY is /p, but MPS is not running"),
    ],
)
def test_mps_is_looked_for(variables: dict[str, str], commands: dict[int, str], level: str, text: str) -> None:
    found = mps(variables, commands)
    assert (found.topic, str(found.level), found.text) == ("MPS", level, text)


NO_ROOT = "no permission to create control groups in /sys/fs/cgroup"


@pytest.mark.parametrize(
    ("not_enforced", "level", "text"),
    [
        ([], "ok", "limits on memory, CPUs, GPUs and the number of processes are enforced"),
        (
            [{"limit": "--memory", "why": NO_ROOT}, {"limit": "--cpus", "why": NO_ROOT}, {"limit": "x", "why": "y"}],
            "note",
            f"not enforced, only counted: --memory, --cpus ({NO_ROOT}); x (y)",
        ),
        (None, "note", "Swell could not find out whether limits of tasks can be enforced"),
    ],
)
def test_what_is_not_enforced_is_said_and_why(not_enforced: list[dict[str, str]] | None, level: str, text: str) -> None:
    found = limits(not_enforced)
    assert (found.topic, str(found.level), found.text) == ("limits", level, text)


def test_users_of_a_box_are_told_nothing_of_limits_that_its_server_has_not_reported() -> None:
    """In the seconds before its worker reported, the doctor said "not enforced" of what the user could do alone."""
    assert limits_of(examine_machine(None, is_own=False)) == (
        "note",
        "the server has not reported yet whether limits of tasks are enforced",
    )
    assert limits_of(examine_machine([], is_own=False))[0] == "ok"
    assert limits_of(examine_machine(None, is_own=True))[1].startswith(("limits on memory", "not enforced"))


def limits_of(found: list[Finding]) -> tuple[str, str]:
    return next((str(one.level), one.text) for one in found if one.topic == "limits")


def test_what_a_worker_of_ours_could_enforce_is_found_out_and_leaves_nothing() -> None:
    before = sorted(Path("/sys/fs/cgroup").glob("*/swell-probe*"))
    assert ask_limits() is not None
    assert sorted(Path("/sys/fs/cgroup").glob("*/swell-probe*")) == before


@pytest.mark.parametrize(
    ("trial", "is_box_root", "level", "text"),
    [
        (
            {"runtime": "podman", "seconds": 0.9},
            False,
            "ok",
            "podman started a container as you in 0.9 s and removed it",
        ),
        (
            {"runtime": "podman", "seconds": 0.9},
            True,
            "note",
            "podman started a container as root in 0.9 s and removed it",
        ),
        ({"runtime": "docker", "problem": "no engine"}, False, "problem", "docker cannot start a container: no engine"),
        ({"runtime": ""}, False, "note", "neither podman nor docker is installed"),
    ],
)
def test_what_became_of_a_trial_container_is_told(
    trial: dict[str, Any], is_box_root: bool, level: str, text: str
) -> None:
    found = containers_finding(trial, is_box_root=is_box_root)
    assert (found.topic, str(found.level), found.text) == ("containers", level, text)
    assert bool(found.next) == (level != "ok")


def test_containers_that_nobody_uses_are_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Incident: `swell doctor` exited with 1 on a machine without containers, because its podman could start none."""
    broken = tmp_path / "podman"
    broken.write_text("#!/bin/sh\necho cannot >&2; exit 125\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    state = StateFolder(tmp_path / "state")
    unused = examine_containers(state, are_asked_for=False)
    wanted = examine_containers(state, are_asked_for=True)
    assert [str(unused.level), str(wanted.level)] == ["note", "problem"]
    assert unused.text == f"{wanted.text}; no job here uses containers"


def test_simulated_gpus_are_not_advised_where_they_are() -> None:
    [found] = driver_findings({"problem": "none"}, "", 8)
    expected = ("note", "no NVIDIA driver is loaded (none); the server has 8 simulated GPUs", "")
    assert (str(found.level), found.text, found.next) == expected


def test_this_machine_can_be_looked_at() -> None:
    found = [clock(), open_files()]
    assert [finding.topic for finding in found] == ["clock", "open files"]
    assert all(isinstance(finding, Finding) and finding.text for finding in found)


# -- the command -------------------------------------------------------------------------------------------------


def doctor(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith(("SWELL_", "CUDA_"))}
    env = {**own, "SWELL_STATE": str(folder / "state"), **variables}
    return subprocess.run([SWELL, "doctor", *words], env=env, capture_output=True, text=True, check=False, timeout=60)


def test_it_needs_no_server_and_makes_nothing(tmp_path: Path) -> None:
    done = doctor(tmp_path, "-o", "json", **Driver(tmp_path).environment)
    found = json.loads(done.stdout)
    assert done.returncode == int(any(finding["level"] == "problem" for finding in found))
    assert [finding["topic"] for finding in found] == TOPICS
    assert found[0]["text"] == f"the server of {tmp_path / 'state'}, because SWELL_STATE names it"
    assert [finding["text"] for finding in found if finding["topic"] == "server"] == [
        "no server is running for this state folder"
    ]
    assert not (tmp_path / "state").exists()


def test_a_problem_is_told_with_what_to_do_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    done = doctor(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/nowhere")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(
        line.startswith("problem state folder:   ") and "you do not have permission to write to" in line
        for line in lines
    )
    assert any(line.endswith("→ name another folder with --state or SWELL_STATE") for line in lines)


def test_gpus_are_listed_with_their_users(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a", "GPU-b")
    driver.change("GPU-b", used_mib=900, processes=[process(os.getpid(), 800)])
    found = json.loads(doctor(tmp_path, "-o", "json", **driver.environment).stdout)
    gpus = [(finding["level"], finding["text"]) for finding in found if finding["topic"] == "GPU"]
    assert gpus[0] == ("ok", "GPU-a: NVIDIA A100, 40960 MiB, 0 MiB used by nobody")
    assert gpus[1][0] == "note"
    typed = Path("/proc/self/cmdline").read_bytes().partition(b"\0")[0].decode()  # may be a relative path
    assert f"900 MiB used by {pwd.getpwuid(os.getuid()).pw_name} (800 MiB, process {os.getpid()}: {typed}" in gpus[1][1]


def test_no_worker_is_missed_where_kubernetes_runs_the_tasks(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.prepare()
    state.write_json(state.config, {"cluster": {}})
    text = "no worker is needed: Kubernetes runs the tasks"
    assert examine_service(state)[-1] == Finding("worker", Level.OK, text)


REVOKED = "list pods: the API server refuses the credential (401)"


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (None, []),
        (
            {"trouble": None, "unreadable": 0, "unreadable_objects": []},
            [("cluster", "ok", "its API server answers, and the server may act there")],
        ),
        (
            {"trouble": REVOKED, "unreadable": 0, "unreadable_objects": []},
            [("cluster", "problem", f"the server cannot act in its cluster: {REVOKED}")],
        ),
        (
            {"trouble": None, "unreadable": 3, "unreadable_objects": ["PyTorchJob ml/a cannot be read"]},
            [
                ("cluster", "ok", "its API server answers, and the server may act there"),
                ("object", "note", "PyTorchJob ml/a cannot be read"),
                ("objects", "note", "2 more objects of the cluster cannot be read and are left out"),
            ],
        ),
    ],
)
def test_of_a_cluster_it_says_whether_the_server_may_act_and_what_it_cannot_read(
    cluster: dict[str, Any] | None, expected: list[tuple[str, str, str]]
) -> None:
    """With a credential that was revoked, it said ok."""
    found = cluster_findings({"kubectl": None, "cluster": cluster})
    assert [(one.topic, str(one.level), one.text) for one in found] == expected


@pytest.mark.slow
def test_with_a_server_it_tells_more(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    gate = Gate(tmp_path / "gate")
    with Server(tmp_path, gpus=None, env=driver.environment) as box:
        job = box.start("--gpus", "1", "--", "sh", "-c", f"echo $$; read line < {gate}")
        pid = int(box.until_output(job, b"\n"))
        driver.change("GPU-a", used_mib=900, processes=[process(pid, 800)])
        done = box.swell("doctor", "-o", "json")
        found = {finding["topic"]: (finding["level"], finding["text"]) for finding in done.json}
        assert found["GPU"][1].startswith(f"GPU-a: NVIDIA A100, 40960 MiB, 900 MiB used by job {job} (800 MiB, process")
        server, worker = box.state.lock_holder("server"), box.state.lock_holder("worker")
        assert found["server"] == ("ok", f"version 0.1.0, process {server}")
        assert found["server's clock"] == ("ok", "agrees with this machine's")
        assert found["worker"] == ("ok", f"process {worker}")
        gate.open()
    gate.close()
