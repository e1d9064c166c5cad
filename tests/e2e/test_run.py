"""`swell run` and `swell submit`: streams, exit codes, waiting, gangs, arrays."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from server import Server, ended, wait_for_end

pytestmark = pytest.mark.slow


def test_run_shows_the_output_and_exits_with_the_jobs_code(server):
    done = server.swell("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert done.code == 3
    assert sorted(done.stdout.splitlines()) == ["err", "out"]
    said = done.stderr.splitlines()
    assert re.fullmatch(r"swell: job \d+ \(sh\)", said[0])
    assert re.fullmatch(r"swell: job \d+ failed: task 0 ended with exit code 3", said[1])


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "kill -SEGV $$"], 139, "(SIGSEGV: a crash)"),
        (["sh", "-c", "kill -KILL $$"], 137, "(SIGKILL)"),
        (["no-such-program-anywhere"], 127, "(the command was not found)"),
        (["/etc/passwd"], 126, "(the command is not executable)"),
    ],
)
def test_the_exit_code_of_a_job_is_the_one_a_shell_would_have(server, command, code, said):
    done = server.swell("run", "--", *command)
    assert done.code == code
    assert said in done.stderr


def test_output_arrives_while_the_job_runs_byte_for_byte(server, gate):
    process = server.spawn("run", "--", "sh", "-c", rf"printf '\377\000one\n'; read line < {gate}; echo two")
    assert process.stdout is not None
    assert process.stdout.read(6) == b"\xff\x00one\n"
    gate.open()
    assert process.communicate(timeout=30)[0] == b"two\n"
    assert process.returncode == 0


def test_run_in_the_background_prints_the_id_and_nothing_else(server):
    done = server.swell("run", "-d", "--name", "background", "--", "true")
    assert (done.code, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+\n", done.stdout)
    assert server.until(done.id, "succeeded")["name"] == "background"


def test_words_of_the_command_are_passed_on_as_they_are(server):
    words = ["--gpus", "a b", "$HOME", "*", "", "'", '"', "\\", "\n", "-h", "é"]
    script = "import sys; print(sys.argv[1:])"
    assert server.swell("run", "--", "python3", "-c", script, *words).stdout == f"{words}\n"


def test_an_option_after_the_command_is_the_commands(server):
    assert server.swell("run", "echo", "--gpus", "-d").stdout == "--gpus -d\n"


def test_run_says_why_it_waits_and_goes_on_when_there_is_room(server):
    hold = server.start("--gpus", "4", "--", "sleep", "600")
    server.until(hold, "running")
    process = server.spawn("run", "--gpus", "2", "--", "echo", "at last")
    assert process.stderr is not None
    assert re.match(rb"swell: job \d+ \(echo\)\n", process.stderr.readline())
    waits = process.stderr.readline().decode()
    assert re.match(r"swell: job \d+ waits: it wants 1 CPU, 2 GPUs; free here is ", waits)
    assert f"used by job {hold}" in waits
    server.swell("cancel", str(hold))
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"at last\n")


def test_a_job_that_can_never_run_here_says_so_at_once(server):
    process = server.spawn("run", "--wait-for-nodes", "--gpus", "64", "--", "true")
    assert process.stderr is not None
    process.stderr.readline()
    said = process.stderr.readline().decode()
    assert re.match(r"swell: job \d+ waits: it wants 1 CPU, 64 GPUs, but this machine has ", said)
    assert "waiting will not help" in said
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130


def test_the_ranks_of_a_gang_are_shown_with_their_number_and_know_their_world(server):
    script = "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK gpus $CUDA_VISIBLE_DEVICES port $MASTER_PORT"
    done = server.swell("run", "--tasks", "3", "--gpus", "1", "--", "sh", "-c", script)
    assert done.code == 0
    lines = sorted(done.stdout.splitlines())
    found = [re.fullmatch(r"(\d)\| rank (\d) of 3 local (\d) gpus (sim-\d) port (\d+)", line) for line in lines]
    assert [match and match.group(1, 2, 3) for match in found] == [(n, n, n) for n in "012"]
    assert len({match[4] for match in found if match}) == 3
    assert len({match[5] for match in found if match}) == 1


def test_a_gang_ends_when_one_of_its_ranks_fails_and_tells_which(server):
    script = "if [ $RANK = 1 ]; then exit 9; else sleep 600; fi"
    done = server.swell("run", "--tasks", "3", "--grace", "5s", "--", "sh", "-c", script)
    assert done.code == 9
    assert "task 1 ended with exit code 9" in done.stderr


def test_an_array_runs_every_index_once_and_never_more_than_so_many_at_once(server, tmp_path):
    script = f"touch {tmp_path}/$JOB_COMPLETION_INDEX.$SWELL_TASK_COUNT.$RANK.$WORLD_SIZE; ls {tmp_path} | wc -l"
    done = server.swell("run", "--name", "array", "--array", "3-9:2,20%2", "--", "sh", "-c", script)
    assert done.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}.5.0.1" for n in (20, 3, 5, 7, 9)]
    job = server.client().job("array")
    assert job.document["tasks"] == {"total": 5, "running": 0, "succeeded": 5, "failed": 0, "stopped": 0}
    assert f"job {job.id} has 5 tasks; to see one: swell logs --rank I {job.id}" in done.stderr


def test_an_array_goes_on_after_a_task_has_failed_and_tells_how_many(server):
    script = "test $JOB_COMPLETION_INDEX -lt 8 || exit $JOB_COMPLETION_INDEX"
    done = server.swell("run", "--array", "0-9%4", "--", "sh", "-c", script)
    assert done.code == 8
    assert "2 tasks, first task 8, ended with exit code 8" in done.stderr


def test_the_first_run_starts_a_server_and_says_so(tmp_path):
    fresh = Server(tmp_path)
    try:
        done = fresh.swell("run", "--", "echo", "hello")
        assert (done.code, done.stdout) == (0, "hello\n")
        assert (
            f"swell: started a server for {fresh.root} (log: {fresh.root}/server.log; to stop it, run: swell down)"
            in (done.stderr)
        )
        again = fresh.swell("run", "--", "true")
        assert "started a server" not in again.stderr
    finally:
        fresh.swell("down", "--cancel")
    assert fresh.processes() == []


def test_two_that_start_a_server_at_once_end_up_with_one(tmp_path):
    fresh = Server(tmp_path)
    try:
        runs = [fresh.spawn("run", "--", "echo", "hello") for _ in range(4)]
        outputs = [run.communicate(timeout=60) for run in runs]
        assert [run.returncode for run in runs] == [0] * 4, outputs
        assert [out for out, _ in outputs] == [b"hello\n"] * 4
        assert len(fresh.jobs()) == 4
    finally:
        fresh.swell("down", "--cancel")
    assert fresh.processes() == []


def test_a_server_that_is_stopped_while_a_job_is_watched_is_a_failure_of_swell_and_the_job_goes_on(own_server, gate):
    process = own_server.spawn("run", "--", "sh", "-c", f"echo up; read line < {gate}; echo done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    own_server.down()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 125
    assert said.decode().splitlines()[-1] == (
        f"swell: the server of {own_server.root} was stopped; job 1 keeps running; to see it again: swell up "
        "-d, then swell logs -f 1"
    )
    own_server.up()
    gate.open()
    assert own_server.swell("wait", "1").code == 0
    assert own_server.swell("logs", "1").stdout == "up\ndone\n"


def test_stopping_the_server_leaves_running_jobs_alone_and_the_next_one_takes_them_up(own_server, gate):
    job = own_server.start("--", "sh", "-c", f"echo $$; read line < {gate}; exit 5")
    pid = int(own_server.until_output(job, b"\n"))
    done = own_server.down()
    assert "1 running job(s) keep running; the next `swell up` takes them over" in done.stderr
    assert not own_server.is_up
    with ended(pid):
        gate.open()
    own_server.up()
    assert own_server.swell("wait", str(job)).code == 5


def test_stopping_the_server_leaves_no_address_behind(own_server):
    own_server.down()
    assert not own_server.state.server_file.exists()


def test_what_was_said_of_gpus_is_remembered_for_the_next_start(own_server):
    own_server.down()
    assert own_server.swell("up", "-d").code == 0
    own_server.until(own_server.start("--gpus", "4", "--", "true"), "succeeded")
    assert len(own_server.client().nodes()[0]["gpus"]) == 4


def test_a_time_limit_ends_a_job_and_tells_so(server):
    done = server.swell("run", "--time", "1s", "--grace", "1s", "--", "sleep", "600")
    assert done.code == 143
    assert "it ran longer than its time limit of 1 s and was stopped" in done.stderr


# -- what a task sees ----------------------------------------------------------------------------------------------


def test_a_task_runs_in_the_callers_folder_with_its_environment_and_umask(server, tmp_path):
    script = "pwd; echo $COLOUR; umask; : > made; echo $SHADE"
    before = os.umask(0o027)
    try:
        done = server.swell(
            "run", "--env", "SHADE=dark=er", "--", "sh", "-c", script, cwd=tmp_path, env={"COLOUR": "blue"}
        )
    finally:
        os.umask(before)
    assert done.stdout == f"{tmp_path}\nblue\n0027\ndark=er\n"
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o640


def test_another_folder_can_be_named_and_must_exist(server, tmp_path):
    (tmp_path / "there").mkdir()
    assert server.swell("run", "--workdir", "there", "--", "pwd", cwd=tmp_path).stdout == f"{tmp_path}/there\n"
    done = server.swell("run", "--workdir", "nowhere", "--", "pwd", cwd=tmp_path)
    assert done.code == 125
    assert f"the working directory {tmp_path}/nowhere cannot be entered; it must exist on this machine" in done.stderr


def test_bytes_that_are_no_utf8_survive_in_variables_words_and_folders(server, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    odd = os.fsdecode(b"\xff\xfe")
    done = server.swell(
        "run", "--", "sh", "-c", 'printf "%s|%s|%s" "$ODD" "$1" "$PWD"', "sh", odd, cwd=folder, env={"ODD": odd}
    )
    assert done.code == 0, done
    assert done.stdout == f"{odd}|{odd}|{folder}"
    job = server.jobs()[0]["id"]
    for command in ("show", "why", "logs"):
        assert server.swell(command, str(job)).code == 0


def test_a_task_is_told_its_rank_and_count_unless_it_has_several_gpus_to_start_ranks_on(server):
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "JOB_COMPLETION_INDEX",
        "NUM_GPUS",
        "CUDA_VISIBLE_DEVICES",
        "NODE_RANK",
    )
    script = " ".join(f"${{{name}-unset}}" for name in names)
    alone = server.swell("run", "--", "sh", "-c", f'echo "{script}"')
    assert alone.stdout == "0 1 unset 0 0  0\n"
    wide = server.swell("run", "--gpus", "2", "--", "sh", "-c", f'echo "{script}"')
    assert re.fullmatch(r"unset 1 unset 0 2 sim-\d,sim-\d 0\n", wide.stdout)


def test_a_task_reads_nothing_and_has_no_terminal(server):
    done = server.swell("run", "--", "sh", "-c", "cat; tty; true", stdin="secret\n")
    assert done.stdout == "not a tty\n"


def test_a_callers_rank_is_not_taken_for_the_jobs(server):
    done = server.swell("run", "--", "sh", "-c", "echo $RANK $WORLD_SIZE", env={"RANK": "7", "WORLD_SIZE": "9"})
    assert done.stdout == "0 1\n"
    done = server.swell("run", "--gpus", "2", "--", "sh", "-c", "echo ${RANK-unset}", env={"RANK": "7"})
    assert done.stdout == "unset\n"


PYTHON_WAITS = "import os, sys; print('begun'); os.write(1, b'waits\\n'); open(sys.argv[1]).readline()"


@pytest.mark.parametrize(
    ("options", "env", "first"),
    [
        ((), {}, b"begun\nwaits\n"),
        (("--env", "PYTHONUNBUFFERED="), {}, b"waits\n"),
        ((), {"PYTHONUNBUFFERED": ""}, b"waits\n"),
    ],
)
def test_what_python_prints_is_there_while_it_runs_unless_its_user_wants_it_in_blocks(
    server, gate, options, env, first
):
    """It used to come at the end of the job: Python writes to a file in blocks, and a log is a file. Our tests did not
    see it because they set the variable for everything."""
    job = server.start(*options, "--", sys.executable, "-c", PYTHON_WAITS, str(gate), env=env)
    assert server.until_output(job, b"waits\n") == first
    gate.open()
    server.until(job, "succeeded")


def test_a_launcher_whose_python_has_no_torch_says_so_and_what_to_do(server):
    done = server.swell("run", "--name", "lacks", "--gpus", "2", "--torchrun", "--", sys.executable, "train.py")
    assert done.code == 127
    assert f"swell: --torchrun needs the package torch, which {sys.executable} does not have; activate" in done.stdout
    shown = server.swell("show", "lacks").stdout
    assert re.search(r"^command: +\S+python\S* train.py\nlauncher: +torchrun$", shown, re.MULTILINE), shown


def test_run_and_submit_say_that_tasks_with_several_gpus_need_a_launcher(server, tmp_path):
    """Lightning and Trainer left GPUs or data unused, and the job succeeded."""
    said = "each task is one rank, and with 2 GPUs per task Lightning, Trainer and others leave GPUs"
    done = server.swell("run", "--tasks", "2", "--gpus", "2", "--", "true")
    assert (done.code, done.stderr.count(f"swell: {said}")) == (0, 1), done
    (tmp_path / "job.yaml").write_text(
        "{apiVersion: swell/v1, kind: Job, spec: {command: ['true'], tasks: 2, gpus: 2}}\n"
    )
    done = server.swell("submit", "--wait", "job.yaml", cwd=tmp_path)
    assert (done.code, done.stderr.count(f"swell: job.yaml: {said}")) == (0, 1), done
    done = server.swell("run", "--tasks", "2", "--gpus", "1", "--env", "RANK=7", "--", "true")
    assert (said in done.stderr, "swell: --env RANK has no effect: Swell sets RANK for each task" in done.stderr) == (
        False,
        True,
    )


# -- stopping ------------------------------------------------------------------------------------------------------

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:                          # a daemon: own session, no parent, no open files
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"daemon %d\\n" % os.getpid())    # whole: both write at the same time
        os.closerange(0, 256)
        time.sleep(600)
    os._exit(0)
os.wait()
os.write(1, b"task %d\\n" % os.getpid())
time.sleep(600)
"""


