"""What podman and docker are told, word for word; and their scripts against a program that only pretends."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from swell.model.job import Container, Mount
from swell.worker import dockerkeeper, tasks
from swell.worker.containers import (
    Outside,
    Runtime,
    client_variables,
    inside_variables,
    needs_socket,
    remove_words,
    render_keeper_command,
    render_run,
    render_user_command,
    render_waiter,
    sources,
)
from swell.worker.dockerlog import first_missing, parse
from swell.worker.runtimes import advice, failure_text, find_runtime, for_users, free_range

PODMAN = Runtime(("/usr/bin/podman", "--runtime", "runc"), ("--ulimit", "nofile=20000:20000"))
DOCKER = Runtime(("/usr/bin/docker",))
PLAIN = Container("docker.io/library/python:3.12")
OUTSIDE = Outside("/home/ann/run", "/state/checkpoints/7", "/state/tasks/7.1/token", packages=("/lib/swell_sdk",))
SAFE = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable")
NAMED = ("--name", "swell-0a1b2c3d-7.1-0", "--label", "swell.attempt=0a1b2c3d4e/7.1")
OURS = (
    *("--volume", "/home/ann/run:/home/ann/run", "--volume", "/state/checkpoints/7:/state/checkpoints/7"),
    *("--volume", "/dev/shm:/dev/shm"),
    *("--volume", "/lib/swell_sdk:/swell/sdk/swell_sdk:ro", "--volume", "/state/tasks/7.1/token:/swell/token:ro"),
)
PODMANS_OWN = ("--log-driver", "passthrough", "--http-proxy=false", "--umask", "0027")
COMMAND = ("python", "train.py", "--lr", "0.1")


def words(
    runtime: Runtime,
    container: Container = PLAIN,
    outside: Outside = OUTSIDE,
    *,
    devices: tuple[str, ...] = (),
    **variables: str,
) -> tuple[str, ...]:
    return render_run(
        runtime,
        container,
        outside,
        COMMAND,
        name="swell-0a1b2c3d-7.1-0",
        label="0a1b2c3d4e/7.1",
        umask=0o027,
        devices=devices,
        variables=variables,
    )


def test_podman_is_told_everything_about_a_plain_job() -> None:
    assert words(PODMAN, RANK="0", SWELL_TOKEN="secret") == (
        *(*NAMED, "--init", *SAFE, *PODMANS_OWN),
        *("--workdir", "/home/ann/run", "--network", "host", *OURS),
        *("--env", "RANK", "--env", "SWELL_TOKEN", "--ulimit", "nofile=20000:20000"),
        *("docker.io/library/python:3.12", *COMMAND),
    )


def test_docker_is_told_the_same_but_for_what_it_does_not_know() -> None:
    assert words(DOCKER, RANK="0", SWELL_TOKEN="secret") == (
        *(*NAMED, "--init", *SAFE),
        *("--workdir", "/home/ann/run", "--network", "host", *OURS),
        *("--env", "RANK", "--env", "SWELL_TOKEN"),
        *("docker.io/library/python:3.12", *COMMAND),
    )


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (PODMAN, ("--device", "nvidia.com/gpu=GPU-1", "--device", "nvidia.com/gpu=GPU-2")),
        (DOCKER, ("--gpus", '"device=GPU-1,GPU-2"')),
    ],
)
def test_gpus_are_given_by_uuid(runtime: Runtime, expected: tuple[str, ...]) -> None:
    without, given = words(runtime), words(runtime, devices=("GPU-1", "GPU-2"))
    start = len(without) - len((*runtime.options, PLAIN.image, *COMMAND))
    assert given == (*without[:start], *expected, *without[start:])
    assert words(runtime, devices=("sim-0",)) == without, "a simulated one is only a variable"


@pytest.mark.parametrize("runtime", [PODMAN, DOCKER])
def test_with_ports_it_has_a_network_of_its_own(runtime: Runtime) -> None:
    given = words(runtime, Container("image", ports=((8888, 80), (6006, 6006))))
    assert "host" not in given[given.index("--workdir") :]
    assert given[given.index("--sysctl") :][:6] == (
        *("--sysctl", "net.ipv4.ip_unprivileged_port_start=0"),
        *("--publish", "8888:80", "--publish", "6006:6006"),
    )


@pytest.mark.parametrize("runtime", [PODMAN, DOCKER])
def test_the_folder_of_the_socket_is_mounted_where_one_is_to_be_used(runtime: Runtime) -> None:
    given = words(runtime, outside=replace(OUTSIDE, sockets="/state/sockets"))
    assert given[given.index("/state/sockets:/swell/run:ro") - 1] == "--volume"
    assert "/swell/run" not in " ".join(words(runtime))


@pytest.mark.parametrize(
    ("container", "variables", "expected"),
    [
        (PLAIN, {}, False),  # a box server's: its port is root's
        (PLAIN, {"SWELL_JOBS_SOCKET": "/state/sockets/jobs.sock"}, True),
        (Container("image", ports=((1, 2),)), {}, True),
    ],
)
def test_a_container_reports_through_the_socket_when_it_is_told_to_or_reaches_no_port(
    container: Container, variables: dict[str, str], expected: bool
) -> None:
    assert needs_socket(variables, container) == expected
    told = inside_variables(variables, container, ()).get("SWELL_JOBS_SOCKET")
    assert told == ("/swell/run/jobs.sock" if expected else None)


def test_what_the_job_mounts_comes_first_and_hides_what_it_covers() -> None:
    container = Container("image", (Mount("/data", "/data", is_read_only=True), Mount("/proj", "/home/ann")))
    assert sources(container, OUTSIDE) == (
        *("/data", "/proj", "/state/checkpoints/7", "/dev/shm", "/lib/swell_sdk", "/state/tasks/7.1/token"),
    )
    assert sources(PLAIN, Outside("/")) == ("/dev/shm",)
    assert sources(PLAIN, Outside("/a", "/a")) == ("/a", "/dev/shm")
    assert sources(PLAIN, Outside("/", hostfile="/state/hostfile")) == ("/dev/shm", "/state/hostfile")


def test_a_runtime_without_an_init_is_not_asked_for_one() -> None:
    assert "--init" not in words(Runtime(("podman",), has_init=False))


def test_what_the_client_itself_goes_by_is_handed_over_by_value() -> None:
    variables = {"PATH": "/opt/bin", "HOME": "/h", "TOKEN": "secret", "LD_LIBRARY_PATH": "/l"}
    given = words(PODMAN, **variables)
    assert [given[n + 1] for n, word in enumerate(given) if word == "--env"] == [
        *("HOME=/h", "LD_LIBRARY_PATH=/l", "PATH=/opt/bin", "TOKEN"),
    ]
    caller = {"PATH": "/usr/bin", "HOME": "/home/ann"}
    assert client_variables(caller, variables) == {**caller, "TOKEN": "secret"}


def test_variables_say_where_things_are_in_the_container() -> None:
    told = {
        "KUBEFLOW_TRAINER_SERVER_TOKEN": "/state/token",
        "PYTHONPATH": "/mine",
        "RANK": "0",
        "SWELL_HOSTFILE": "/state/tasks/7.1/hostfile",
        "SWELL_SDK": "/lib",
    }
    assert inside_variables(told, Container("image", ports=((1, 2),)), ("GPU-1", "GPU-2")) == {
        "KUBEFLOW_TRAINER_SERVER_TOKEN": "/swell/token",
        "PYTHONPATH": "/swell/sdk:/mine",
        "RANK": "0",
        "SWELL_HOSTFILE": "/swell/hostfile",
        "SWELL_SDK": "/swell/sdk",
        "SWELL_JOBS_SOCKET": "/swell/run/jobs.sock",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    }
    assert inside_variables({}, PLAIN, ("sim-0",)) == {"PYTHONPATH": "/swell/sdk", "NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_container_is_removed_at_once_and_without_complaint() -> None:
    assert remove_words(PODMAN) == ("rm", "--force", "--time", "0", "--ignore")
    assert remove_words(DOCKER) == ("rm", "--force")


# -- the scripts, with a program that pretends -----------------------------------------------------------------------

PRETENDER = """\
#!/bin/sh
echo "$*" >> "$PRETEND/calls"
case $1 in
  run) [ "$2" != --cidfile ] || [ ! -e "$PRETEND/state" ] || echo id > "$3"
    echo "output of the container"; exit "$(cat "$PRETEND/run")" ;;
  ps) [ ! -e "$PRETEND/state" ] || cat "$PRETEND/state" ;;
  container) [ -e "$PRETEND/state" ] || exit 1
    case $4 in *Pid*) echo 0 ;; *) cat "$PRETEND/state" ;; esac ;;
  wait) [ -s "$PRETEND/wait" ] || rm "$PRETEND/state"
    cat "$PRETEND/wait" ;;
  logs) echo "later output" ;;
  rm) exit 0 ;;
