"""What one user's job may take of the machine, and that nobody can say it is somebody else's."""

from __future__ import annotations

import pytest

from box.machine import Machine, wait_for

pytestmark = pytest.mark.slow


def test_a_users_job_over_its_memory_fails_and_is_told_so(box: Machine) -> None:
    anna, *_ = box.people
    job = anna.start("--memory", "64MiB", "--", "/usr/bin/python3", "-c", "bytearray(300 << 20)")
    reason = box.until(job, "failed")["reason"]
    assert (reason["code"], reason["evidence"]["memory_mib"], reason["evidence"]["used_mib"]) == ("OutOfMemory", 64, 64)


def test_a_users_task_is_in_control_groups_of_its_own_that_it_cannot_leave(box: Machine) -> None:
    anna, *_ = box.people
    job = anna.start("--memory", "64MiB", "--", "sh", "-c", "cat /proc/self/cgroup; cat /proc/self/mountinfo | wc -l")
    box.until(job, "succeeded")
    told = box.until_output(job, b"\n").decode()
    inside = [line.split(":", 2)[1] for line in told.splitlines() if line.endswith(f"/{job}.1.0")]
    assert {"memory", "pids", "cpu"} <= set(inside) or "" in inside


def test_a_program_that_a_user_calls_tensorboard_has_the_limits_of_the_job(box: Machine) -> None:
    """It took as much memory as there was, whatever --memory said."""
    anna, *_ = box.people
    program = anna.home / "bin" / "tensorboard"
    script = "#!/bin/sh\necho begun\nexec /usr/bin/python3 -c 'bytearray(300 << 20); print(\"escaped\")'\n"
    program.parent.mkdir(exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)
    job = anna.start(
        *("--memory", "64MiB", "--tensorboard", "runs", "--", "sleep", "60"),
        env={"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin"},
    )
    log = box.state.tasks / f"{job}.1" / "tensorboard" / "log"
    wait_for(lambda: "TaskTrouble" in str(anna.job(job)), "the end of it")
    assert log.read_bytes().startswith(b"begun\n")
    assert b"escaped" not in log.read_bytes()
    box.client().job(job).cancel(grace_s=0)
    box.until(job, "cancelled")


def test_a_manifests_variables_do_not_reach_roots_keeper(box: Machine) -> None:
    """They did: root's keeper carried the marks of another job, and was not known again after a restart."""
    anna, ben, _ = box.people
    words = ("--env", "SWELL_STORE=x", "--env", "SWELL_ATTEMPT=999.1", "--env", "SWELL_TASK_INDEX=" + "9" * 5000)
    job = anna.start(*words, "--", "sh", "-c", 'echo "$SWELL_ATTEMPT"; sleep 60')
    assert box.until_output(job, b"\n") == f"{job}.1\n".encode()
    box.kill_worker()
    other = ben.start("--", "true")
    box.until(other, "succeeded")  # by a worker that has taken up the first
    assert box.until(job, "running")["state"] == "running"
    box.client().job(job).cancel(grace_s=0)
    box.until(job, "cancelled")


def test_a_deleted_jobs_checkpoints_go_however_deep_they_are(box: Machine) -> None:
    """3,000 folders inside one another ended the eraser for everybody."""
    anna, *_ = box.people
    script = (
        "import os; os.chdir(os.environ['SWELL_CHECKPOINTS'])\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    )
    deep = anna.start("--", "/usr/bin/python3", "-c", script)
    flat = anna.start("--", "sh", "-c", 'touch "$SWELL_CHECKPOINTS/model"')
    for job in (deep, flat):
        box.until(job, "succeeded")
        assert anna.swell("delete", str(job)).code == 0
    wait_for(lambda: not [*box.state.checkpoints.glob(".*")], "the end of both folders")
    assert [path.name for path in box.state.checkpoints.iterdir() if path.name in (str(deep), str(flat))] == []