def test_what_ignores_sigterm_is_killed_after_the_grace_together_with_what_it_left_behind(server):
    job = server.start("--grace", "1s", "--", "python3", "-c", STUBBORN)
    for name in (b"task ", b"daemon "):
        server.until_output(job, name)
    pids = {name: int(pid) for name, pid in re.findall(r"(task|daemon) (\d+)", _log(server, job))}
    assert set(pids) == {"task", "daemon"}
    done = server.swell("cancel", str(job), "--wait")
    assert done.code == 0
    for pid in pids.values():
        wait_for_end(pid, 10)
    document = server.until(job, "cancelled")
    assert (document["exit_code"], document["reason"]["code"]) == (137, "Cancelled")
    assert not [line for line in server.processes() if f"{pids['daemon']}:" in line]


def _log(server: Server, job: int) -> str:
    return server.swell("logs", str(job)).stdout


def test_a_task_that_ends_well_on_sigterm_has_the_time_to_do_so(server):
    script = "trap 'echo saving; exit 0' TERM; echo up; sleep 600 & wait"
    job = server.start("--", "sh", "-c", script)
    server.until_output(job, b"up")
    server.swell("cancel", str(job), "--wait")
    assert _log(server, job) == "up\nsaving\n"
    assert server.until(job, "cancelled")["reason"]["message"].startswith("cancelled by ")