esac
"""


class Pretended:
    """A runtime of that name whose answers are files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.task = folder / "task"
        self.task.mkdir()
        program = folder / name
        program.write_text(PRETENDER)
        program.chmod(0o755)
        self.runtime = Runtime((str(program),))
        self.env = {"PATH": os.environ["PATH"], "PRETEND": str(folder)}

    def answer(self, **files: str) -> Pretended:
        for name, text in files.items():
            (self.folder / name).write_text(text)
        return self

    def run(self) -> int:
        command = render_keeper_command(self.runtime, str(self.task), "a-name", ("--init", "image", "true"))
        return subprocess.run(command, env=self.env, check=False, capture_output=True).returncode

    def facts(self) -> list[str]:
        """But for docker's own note that there is a container."""
        return sorted(path.name for path in self.task.iterdir() if path.name != dockerkeeper.CREATED)

    def calls(self) -> list[str]:
        return [line.strip() for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture(params=["podman", "docker"])
def pretended(request: pytest.FixtureRequest, tmp_path: Path) -> Pretended:
    return Pretended(tmp_path, request.param)


def test_a_code_is_recorded_before_its_container_is_removed(pretended: Pretended) -> None:
    assert pretended.answer(run="3").run() == 3
    assert pretended.facts() == ["exit.3", "gone"]
    first, last = pretended.calls()
    noted = f"--cidfile {pretended.task}/container " if pretended.runtime.is_docker else ""
    ours = f"{noted}--user {os.getuid()}:{os.getgid()} --init image true"
    assert first.split(" ", 1) in (["run", ours], ["run", f"--userns keep-id {ours}"])
    assert last.startswith("rm --force")


def test_one_that_never_came_up_is_told_apart_from_one_that_failed(pretended: Pretended) -> None:
    assert pretended.answer(run="127").run() == 125
    assert pretended.facts() == ["exit.125", "failed.container", "gone"]


@pytest.mark.parametrize("state", ["created", "initialized"])
def test_one_that_was_made_but_not_begun_never_came_up(pretended: Pretended, state: str) -> None:
    known = "created" if pretended.runtime.is_docker else state  # docker has no word for the other
    assert pretended.answer(run="126", state=known).run() == 125
    assert pretended.facts() == ["exit.125", "failed.container", "gone"]


def test_a_client_that_was_killed_says_nothing_of_its_container(pretended: Pretended) -> None:
    assert pretended.answer(run="137", state="running", wait="8").run() == 8
    assert pretended.facts() == ["exit.8", "gone"]


def test_a_container_may_end_with_a_code_of_the_runtimes_own(pretended: Pretended) -> None:
    assert pretended.answer(run="125", state="exited", wait="125").run() == 125
    assert pretended.facts() == ["exit.125", "gone"]


def test_a_code_that_nobody_can_tell_is_not_made_up(pretended: Pretended) -> None:
    pretended.answer(run="137", state="running", wait="").run()
    assert pretended.facts() == ["failed.lost", "gone"]
    (pretended.task / "log").touch()
    (pretended.task / "exit.125").touch()  # the keeper's word, which knows no better
    (pretended.task / "begun.1.0").touch()
    found = tasks.inspect(pretended.task)
    assert (found.code, found.note) == (None, "lost")


def test_whoever_waits_anew_reads_on_where_the_runtime_keeps_the_log(pretended: Pretended) -> None:
    """What the pretended engine says is no log with stamps, so it is read from the time of the last write."""
    pretended.answer(state="running", wait="5")
    (pretended.task / "log").touch()
    os.utime(pretended.task / "log", (1_700_000_000.25, 1_700_000_000.25))
    script = render_waiter(pretended.runtime)
    pid = tasks.spawn(str(pretended.task), 2, ("a-name",), "/", 0o022, pretended.env, script=script)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert pretended.facts() == ["exit.5", "gone", "log"]
    is_docker = pretended.runtime.is_docker
    assert (pretended.task / "log").read_text() == ("later output\n" if is_docker else "")
    follow = "logs --follow --since 1700000000.250000000 a-name"
    assert (follow in pretended.calls()) == is_docker


AT = 1_700_000_000 * 10**9
SAID = [(AT + number, f"line {number}\n".encode()) for number in range(4)]


@pytest.mark.parametrize(
    ("have", "told", "expected"),
    [
        (b"line 0\nline 1\n", SAID, AT + 2),
        (b"other\n", SAID, AT - 7),  # none of them: the time of the last write it is
        (b"line 0\nline 1\nline 2\nline 3\n", SAID, AT + 4),  # all of them: only what comes
        (b"earlier\nline 0\nli", SAID, AT + 1),  # a line of which a part is there comes again
        (b"same\nsame\n", [(AT, b"same\n"), (AT + 1, b"same\n"), (AT + 2, b"same\n")], AT + 2),
        (b"", [], AT - 7),
        (b'line 0\nline 1\ntime="2026" level=error msg="unexpected EOF"\nKilled\n', SAID, AT + 2),  # its own words
    ],
)
def test_an_engines_log_is_read_from_the_first_line_that_is_not_there(
    have: bytes, told: list[tuple[int, bytes]], expected: int
) -> None:
    """Incident: from the time of the last write on, which the kernel tells late, the last line came twice."""
    assert first_missing(have, told, AT - 7) == expected


def test_what_the_engine_says_beside_its_lines_is_left_out() -> None:
    told = b"2023-11-14T22:13:20.000000003Z with words\nError: no such thing\n2023-11-14T22:13:20.5Z \n"
    assert parse(told) == [(AT + 3, b"with words\n"), (AT + 5 * 10**8, b"\n")]


# -- which runtime, and what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "config", "expected"),
    [
        (("podman", "docker"), {}, ("podman",)),
        (("docker",), {}, ("docker",)),
        ((), {}, None),
        (("podman", "docker"), {"container_command": "docker --context lab"}, ("docker", "--context", "lab")),
        (("docker",), {"container_command": "podman"}, None),
        (("docker", "nerdctl"), {"container_command": "nerdctl"}, None),
    ],
)
def test_podman_goes_before_docker_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], config: dict[str, str], expected: object
) -> None:
    for program in programs:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_runtime(config.get("container_command"), "--ulimit 'a b'")
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (Path(found.command[0]).name, *found.command[1:]) == expected
        assert found.options == ("--ulimit", "a b")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("Trying to pull x...\nError: initializing source x: refused\n", "Error: initializing source x: refused"),
        (
            "docker: Error response from daemon: no such image.\nSee 'docker run --help'.\n",
            "docker: Error response from daemon: no such image.",
        ),
        (
            "docker: Cannot connect to the engine.\n\nRun 'docker run --help' for more information\n",
            "docker: Cannot connect to the engine.",
        ),
        ("something else\n\n", "something else"),
        ("", "the container runtime did not say why"),
    ],
)
def test_what_the_runtime_said_is_quoted(tmp_path: Path, log: str, expected: str) -> None:
    (tmp_path / "log").write_text(log)
    assert failure_text(tmp_path / "log") == expected


