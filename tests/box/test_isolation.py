"""Three Unix users on one box server: tasks are their submitter's, and nobody reaches anybody else's."""

from __future__ import annotations

import grp
import json
import os
import socket
import stat
from pathlib import Path

import pytest

from box.machine import PATH, SHARED_GROUP, SYSTEM_PYTHON, wait_for

pytestmark = pytest.mark.slow

#: read by nobody but who submitted it; what must never be seen by others
SECRET = "correct-horse-battery"
V2 = Path("/sys/fs/cgroup/unified")
WAITS = "echo ready; while :; do sleep 1; done"


@pytest.fixture(scope="module")
def people(box):
    return box.people


@pytest.fixture(scope="module")
def annas(box, people) -> int:
    """A job of anna's that runs, with a secret in its environment."""
    anna = people[0]
    job = anna.start("--name", "annas", "--", "sh", "-c", WAITS, env={"SECRET": SECRET})
    box.until_output(job, b"ready")
    return job


def test_a_task_has_its_submitters_ids_groups_umask_and_folder(box, people):
    anna = people[0]
    (anna.home / "work").mkdir()
    os.chown(anna.home / "work", anna.uid, anna.gid)
    script = "id -u; id -g; id -G; umask; pwd; id -un"
    done = anna.swell("run", "--workdir", str(anna.home / "work"), "--", "sh", "-c", script, umask=0o027)
    assert done.code == 0, done
    uid, gid, groups, umask, folder, name = done.stdout.splitlines()
    lab = grp.getgrnam(SHARED_GROUP).gr_gid
    assert (int(uid), int(gid), {*map(int, groups.split())}) == (anna.uid, anna.gid, {anna.gid, lab})
    assert (umask, folder, name) == ("0027", str(anna.home / "work"), anna.name)


def test_a_task_has_the_submitted_environment_and_nothing_of_the_servers(box, people):
    anna = people[0]
    odd = {"QUOTED": 'it\'s "so"\n$HOME `id`', "EMPTY": "", "LD_PRELOAD": "/nowhere/evil.so"}
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    done = anna.swell("run", "--", SYSTEM_PYTHON, "-c", script, env={**odd, "SECRET": SECRET})
    assert done.code == 0, done
    found = json.loads(done.stdout.splitlines()[-1])
    given = anna.environment(**odd, SECRET=SECRET)
    assert {name: found.get(name) for name in given} == given
    allowed = ("SWELL_", "KUBEFLOW_TRAINER_", "JOB_", "NUM_", "NODE", "MASTER_", "LOCAL_", "PL_TORCH_")
    ours = {
        "RANK",
        "WORLD_SIZE",
        "TF_CONFIG",
        "CUDA_VISIBLE_DEVICES",
        "EPOCHS_DONE",
        "HEARTBEAT_FREQ",
        "PYTHONUNBUFFERED",
    }
    others = {name for name in found if not name.startswith(allowed)} - given.keys() - ours
    assert others <= {"PWD", "OLDPWD", "LC_CTYPE"}
    token = box.state.token.read_text().strip()
    assert token not in json.dumps(found)


def test_a_task_has_no_rights_and_no_open_files_of_ours(people):
    script = "grep Cap /proc/self/status; ls /proc/self/fd | wc -l; echo again >> /dev/stderr"
    done = people[0].swell("run", "--", "sh", "-c", script)
    lines = done.stdout.splitlines()
    assert {line.split()[1] for line in lines[:3]} == {"0" * 16}, "inherited, permitted, effective"
    assert lines[-1] == "again"  # the log is its own to open again


