"""Containers of a box server's users are theirs: rootless, and no way to anything of others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from box.containers import (
    COMMAND,
    IMAGE,
    WAITS,
    at,
    containers,
    inspect,
    made_box,
    made_gate,
    nothing_is_left,
    podman,
    processes_of,
    shell,
)
from box.machine import PATH, Machine, Person, wait_for
from e2e.containers import OPTIONS, PYTHON
from e2e.training import EXAMPLES
from server import Gate, Result, ended
from swell.machine.library import PACKAGES

pytestmark = pytest.mark.slow
box = pytest.fixture(scope="module")(made_box)


@pytest.fixture
def gate(box: Machine) -> Iterator[Gate]:
    yield from made_gate(box)


def test_its_library_is_a_copy_that_every_user_can_reach(box: Machine) -> None:
    """With the service installed below /root no container of a user's started: `statfs ...: permission denied`."""
    anna = box.people[0]
    job = anna.start(*shell(WAITS))
    box.until_output(job, b"ready")
    mounts = {mount["Destination"]: Path(mount["Source"]) for mount in inspect(box, anna, job)["Mounts"]}
    found = [mounts[f"/swell/sdk/{package}"] for package in PACKAGES]
    assert {path.parents[1] for path in found} == {box.state.library}
    assert anna.run("ls", *map(str, found)).code == 0
    anna.swell("cancel", str(job))
    box.until(job, "cancelled")


# -- a container is its user's ---------------------------------------------------------------------------------------


def test_each_user_is_themselves_in_their_container_and_owns_what_it_makes(box: Machine) -> None:
    for code, person in enumerate(box.people[:2], start=3):
        done = person.swell("run", *shell(f"id -u; id -g; pwd; echo text > made; exit {code}"))
        assert (done.code, done.stdout) == (code, f"{person.uid}\n{person.gid}\n{person.home}\n"), done
        made = (person.home / "made").stat()
        assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (person.uid, person.gid, 0o644)
        nothing_is_left(box, person)


def test_the_doctor_starts_one_as_the_user_who_asks_and_removes_it(box: Machine) -> None:
    anna = box.people[0]
    found = anna.swell("doctor", "-o", "json").json
    [line] = [finding for finding in found if finding["topic"] == "containers"]
    assert (line["level"], " started a container as you in " in line["text"]) == ("ok", True), line
    nothing_is_left(box, anna)


def test_it_sees_nothing_of_the_servers_environment_and_little_of_its_users(box: Machine) -> None:
    done = box.people[0].swell("run", "--env", "MINE=two words", *shell("env"), env={"SECRET": "of the caller"})
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert (found["MINE"], found["PYTHONPATH"], found["RANK"]) == ("two words", "/swell/sdk", "0")
    assert not {"SECRET", "XDG_RUNTIME_DIR", "USER", "SWELL_SOCKET"} & found.keys()


def test_one_that_is_cancelled_may_save_first_and_leaves_nothing(box: Machine) -> None:
    anna = box.people[0]
    job = anna.start(*shell(WAITS))
    box.until_output(job, b"ready")
    assert anna.swell("cancel", str(job)).code == 0
    assert box.until(job, "cancelled")["exit_code"] == 9
    assert b"".join(box.client().logs(job)) == b"ready\nasked\n"
    nothing_is_left(box, anna)