# -- for the users of a box server -----------------------------------------------------------------------------------


def test_users_get_podman_without_a_session_and_never_docker() -> None:
    assert for_users(Runtime(("podman",))) == Runtime(("podman", "--cgroup-manager", "cgroupfs"))
    told = Runtime(("podman", "--cgroup-manager", "systemd"))
    assert (for_users(told), for_users(Runtime(("docker",))), for_users(None)) == (told, None, None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Error: keep-id requires additional UIDs or GIDs defined in /etc/subuid", "usermod --add-subuids "),
        ('Error: exec: "newuidmap": executable file not found in $PATH', "apt-get install -y uidmap"),
        ("Error: creating events dirs: mkdir /run/user/1000: permission denied", "loginctl enable-linger ann"),
        ('Error: short-name "nothing" did not resolve', ""),
    ],
)
def test_what_the_administrator_must_do_is_said(said: str, expected: str) -> None:
    told = advice(said, "ann")
    assert (expected in told, told == "") == (True, expected == "")


@pytest.mark.parametrize(
    ("taken", "first"), [("", 100000), ("ann:100000:65536\nben:165536:65536\n", 231072), ("odd\nann:x:1\n", 100000)]
)
def test_a_range_of_ids_is_proposed_that_nobody_has(taken: str, first: int) -> None:
    assert free_range(taken) == first


def test_a_user_has_their_container_run_and_removed_by_one_script(pretended: Pretended) -> None:
    """The keeper records in between; what the script cannot say with its code it says on descriptor 5."""
    command = render_user_command(pretended.answer(run="3").runtime, "a-name", ("--init", "image", "true"))
    said = pretended.task / "said"
    run = ["sh", "-c", '"$@" 5> "$0"', str(said), *command]
    assert subprocess.run(run, env=pretended.env, check=False, capture_output=True).returncode == 3
    assert (said.read_text(), pretended.calls()[-1].split()[0]) == ("", "run")
    subprocess.run(run, env={**pretended.env, "_swell_step": "remove"}, check=True, capture_output=True)
    assert pretended.calls()[-1].startswith("rm --force")
    pretended.answer(run="127")
    assert subprocess.run(run, env=pretended.env, check=False, capture_output=True).returncode == 125
    assert said.read_text() == ".container\n"