def test_others_are_told_that_there_is_no_such_job(people, annas):
    ben = people[1]
    for words in (
        ["show", str(annas)],
        ["why", str(annas)],
        ["logs", str(annas)],
        ["events", str(annas)],
        ["cancel", str(annas)],
        ["delete", str(annas)],
        ["hold", str(annas)],
        ["release", str(annas)],
        ["requeue", "--now", str(annas)],
        ["scale", str(annas), "1"],
        ["wait", "--timeout", "1s", str(annas)],
        ["run", "--after", str(annas), "--", "true"],
        ["show", "annas"],
        ["cancel", "annas"],
    ):
        done = ben.swell(*words)
        assert (done.code in (2, 125), "there is no job" in done.stderr, done.stdout) == (True, True, ""), (words, done)


def test_a_command_runs_beside_ones_own_task_and_nobody_elses(people, annas):
    anna, ben, _ = people
    done = anna.swell("exec", str(annas), "--", "sh", "-c", "id -un; echo $SWELL_JOB_NAME; pwd")
    assert (done.code, done.stdout) == (0, f"{anna.name}\nannas\n{anna.home}\n"), done
    done = ben.swell("exec", str(annas), "--", "true")
    assert (done.code, "there is no job" in done.stderr) == (125, True), done


def test_the_queue_is_for_all_to_see(people, annas):
    ben = people[1]
    assert annas not in [job["id"] for job in ben.swell("ps", "-o", "json").json]
    assert "annas" not in ben.swell("ps").stdout
    for which in (["--all-users"], ["-u", people[0].name]):
        [row] = [job for job in ben.swell("ps", *which, "-o", "json").json if job["id"] == annas]
        assert (row["name"], row["user"], row["state"]) == ("annas", people[0].name, "running")
    assert people[0].name in ben.swell("ps", "--all-users").stdout
    assert SECRET not in ben.swell("ps", "--all-users", "-o", "json").stdout