def test_one_that_does_not_listen_is_killed_after_the_grace_and_leaves_nothing(box: Machine) -> None:
    anna = box.people[0]
    job = anna.start("--grace", "1s", *shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
    box.until_output(job, b"ready")
    assert anna.swell("cancel", str(job)).code == 0
    assert box.until(job, "cancelled")["exit_code"] == 137
    nothing_is_left(box, anna)


def test_a_time_limit_ends_it_and_leaves_nothing(box: Machine) -> None:
    ben = box.people[1]
    job = ben.start("--time", "1s", "--image", IMAGE, "--", "sleep", "600")
    document = box.until(job, "failed")
    assert (document["reason"]["code"], document["exit_code"]) == ("TimeLimit", 143)
    nothing_is_left(box, ben)


def test_one_users_containers_come_and_go_beside_each_other(box: Machine, gate: Gate) -> None:
    """What podman shares between them belongs to whichever came first, and may end before the others."""
    anna = box.people[0]
    first = anna.start(*at(gate), *shell(f"echo up; read line < {gate}"))
    box.until_output(first, b"up")
    second = anna.start(*shell(WAITS))
    box.until_output(second, b"ready")
    gate.open()
    box.until(first, "succeeded")
    assert anna.swell("exec", str(second), "--", "id", "-u").stdout == f"{anna.uid}\n"
    assert anna.swell("run", *shell("exit 6")).code == 6
    assert anna.swell("cancel", str(second)).code == 0
    assert box.until(second, "cancelled")["exit_code"] == 9
    nothing_is_left(box, anna)


def test_it_trains_and_reports(box: Machine) -> None:
    anna = box.people[0]
    examples = shutil.copytree(EXAMPLES / "plain", box.root / "examples/plain")  # these may lie where only root can go
    where = ("--image", IMAGE, *PYTHON, "--mount", f"{examples.parent}:/examples:ro")
    job = anna.start("--epochs", "2", *where, "--", "/usr/bin/python3", "/examples/plain/train.py")
    document = box.until(job, "succeeded", "failed")
    assert (document["state"], document["progress"]["epochs_done"]) == ("succeeded", 2), b"".join(
        box.client().logs(job)
    )
    assert {path.stat().st_uid for path in (box.state.checkpoints / str(job)).iterdir()} == {anna.uid}


def test_the_socket_for_reports_is_open_to_users_and_wants_a_jobs_token(box: Machine) -> None:
    ask = """
import http.client, socket, sys
for path in sys.argv[2:]:
    line = http.client.HTTPConnection("any")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(sys.argv[1])
    line.request("GET", path)
    print(line.getresponse().status)
"""
    socket = box.state.sockets / "jobs.sock"
    paths = ("/api/v1/jobs", "/api/v1/health", "/api/v1/attempts/1.1/control")
    done = box.people[0].run("/usr/bin/python3", "-c", ask, str(socket), *paths)
    assert (done.stdout.split(), done.code) == (["403", "403", "401"], 0), done
    assert box.people[0].run("ls", str(socket.parent)).code != 0


# -- and nobody else's -----------------------------------------------------------------------------------------------


def test_nobody_stops_or_enters_somebody_elses(box: Machine) -> None:
    anna, ben, _ = box.people
    job = anna.start(*shell(WAITS))
    box.until_output(job, b"ready")
    pid, folder = inspect(box, anna, job)["State"]["Pid"], str(box.state.runtime_folder(anna.uid))
    place = box.client().place(job)
    name, runtime = place["container"], place["runtime"]
    tries: dict[str, Result] = {
        "exec": ben.swell("exec", str(job), "--", "true"),
        "cancel": ben.swell("cancel", str(job)),
        "signal": ben.run("kill", "-9", str(pid)),
        "its own podman": ben.run(*runtime, "kill", name),
        "her podman": ben.run(*runtime, "kill", name, env={"XDG_RUNTIME_DIR": folder, "HOME": str(anna.home)}),
        "her folder": ben.run("ls", folder),
        "her root": ben.run("ls", f"/proc/{pid}/root/"),
        "her namespaces": ben.run("nsenter", "--target", str(pid), "--all", "true"),
    }
    assert [what for what, done in tries.items() if done.code == 0] == []
    assert box.until(job, "running")["attempts"] == 1
    assert anna.swell("exec", str(job), "--", "id", "-u").stdout == f"{anna.uid}\n"
    assert anna.swell("cancel", "--wait", str(job)).code == 0
    nothing_is_left(box, anna)


def take_ids(box: Machine, person: Person) -> None:
    """Their subordinate ids; what podman left running for itself goes first, or nothing of theirs may change."""
    for pid in box.processes_of(person):
        with ended(pid):
            os.kill(pid, signal.SIGKILL)
    words = []
    for which in ("subuid", "subgid"):
        lines = Path(f"/etc/{which}").read_text().splitlines()
        [entry] = [line for line in lines if line.startswith(f"{person.name}:")]
        _, first, count = entry.split(":")
        words += [f"--del-{which}s", f"{first}-{int(first) + int(count) - 1}"]
    command = ["usermod", *words, person.name]
    wait_for(lambda: subprocess.run(command, check=False).returncode == 0, "the lock of the accounts")


def test_who_has_no_subordinate_ids_is_told_what_the_administrator_must_do(box: Machine) -> None:
    cleo = box.people[2]
    take_ids(box, cleo)
    done = cleo.swell("run", "--name", "idless", *shell("true"))
    [job] = [job for job in cleo.swell("ps", "--all", "-o", "json").json if job["name"] == "idless"]
    message = job["reason"]["message"]
    assert (done.code, job["reason"]["code"]) == (125, "StartFailed")
    assert "keep-id requires additional UIDs or GIDs defined in /etc/subuid and /etc/subgid" in message
    assert "usermod --add-subuids " in message
    assert message.endswith(f" {cleo.name}")
    wait_for(lambda: processes_of(box, cleo) == [], "the end of everything of cleo")


def test_root_does_not_tell_what_there_is_in_folders_that_the_user_may_not_enter(box: Machine) -> None:
    secret = box.root / "secret"
    secret.mkdir(mode=0o700)
    (secret / "there").touch()
    said = []
    for name in ("there", "not-there"):
        done = box.people[0].swell("run", "--mount", f"{secret}/{name}:/data", *shell("true"))
        assert done.code == 125
        said.append(done.stderr.replace(name, "it").splitlines()[-1].partition("failed: ")[2])
    assert said[0] == said[1]
    assert "permission denied" in said[0]


# -- what a user's own programs tell the keeper ----------------------------------------------------------------------

#: what a program of the user's says where only their container's script should
SAID = (
    "garbage",
    "0",
    "/../../../../../../..{root}/made",
    ".workdir/../../../made",
    ".container.exit.0",
    "\\n.lost",
    ".lost\\n",
)


def with_program(box: Machine, person: Person, name: str, script: str) -> dict[str, str]:
    """A PATH on which the user's program of that name comes first."""
    folder = box.root / "home" / person.name / f"bin-{os.urandom(4).hex()}"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    for path in (folder, folder / name):
        os.chown(path, person.uid, person.gid)
    return {"PATH": f"{folder}:{PATH}"}


@pytest.mark.parametrize("said", SAID)
def test_what_the_keeper_is_told_counts_for_ones_own_job_at_most(box: Machine, said: str) -> None:
    """The script asks `id` who the user is; here that is a program of theirs, which also talks to the keeper."""
    anna, worker = box.people[0], box.state.lock_holder("worker")
    text = said.format(root=box.root)
    env = with_program(box, anna, "id", f"printf '{text}' >&5; exec /usr/bin/id \"$@\"")
    job = anna.start(*shell("exit 7"), env=env)
    document = box.until(job, "failed")
    assert (document["exit_code"], document["reason"]["code"]) == (7, "TaskFailed")
    assert not (box.root / "made").exists()
    assert box.state.lock_holder("worker") == worker
    nothing_is_left(box, anna)


HELD = """\
for file in /proc/$$/fd/*; do
  [ ! -w "$file" ] || echo "$(stat -L -c '%u %F' "$file") $(readlink "$file")"
done > ~/held
head -c 100000 /dev/zero >&5
"""


def test_no_file_of_roots_grows_by_what_a_user_writes(box: Machine) -> None:
    """What the user's programs tell the keeper was a file of root's: it filled the disk, and no quota counted it."""
    anna = box.people[0]
    job = anna.start(*shell("exit 7"), env=with_program(box, anna, "id", f'{HELD}exec /usr/bin/id "$@"'))
    assert box.until(job, "failed")["exit_code"] == 7
    held = [line.split(maxsplit=3) for line in (anna.home / "held").read_text().splitlines()]
    on_disk = [line for line in held if line[1] == "regular" and "/memfd:" not in line[-1]]
    assert [line for line in on_disk if line[0] != str(anna.uid)] == []
    assert [line for line in held if "memfd:swell-said" in line[-1]] != []
    sizes = {path.name: path.stat().st_size for path in (box.state.tasks / f"{job}.1").rglob("*") if path.is_file()}
    assert {name for name, size in sizes.items() if size >= 100_000} == set()
    nothing_is_left(box, anna)


def test_a_program_that_a_plain_task_is_prepared_with_says_nothing_to_the_keeper(box: Machine) -> None:
    """Incident: `mkdir` of the user's PATH could make the keeper record a code that is no number, which ended the
    worker, and the next, and the next."""
    anna, worker = box.people[0], box.state.lock_holder("worker")
    env = with_program(box, anna, "mkdir", 'echo garbage >&5; exec /usr/bin/mkdir "$@"')
    job = anna.start("--checkpoints", str(anna.home / "new"), "--", "sh", "-c", "exit 7", env=env)
    assert box.until(job, "failed")["exit_code"] == 7
    assert box.state.lock_holder("worker") == worker


def test_a_task_does_not_seem_to_have_ended_while_what_it_started_lives(box: Machine, gate: Gate) -> None:
    """Its GPUs are somebody else's only when nobody can use them any more: here a container beside the task's own."""
    anna, ben, _ = box.people
    hidden = f"{COMMAND} run --detach --network host {OPTIONS} {IMAGE} sleep 600 > /dev/null 2>&1"
    env = with_program(box, anna, "id", f'{hidden}; kill -9 $PPID; exec /usr/bin/id "$@"')
    job = anna.start("--gpus", "4", *shell("exit 0"), env=env)
    other = ben.start("--gpus", "4", "--", "sh", "-c", f"read line < {gate}")
    assert box.until(job, "failed")["exit_code"] == 137
    box.until(other, "running")
    assert processes_of(box, anna) == []
    gate.open()
    box.until(other, "succeeded")
    wait_for(
        lambda: podman(box, anna, "rm", "--all", "--force", "--time", "0").code == 0 and containers(box, anna) == [],
        "the removal of the hidden one",
    )


def test_a_podman_that_never_answers_holds_up_nobody_else_and_is_ended(box: Machine) -> None:
    """What it starts to map user ids is the user's to replace; every later call hangs there."""
    anna, ben, _ = box.people
    job = anna.start("--grace", "1s", *shell(WAITS), env=with_program(box, anna, "timeout", "exec sleep 600"))
    box.until_output(job, b"ready")
    hang = with_program(box, anna, "newuidmap", "exec sleep 600")
    stuck = anna.start("--grace", "1s", *shell("true"), env={**hang, "XDG_DATA_HOME": str(anna.home / "other")})
    assert ben.swell("run", "--", "true").code == 0
    for one in (stuck, job):
        assert anna.swell("cancel", "--wait", str(one)).code == 0
    nothing_is_left(box, anna)
