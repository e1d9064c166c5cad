"""Arrays and gangs as their users meet them: tries, lives, holds and what is shown."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

SMALL = ("--cpus", "0.25")
#: every third index fails the first time it runs
FLAKY = '[ $((JOB_COMPLETION_INDEX%3)) = 0 ] && mkdir "$0/$JOB_COMPLETION_INDEX" && exit 4; exit 0'


def test_failed_tasks_of_an_array_are_tried_again_also_when_the_server_dies_meanwhile(own_server, tmp_path):
    """`swell run --array 0-11%4 --retries 1` made one attempt, and four tasks had failed."""
    server = own_server
    marks = tmp_path / "marks"
    marks.mkdir()
    job = server.start("--array", "0-11%4", *SMALL, "--retries", "1", "--", "sh", "-c", FLAKY, str(marks))
    server.until_true(job, lambda found: found["failures"] > 0)
    server.kill()
    server.up()
    server.until(job, "succeeded")
    found = server.client().show(job)
    assert (len(found["attempts"]), found["failures"], found["tasks"]["succeeded"]) == (2, 4, 12)
    assert [task["index"] for task in found["attempts"][1]["tasks"]] == [0, 3, 6, 9]


def test_an_array_that_failed_goes_on_with_what_has_not_succeeded_when_it_is_requeued(server, tmp_path):
    """`swell requeue` said: submit what is missing as a new job."""
    marks = tmp_path / "marks"
    marks.mkdir()
    job = server.start("--array", "0-5", *SMALL, "--", "sh", "-c", FLAKY, str(marks))
    server.until(job, "failed")
    done = server.swell("requeue", str(job))
    assert (done.code, done.stderr) == (0, f"swell: job {job} (sh) is queued again\n")
    server.until(job, "succeeded")
    assert [task["index"] for task in server.client().show(job)["attempts"][1]["tasks"]] == [0, 3]
    again = server.swell("requeue", str(job))
    assert (again.code, again.stderr) == (
        2,
        f"swell: job {job} has succeeded; submit it again to run it once more\n",
    )


def test_a_cancelled_job_says_that_its_task_was_stopped_not_that_it_failed(server, gate):
    """It showed `1/1 (1 failed)`."""
    job = server.start(*SMALL, "--name", "stopped", "--", "sh", "-c", f"read line < {gate}")
    server.until(job, "running")
    server.swell("cancel", str(job))
    server.until(job, "cancelled")
    [row] = [line.split() for line in server.swell("ps").stdout.splitlines() if " stopped " in f" {line} "]
    assert row[5:8] == ["0/1", "(1", "stopped)"]
    assert "0 succeeded, 0 failed, 1 stopped by Swell, 0 running of 1" in server.swell("show", str(job)).stdout


def test_a_running_array_is_held_and_released(server, gate):
    """`swell hold` named another command, which was refused as well."""
    job = server.start("--array", "0-3%1", *SMALL, "--", "sh", "-c", f"read line < {gate}")
    server.until(job, "running")
    done = server.swell("hold", str(job))
    words = "is held: it starts no more tasks until you release it; running tasks finish"
    assert (done.code, done.stderr) == (0, f"swell: job {job} (sh) {words}\n")
    gate.open()
    assert server.until(job, "held")["tasks"]["succeeded"] == 1
    server.swell("release", str(job))
    for _ in range(3):
        gate.open()
    assert server.until(job, "succeeded")["tasks"]["succeeded"] == 4


# -- whose output ----------------------------------------------------------------------------------------------


def test_the_first_ranks_output_is_said_to_be_that_and_all_can_be_asked_for(server):
    """`logs` of a gang of three printed rank 0 alone, without a word."""
    job = server.start("--tasks", "3", *SMALL, "--", "sh", "-c", "echo rank $RANK; echo more")
    server.until(job, "succeeded")
    first = server.swell("logs", str(job))
    assert (first.code, first.stdout) == (0, "rank 0\nmore\n")
    assert first.stderr == (
        f"swell: job {job} has 3 tasks; this is the output of rank 0; "
        f"another: swell logs --rank R {job}; all: swell logs --all {job}\n"
    )
    assert server.swell("logs", "--rank", "0", str(job)).stderr == ""
    expected = "".join(f"{rank}| rank {rank}\n{rank}| more\n" for rank in range(3))
    assert server.swell("logs", "--all", str(job)).stdout == expected
    followed = server.swell("logs", "--all", "-f", str(job))
    assert (followed.code, sorted(followed.stdout.splitlines())) == (0, sorted(expected.splitlines()))
    both = server.swell("logs", "--all", "--rank", "1", str(job))
    assert (both.code, both.stderr) == (2, "swell: --rank and --all name different tasks; use only one of them\n")


def test_the_output_of_the_task_that_failed_can_be_asked_for(server):
    job = server.start(
        "--array", "0-4", *SMALL, "--", "sh", "-c", "echo $JOB_COMPLETION_INDEX; exit $((JOB_COMPLETION_INDEX == 3))"
    )
    well = server.start(*SMALL, "--", "true")
    server.until(job, "failed")
    server.until(well, "succeeded")
    done = server.swell("logs", "--failed", str(job))
    assert (done.code, done.stdout, done.stderr) == (
        0,
        "3\n",
        f"swell: task 3 of job {job} has failed; this is its output\n",
    )
    none = server.swell("logs", "--failed", str(well))
    assert (none.code, none.stderr) == (2, f"swell: no task of job {well} has failed; leave out --failed\n")


def test_an_arrays_output_is_followed_from_task_to_task_until_it_has_ended(server, gate):
    """`logs -f` returned after task 0 while the array still ran."""
    script = f"echo begins $JOB_COMPLETION_INDEX; read line < {gate}"
    job = server.start("--array", "0-2%1", *SMALL, "--", "sh", "-c", script)
    server.until_output(job, b"begins 0\n")
    follower = server.spawn("logs", "-f", str(job))
    assert follower.stdout is not None
    for index in range(3):
        assert follower.stdout.readline() == b"begins %d\n" % index
        gate.open()
    out, said = follower.communicate(timeout=30)
    assert (follower.returncode, out) == (0, b"")
    assert said.decode().splitlines()[1:] == [f"swell: this is the output of task {index}" for index in (1, 2)]
    assert server.client().job(job).state == "succeeded"


def test_an_array_in_the_foreground_says_where_its_output_is_and_how_it_went(server):
    done = server.swell("run", "--array", "0-3", *SMALL, "--", "sh", "-c", "exit $((JOB_COMPLETION_INDEX == 2))")
    said = done.stderr.splitlines()
    assert (done.code, said[-2].partition(": ")[2]) == (1, "4 of 4 tasks done, 0 running, 1 failed")
    assert any("has 4 tasks; to see one: swell logs --rank I " in line for line in said)