def told(pid: int, name: str) -> str:
    """What the kernel says of a process; nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_others_cannot_signal_a_task_or_its_keeper_or_see_its_environment(box, people, annas):
    anna, ben, _ = people
    # What a test before this one ran beside the task may end at any moment; the task and its keeper do not.
    pids = [pid for pid in box.processes_of(anna) if told(pid, "stat")]
    keepers = {int(stat.rpartition(")")[2].split()[1]) for pid in pids if (stat := told(pid, "stat"))} - {*pids}
    assert pids
    for pid in [*pids, *keepers]:
        assert ben.run("kill", "-0", str(pid)).code != 0
        assert ben.run("cat", f"/proc/{pid}/environ").code != 0
        assert ben.run("ls", f"/proc/{pid}/fd").code != 0
    lines = [line for pid in [*pids, *keepers] if (line := told(pid, "cmdline"))]
    assert len(lines) >= 2
    assert not any(SECRET in line for line in lines)
    for keeper in keepers:  # not even one's own: it records the end
        assert anna.run("kill", "-9", str(keeper)).code != 0


def test_nobody_but_root_gets_at_tokens_logs_database_or_others_checkpoints(box, people, annas):
    anna, ben, _ = people
    state = box.state.root
    for path in (state / "token", state / "worker-token", state / "job-secret", state / "swell.db", state / "tasks"):
        for person in (anna, ben):
            assert person.run("ls" if path.is_dir() else "cat", str(path)).code != 0
    log = state / "tasks" / f"{annas}.1" / "0" / "log"
    assert log.exists()
    own = state / "checkpoints" / str(annas)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert own.stat().st_uid == anna.uid
    assert [anna.run("cat", str(log)).code != 0, ben.run("cat", str(log)).code != 0] == [True, True]
    assert [anna.run("ls", str(own)).code, ben.run("ls", str(own)).code != 0] == [0, True]
    token = state / "tokens" / f"{annas}.1"
    assert [anna.run("cat", str(token)).code, ben.run("cat", str(token)).code != 0] == [0, True]
    for folder in ("", "checkpoints", "tokens"):
        assert ben.run("ls", str(state / folder)).code != 0
        assert ben.run("touch", str(state / folder / "mine")).code != 0


def test_nobody_gets_to_be_somebody_else_over_the_socket_or_tcp(box, people, annas):
    """What a client says of itself counts nothing; what the kernel says does."""
    ben = people[1]
    headers = {
        "X-Forwarded-User": "root",
        "X-Forwarded-For": "pid 1 uid 0",
        "X-Swell-Uid": "0",
        "Authorization": "Bearer guessed",
    }
    script = (
        "import http.client, json, sys\nfrom pathlib import Path\nfrom swell.machine.sockets import UnixConnection\n"
        "where, path, headers = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])\n"
        "c = UnixConnection(Path(where), timeout=9) if where.startswith('/') else http.client.HTTPConnection(where)\n"
        "c.request('GET', path, headers=headers); print(c.getresponse().status)"
    )
    tcp = ":".join(map(str, box.address))
    for where, expected in ((str(box.socket), "404"), (tcp, "401")):
        asked = ben.run(SYSTEM_PYTHON, "-c", script, where, f"/api/v1/jobs/{annas}", json.dumps(headers))
        assert asked.stdout.strip() == expected, asked
    token = people[0].run("cat", str(box.state.tokens / f"{annas}.1")).stdout
    stolen = {"Authorization": f"Bearer {token}"}
    asked = ben.run(SYSTEM_PYTHON, "-c", script, tcp, f"/api/v1/jobs/{annas}", json.dumps(stolen))
    assert asked.stdout.strip() == "403", "a job's token reports on its attempt and opens nothing else"


def test_stopping_the_server_is_for_administrators(people):
    anna, _, cleo = people
    done = anna.swell("down")
    assert done.code == 2
    assert done.stderr == (f"swell: only an administrator of this machine may stop the server; you are {anna.name!r}\n")
    assert cleo.swell("ps", "--all-users").code == 0


def test_an_administrator_sees_and_ends_everybodys_jobs(box, people):
    anna, _, cleo = people
    job = anna.start("--", "sh", "-c", WAITS)
    box.until_output(job, b"ready")
    assert cleo.job(job)["user"] == anna.name
    assert cleo.swell("cancel", "--all").code == 2
    assert cleo.swell("cancel", "--wait", str(job)).code == 0
    by = [event for event in anna.job(job)["events"] if event["kind"] == "CancelRequested"]
    assert [(event["actor"], event["origin"].startswith("pid ")) for event in by] == [(cleo.name, True)]


def test_nobody_starts_a_server_of_their_own_beside_it(box, people):
    done = people[0].swell("up", "-d")
    assert done.code == 2
    assert done.stderr == (
        f"swell: a box server already serves all users of this machine ({box.socket}); use it (`swell run`, "
        "`swell ps`), or name a state folder with --state for a private server\n"
    )


def test_who_finds_no_server_is_told_whom_to_ask(people):
    with socket.socket(socket.AF_UNIX) as closed:
        place = str(people[0].home / "s")
        closed.bind(place)
        os.chown(place, people[0].uid, people[0].gid)
    done = people[0].swell("run", "--", "true", env={"SWELL_SOCKET": place})
    assert (done.code, done.stderr) == (
        125,
        (
            f"swell: the box server of this machine ({place}) does not answer; "
            "ask your administrator: systemctl status swell\n"
        ),
    )


# -- what a hostile user may try ---------------------------------------------------------------------------------------


def test_a_folder_that_the_user_may_not_enter_is_not_entered(box, people):
    anna, ben, _ = people
    manifest = {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["ls"], "workdir": str(anna.home)}}
    job = ben.swell("submit", "-f", "-", stdin=json.dumps(manifest).encode()).id
    assert box.until(job, "failed")["reason"]["message"].endswith("cannot be entered; it must exist on this machine")


def test_folders_for_checkpoints_are_made_by_the_user_and_nowhere_else(box, people):
    ben = people[1]
    place = box.root / "roots-own"
    place.mkdir(mode=0o755)
    job = ben.start("--checkpoints", str(place / "inside"), "--", "sh", "-c", "ls -d $SWELL_CHECKPOINTS")
    box.until(job, "failed")
    assert list(place.iterdir()) == []
    mine = ben.home / "made" / "deep"
    assert ben.swell("run", "--checkpoints", str(mine), "--", "true").code == 0
    assert mine.stat().st_uid == ben.uid


def test_nobody_is_given_the_folder_of_somebody_elses_job(box, people, annas):
    """Named as one's own folder for checkpoints, it stays whose it is; so does that of a job yet to come."""
    anna, ben, _ = people
    folder = box.state.checkpoints / str(annas)
    for place in (folder, box.state.checkpoints / "999999"):
        ben.swell("run", "--checkpoints", str(place), "--", "true")
    assert folder.stat().st_uid == anna.uid
    assert not (box.state.checkpoints / "999999").exists()