def test_what_a_task_leaves_behind_when_it_ends_is_ended_too(server):
    job = server.start("--", "sh", "-c", "sleep 600 & echo $!; setsid sleep 600 & echo $!; exit 0")
    server.until(job, "succeeded")
    left_behind = [int(pid) for pid in _log(server, job).split()]
    assert len(left_behind) == 2
    for pid in left_behind:
        wait_for_end(pid, 10)


# -- submit --------------------------------------------------------------------------------------------------------

TWO = """\
apiVersion: swell/v1
kind: Job
metadata: {name: first}
spec: {command: [sh, -c, 'echo $A; exit 0'], env: {A: 3.10}}
---
apiVersion: swell/v1
kind: Job
metadata: {name: second}
spec: {command: [sh, -c, 'exit 6']}
"""


def test_submit_prints_the_id_of_every_job_and_waits_if_told(server, tmp_path):
    (tmp_path / "two.yaml").write_text(TWO)
    done = server.swell("submit", "-f", "two.yaml", "--wait", cwd=tmp_path)
    assert done.code == 6
    first, second = (int(line) for line in done.stdout.splitlines())
    assert [server.client().job(job).name for job in (first, second)] == ["first", "second"]
    assert _log(server, first) == "3.10\n"


def test_submit_reads_standard_input_and_several_files(server, tmp_path):
    (tmp_path / "two.yaml").write_text(TWO)
    done = server.swell("submit", "--wait", "-f", "two.yaml", "-f", "-", stdin=TWO, cwd=tmp_path)
    assert (done.code, len(done.stdout.splitlines())) == (6, 4)


def test_a_dry_run_prints_what_would_be_asked_for_and_submits_nothing(server, tmp_path, nothing_changes):
    (tmp_path / "two.yaml").write_text(TWO)
    done = server.swell("submit", "--dry-run", "-f", "two.yaml", cwd=tmp_path)
    assert done.code == 0
    assert "name: first" in done.stdout
    assert "3.10" not in done.stdout


def test_jobs_are_completed_by_the_shell(server):
    job = server.start("--name", "completed-by-shell", "--", "true")
    env = {"_SWELL_COMPLETE": "bash_complete", "COMP_WORDS": "swell show compl", "COMP_CWORD": "2"}
    assert server.swell(env=env).stdout == "plain,completed-by-shell\n"
    server.until(job, "succeeded")
