"""A task's folder always tells what became of it: never begun, alive, or ended with a code."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from swell.worker import processes, tasks
from swell.worker.tasks import Status


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0").mkdir()
    return tmp_path / "0"


def start(folder: Path, *command: str, workdir: str = "/", umask: int = 0o022) -> int:
    env = {"PATH": os.environ["PATH"], "SWELL_STORE": "s", "SWELL_ATTEMPT": "1.1", "SWELL_TASK_INDEX": "0"}
    return tasks.spawn(str(folder), 2, command, workdir, umask, env)


def reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for(condition: object, what: str) -> None:
    until = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, f"{what} did not happen within 10 s"
        time.sleep(0.005)


def test_a_folder_can_be_claimed_once(tmp_path: Path) -> None:
    assert [tasks.claim(tmp_path / "7"), tasks.claim(tmp_path / "7")] == [True, False]


def test_a_claimed_task_that_was_not_started_has_never_begun(folder: Path) -> None:
    assert tasks.inspect(folder).status is Status.NEVER_BEGUN


def test_a_task_whose_log_is_there_but_not_locked_has_never_begun(folder: Path) -> None:
    """We were killed between opening the log and the fork."""
    (folder / "log").touch()
    assert tasks.inspect(folder).status is Status.NEVER_BEGUN


def test_a_task_that_ended_tells_its_code_its_lane_and_when(folder: Path) -> None:
    before = time.time()
    pid = start(folder, "sh", "-c", "echo out; echo err >&2; exit 42")
    assert reap(pid) == 42
    found = tasks.inspect(folder)
    assert (found.status, found.code, found.lane, found.pid) == (Status.ENDED, 42, 2, pid)
    assert before - 1 <= found.begun_at <= found.ended_at <= time.time() + 1
    assert (folder / "log").read_text() == "out\nerr\n"


def test_a_running_task_is_alive_and_says_who_keeps_it(folder: Path) -> None:
    pid = start(folder, "sleep", "30")
    wait_for(lambda: tasks.inspect(folder).pid == pid, "the keeper's name")
    assert tasks.inspect(folder).status is Status.ALIVE
    processes.kill(pid, processes.marks("s", "1.1", 0))
    assert reap(pid) == 137
    assert tasks.inspect(folder).code == 137


def test_a_task_whose_keeper_was_killed_is_alive_until_what_it_started_ends(folder: Path) -> None:
    pid = start(folder, "sleep", "30")
    wait_for(lambda: len(processes.members(pid, processes.marks("s", "1.1", 0))) == 1, "the command's start")
    os.kill(pid, signal.SIGKILL)
    reap(pid)
    assert tasks.inspect(folder).status is Status.ALIVE
    assert processes.kill(pid, processes.marks("s", "1.1", 0)) == 1
    wait_for(lambda: tasks.inspect(folder).status is Status.ENDED, "its end")
    assert tasks.inspect(folder).code is None


def test_a_command_that_does_not_exist_ends_with_127_and_says_so_in_its_log(folder: Path) -> None:
    assert reap(start(folder, "no-such-command-here")) == 127
    assert "no-such-command-here" in (folder / "log").read_text()


def test_a_folder_that_does_not_exist_is_told_apart_from_a_failed_command(folder: Path) -> None:
    assert reap(start(folder, "true", workdir="/no/such/folder")) == 125
    assert tasks.inspect(folder).note == "workdir"


def test_a_task_runs_in_its_folder_with_its_umask_and_default_signals(folder: Path, tmp_path: Path) -> None:
    """A server started with nohup handed on that SIGHUP is ignored, and one started in the background SIGINT."""
    script = "pwd; umask; grep SigIgn /proc/self/status"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert reap(start(folder, "sh", "-c", script, workdir=str(tmp_path), umask=0o027)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    where, umask, ignored = (folder / "log").read_text().splitlines()
    assert (where, umask) == (str(tmp_path), "0027")
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # above 31 are the C library's own


def test_arguments_reach_the_command_as_they_are(folder: Path) -> None:
    words = ["a b", "$HOME", "*", "'", '"', "`id`", "-n", "", "ü"]
    assert reap(start(folder, "printf", "%s\n", *words)) == 0
    assert (folder / "log").read_text().splitlines() == words


def test_a_script_that_signals_its_own_group_does_not_take_its_keeper_along(folder: Path) -> None:
    assert reap(start(folder, "sh", "-c", "trap '' TERM; kill -TERM 0; exit 9")) == 9


def test_what_left_the_session_and_closed_everything_is_still_found(folder: Path) -> None:
    script = "setsid sh -c 'exec <&- >&- 2>&-; exec sleep 60' & wait $!; exit 0"
    pid = start(folder, "sh", "-c", script)
    wanted = processes.marks("s", "1.1", 0)

    def commands() -> set[str]:
        return {Path(f"/proc/{one}/comm").read_text().strip() for one in processes.members(pid, wanted)}

    wait_for(lambda: "sleep" in commands(), "the daemon")
    assert processes.kill(pid, wanted) >= 1
    assert reap(pid) in (0, 137)
    wait_for(lambda: processes.members(None, wanted) == [], "its end")


def test_everybody_is_asked_to_end_once_and_newcomers_too(folder: Path) -> None:
    """A process that was being forked while SIGTERM was sent missed it, and held its room for the whole grace."""
    script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done"
    pid = start(folder, "sh", "-c", script)
    wanted, asked = processes.marks("s", "1.1", 0), set[int]()
    wait_for(lambda: (folder / "log").read_text() == "ready\n", "the trap")
    for _ in range(3):
        processes.terminate(pid, wanted, asked)
    wait_for(lambda: "asked" in (folder / "log").read_text(), "the trap's answer")
    processes.kill(pid, wanted)
    wait_for(lambda: processes.kill(pid, wanted) == 0, "the end")
    assert reap(pid) == 137
    assert (folder / "log").read_text().count("asked") == 1


def test_another_stores_processes_are_never_touched(folder: Path) -> None:
    pid = start(folder, "sleep", "30")
    wait_for(lambda: len(processes.members(pid, processes.marks("s", "1.1", 0))) == 1, "the command's start")
    assert processes.members(None, processes.marks("another", "1.1", 0)) == []
    processes.kill(pid, processes.marks("s", "1.1", 0))
    reap(pid)


@pytest.mark.parametrize("moment", [-1e11, -1.0, 4e9])
def test_a_time_that_a_job_has_set_on_its_own_log_is_one_that_can_be(tmp_path, moment):
    """A year before the first could be stored, and not shown any more."""
    (tmp_path / "begun.4711.0").touch()
    (tmp_path / "log").touch()
    os.utime(tmp_path / "log", (moment, moment))
    assert 0.0 <= tasks.inspect(tmp_path).ended_at <= time.time()