def test_a_program_of_the_users_that_is_run_on_the_way_tells_the_keeper_nothing(box, people):
    """mkdir, found on the user's PATH, has the descriptor that says that the folder cannot be entered."""
    ben = people[1]
    program = ben.home / "path" / "mkdir"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho /../../../../../../../../tmp/owned >&5\n")
    program.chmod(0o755)
    path = f"{program.parent}:{PATH}"
    job = ben.start("--checkpoints", str(ben.home / "none"), "--", "sh", "-c", "exit 3", env={"PATH": path})
    assert box.until(job, "failed")["exit_code"] == 3
    facts = {file.name for file in (box.state.tasks / f"{job}.1" / "0").glob("exit.*")}
    assert facts == {"exit.3"}
    assert not Path("/tmp/owned").exists()


#: always forking and ending: whoever looks for it and signals what was found comes too late
HOPPER = """
import os, time
if os.fork():
    time.sleep(1000)
os.setsid()
print("hopping", flush=True)
while True:
    if os.fork():
        os._exit(0)
"""


def test_a_process_that_is_never_where_it_was_seen_is_ended(box, people):
    mounted = [folder for folder in (V2, V2.parent) if (folder / "cgroup.procs").exists()]
    assert mounted, f"this needs control groups, version 2, which are not mounted: mount -t cgroup2 cgroup2 {V2.parent}"
    ben = people[1]
    job = ben.start("--grace", "1s", "--", SYSTEM_PYTHON, "-c", HOPPER)
    box.until_output(job, b"hopping")
    assert ben.swell("cancel", "--wait", str(job)).code == 0
    wait_for(lambda: box.processes_of(ben) == [], "its end")


def test_a_notice_is_run_as_the_user_with_nothing_of_the_servers(box, people):
    ben = people[1]
    told = ben.home / "told"
    script = f"id -un > {told}; env >> {told}; touch {box.state.root}/roots"
    job = ben.start("--notify", f"sh -c '{script}'", "--", "true")
    box.until(job, "succeeded")
    wait_for(lambda: told.exists() and f"SWELL_JOB_ID={job}" in told.read_text(), "the notice")
    said = told.read_text().splitlines()
    assert said[0] == ben.name
    assert {line.partition("=")[0] for line in said[1:]} <= {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD"} | {
        f"SWELL_{name}" for name in ("JOB_ID", "NAME", "USER", "JOB_STATE", "EXIT_CODE", "REASON", "ENDED_AT")
    } | {"OLDPWD", "SWELL_SOCKET", "SWELL_STORE", "SWELL_NOTICE"}
    assert not (box.state.root / "roots").exists()


