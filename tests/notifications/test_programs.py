"""A notice's program has a short time, is heard a little, and nothing of it stays."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from server import wait_for_end
from swell.machine.processes import ready
from swell.machine.state_folder import StateFolder
from swell.notifications.post import NotSent
from swell.notifications.programs import Closing, Interrupted, Program, Programs

LIMIT_S = 1.5
PATIENCE_S = 20.0


@pytest.fixture
def programs(tmp_path) -> Programs:
    return Programs(StateFolder(tmp_path / "state"), "a-store", limit_s=LIMIT_S)


def program(*argv: str, folder: str = "/", **variables: str) -> Program:
    return Program(12, argv, folder, variables, None)


def problem(programs: Programs, *argv: str) -> str:
    with pytest.raises(NotSent) as refusal:
        programs.run(program(*argv), Closing())
    return str(refusal.value)


def test_it_is_run_in_the_jobs_folder_and_knows_the_server_that_runs_it(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("SWELL_SERVER", "http://elsewhere")
    monkeypatch.setenv("SWELL_TOKEN", "of-another-job")
    monkeypatch.setenv("MINE", "kept")
    told = program("sh", "-c", "pwd > told; env >> told", folder=str(tmp_path), SWELL_JOB_STATE="failed")
    programs.run(told, Closing())
    folder, *lines = (tmp_path / "told").read_text().splitlines()
    own = {line for line in lines if line.startswith(("SWELL_", "MINE="))}
    assert (folder, own) == (
        str(tmp_path),
        {
            "MINE=kept",
            "SWELL_JOB_ID=12",
            "SWELL_JOB_STATE=failed",
            "SWELL_NOTICE=0",
            f"SWELL_STATE={tmp_path}/state",
            "SWELL_STORE=a-store",
        },
    )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sh", "-c", "echo trying; echo no route >&2; exit 4"], "exit code 4: trying no route"),
        (["false"], "exit code 1"),
        (["sh", "-c", "kill -9 $$"], "ended by signal 9"),
        (["sh", "-c", r"printf 'a\033[2Jb\nc\000d\377'; exit 1"], "exit code 1: a [2Jb c d\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_what_went_wrong_is_said_on_one_line_without_control_characters(programs, argv, said):
    assert problem(programs, *argv) == said


def test_one_that_does_not_exist_is_said(programs):
    said = problem(programs, "/no/such/program")
    assert said.startswith("exit code 127: ")
    assert said.endswith("not found")


def test_what_it_says_is_heard_a_little_and_never_fills_the_server(programs):
    """`yes` would write gigabytes in its time."""
    before_s = time.process_time()
    said = problem(programs, "sh", "-c", "yes abcdefgh")
    assert said.startswith(f"it did not finish within {LIMIT_S:g} s and was killed: ")
    assert len(said) < 400
    assert time.process_time() - before_s < LIMIT_S / 2


def test_one_that_ends_well_after_much_output_is_well(programs):
    programs.run(program("sh", "-c", "head -c 300000 /dev/zero"), Closing())


class Daemon:
    """A process that tells its number through a pipe, and lives."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "number"
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def pid(self) -> int:
        assert ready(PATIENCE_S, self._descriptor)
        return int(os.read(self._descriptor, 100))


STAYS = {
    "ignores SIGTERM": "trap '' TERM HUP INT; echo $$ > {path}; while :; do sleep 1; done",
    "left its session": "setsid sh -c 'echo $$ > {path}; exec sleep 1000' & wait",
    "a daemon": "setsid sh -c 'echo $$ > {path}; : > {path}.up; exec sleep 1000' > /dev/null 2>&1 < /dev/null & "
    "until [ -e {path}.up ]; do sleep 0.01; done; exit 0",
    "stopped": "sh -c 'echo $$ > {path}; kill -STOP $$'; sleep 1000",
}


@pytest.mark.parametrize("how", STAYS)
def test_all_that_it_has_started_ends_with_it(programs, tmp_path, how):
    daemon = Daemon(tmp_path)
    script = STAYS[how].format(path=daemon.path)
    if how == "a daemon":
        programs.run(program("sh", "-c", script), Closing())
    else:
        assert problem(programs, "sh", "-c", script) == f"it did not finish within {LIMIT_S:g} s and was killed"
    wait_for_end(daemon.pid(), PATIENCE_S)


@pytest.mark.parametrize("how", STAYS)
def test_when_the_server_ends_so_do_they_at_once(tmp_path, how):
    programs = Programs(StateFolder(tmp_path / "state"), "a-store", limit_s=1000)
    daemon, closing, came = Daemon(tmp_path), Closing(), []
    script = STAYS[how].format(path=daemon.path).replace("exit 0", "sleep 1000")

    def run() -> None:
        try:
            programs.run(program("sh", "-c", script), closing)
        except Interrupted as end:
            came.append(end)

    thread = threading.Thread(target=run)
    thread.start()
    pid = daemon.pid()
    before = time.monotonic()
    closing.set()
    thread.join(PATIENCE_S)
    assert (len(came), time.monotonic() - before < PATIENCE_S / 2) == (1, True)
    wait_for_end(pid, PATIENCE_S)


def test_a_job_that_was_submitted_from_a_notice_is_none_of_its_processes(programs, tmp_path):
    """Its environment came along, with the notice's marks in it; its own number tells it apart."""
    daemon = Daemon(tmp_path)
    lives = f"echo $$ > {daemon.path}; : > {daemon.path}.up; exec sleep 1000"
    script = f"SWELL_JOB_ID=13 setsid sh -c '{lives}' > /dev/null 2>&1 & "
    script += f"until [ -e {daemon.path}.up ]; do sleep 0.01; done"
    programs.run(program("sh", "-c", script), Closing())
    pid = daemon.pid()
    os.kill(pid, 0)
    os.kill(pid, 9)