def test_tensorboard_is_run_as_the_user_and_ends_with_the_job_also_when_it_hides(box, people):
    ben = people[1]
    program = ben.home / "bin" / "tensorboard"
    program.parent.mkdir(exist_ok=True)
    seen = ben.home / "board"
    program.write_text(f"#!/bin/sh\nid -un > {seen}\nexec env -i setsid {ben.home}/bin/hidden\n")
    (ben.home / "bin" / "hidden").write_text(f"#!/bin/sh\necho $$ >> {seen}\nwhile :; do /bin/sleep 1; done\n")
    for file in program.parent.iterdir():
        file.chmod(0o755)
    job = ben.start(
        "--tensorboard", "runs", "--grace", "1s", "--", "sh", "-c", WAITS, env={"PATH": f"{program.parent}:{PATH}"}
    )
    wait_for(lambda: seen.exists() and len(seen.read_text().split()) == 2, "TensorBoard")
    name, pid = seen.read_text().split()
    assert name == ben.name
    assert ben.swell("cancel", "--wait", str(job)).code == 0
    assert int(pid) not in box.processes()


def test_a_task_that_leaves_its_session_and_scrubs_its_environment_is_stopped_all_the_same(box, people):
    ben = people[1]
    hidden = (
        "exec env -i setsid sh -c 'trap \"\" TERM HUP; echo hidden $$; exec >/dev/null 2>&1; while :; do sleep 1; done'"
    )
    job = ben.start("--grace", "1s", "--", "sh", "-c", f"({hidden}) & wait")
    pid = int(box.until_output(job, b"hidden ").split()[1])
    assert pid in box.processes()
    assert ben.swell("cancel", "--wait", str(job)).code == 0
    assert box.processes_of(ben) == []


def test_what_a_task_leaves_hidden_ends_with_it(box, people):
    ben = people[1]
    hidden = "env -i setsid sh -c 'exec >/dev/null 2>&1; while :; do sleep 1; done'"
    assert ben.swell("run", "--", "sh", "-c", f"{hidden} & exit 0").code == 0
    wait_for(lambda: box.processes_of(ben) == [], "the end of what was left")


def test_letting_go_of_the_logs_lock_does_not_make_a_task_seem_to_have_ended(box, people):
    """The worker that comes next must find it alive, and learn its code."""
    anna = people[0]
    gate = anna.home / "gate"
    os.mkfifo(gate)
    os.chown(gate, anna.uid, anna.gid)
    script = (
        f"import fcntl; fcntl.flock(1, fcntl.LOCK_UN); print('unlocked', flush=True); open('{gate}').read(); exit(5)"
    )
    job = anna.start("--", SYSTEM_PYTHON, "-c", script)
    box.until_output(job, b"unlocked")
    box.kill_worker()
    wait_for(lambda: bool(box.state.lock_holder("worker")), "the next worker")
    assert box.until(job, "running")["attempts"] == 1
    gate.write_text("go")
    assert box.until(job, "failed")["exit_code"] == 5


def test_marks_of_somebody_else_in_ones_environment_do_not_hold_their_job_up(box, people):
    anna, ben, _ = people
    job = anna.start("--", "sh", "-c", "echo ready; sleep 1")
    box.until_output(job, b"ready")
    store = box.client().server()["store"]
    forged = {"SWELL_STORE": store, "SWELL_ATTEMPT": f"{job}.1", "SWELL_TASK_INDEX": "0"}
    other = ben.run("sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!", env=forged)
    box.until(job, "succeeded")
    assert int(other.stdout) in box.processes(), "it is not ours to end"
    os.kill(int(other.stdout), 9)


def test_a_job_whose_user_is_gone_is_not_started_as_anybody(box):
    with box.passer_by() as dora:
        first = dora.start("--gpus", "4", "--", "sh", "-c", WAITS)
        box.until_output(first, b"ready")
        second = dora.start("--gpus", "4", "--", "id")
    box.client().cancel(first, grace_s=1)
    reason = box.until(second, "failed")["reason"]
    assert (reason["code"], f"the user {dora.name} (uid {dora.uid}), who submitted it" in reason["message"]) == (
        "StartFailed",
        True,
    )
