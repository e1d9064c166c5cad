"""A job in a container is a job: its output, code, end, training and life after a crash are those of a process."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from server import PATIENCE_S, Gate, ended
from swell_sdk.wire import UnixConnection

from .containers import PYTHON, BareServer, ContainerRuntime, ContainerServer, free_port, outside
from .training import EXAMPLES, read_story

pytestmark = pytest.mark.slow

TRAIN = ("/usr/bin/python3", "/examples/plain/train.py")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, runtime: ContainerRuntime) -> Iterator[ContainerServer]:
    """One for all tests that leave it as they found it."""
    with ContainerServer(tmp_path_factory.mktemp("containers"), runtime) as shared:
        yield shared
        assert shared.left() == []


@pytest.fixture(scope="module")
def killed_box(tmp_path_factory: pytest.TempPathFactory, runtime: ContainerRuntime) -> Iterator[ContainerServer]:
    with ContainerServer(tmp_path_factory.mktemp("killed"), runtime) as shared:
        yield shared


@pytest.fixture
def own_box(killed_box: ContainerServer) -> Iterator[ContainerServer]:
    """For tests that kill it; each finds it up, and nothing of the one before."""
    if not killed_box.is_up:
        killed_box.up()
    yield killed_box
    left = killed_box.left()
    killed_box.cancel_all()
    assert left == []


def test_its_output_and_its_exit_code_arrive_and_nothing_stays(box: ContainerServer) -> None:
    done = box.swell("run", *box.shell("echo out; echo err >&2; exit 42"))
    order = sorted if box.runtime.is_docker else list  # docker leads the two through pipes of their own
    assert (done.code, order(done.stdout.splitlines())) == (42, order(["out", "err"]))
    assert box.left() == []


def test_over_its_memory_it_is_killed(box: ContainerServer) -> None:
    """A line of endless zeros. Whether the reason is known as well depends on the runtime: docs/flaws.md."""
    job = box.start("--memory", "64MiB", *box.shell("sort /dev/zero"))
    reason = box.until(job, "failed")["reason"]
    assert reason["code"] in ("OutOfMemory", "TaskFailed")
    assert reason["evidence"]["exit_code"] == 137


def test_it_sees_the_jobs_own_variables_and_ours_but_nothing_of_the_callers(box: ContainerServer) -> None:
    words = ("--name", "seen", "--gpus", "1", "--env", "MINE=two words", "--env", "HOME=/opt/home", *box.shell("env"))
    done = box.swell("run", *words, env={"SECRET": "of the caller", "LD_PRELOAD": ""})
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert (found["MINE"], found["HOME"], found["RANK"], found["WORLD_SIZE"]) == ("two words", "/opt/home", "0", "1")
    assert (found["CUDA_VISIBLE_DEVICES"][:4], found["NVIDIA_VISIBLE_DEVICES"]) == ("sim-", "void")
    assert (found["SWELL_JOB_NAME"], found["PYTHONPATH"]) == ("seen", "/swell/sdk")
    assert found["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert found["PYTHONUNBUFFERED"] == "1"
    assert not {"SECRET", "LD_PRELOAD", "SWELL_STATE", "USER"} & found.keys()


def test_no_value_of_a_variable_stands_in_a_command_line(box: ContainerServer, gate: Gate) -> None:
    """Everybody on the machine can read those."""
    script = f"echo begun; read line < {gate}"
    job = box.start(
        "--env", "PASSWORD=hunter2", "--mount", f"{gate.path.parent}:{gate.path.parent}", *box.shell(script)
    )
    box.until_output(job, b"begun")
    lines = " ".join(box.processes())
    assert "--env PASSWORD" in lines
    assert "hunter2" not in lines
    gate.open()
    box.until(job, "succeeded")


def test_a_job_file_of_both_engines_has_its_secrets_and_volumes_here(
    box: ContainerServer, tmp_path: Path, gate: Gate
) -> None:
    """The secret's value is in no command line, and in nothing that is shown of the job."""
    (tmp_path / "in").write_text("given\n")
    script = f'cat /data/in; echo "$HF_TOKEN"; touch /data/no 2>/dev/null || echo read-only; read line < {gate}'
    spec = {
        "command": [*box.shell(script)][-3:],
        "image": box.runtime.image,
        "secrets": [{"name": "HF_TOKEN", "secret": "hub", "key": "token"}],
        "volumes": [{"claim": "data", "folder": str(tmp_path), "path": "/data", "readOnly": True}],
        "mounts": [f"{gate.path.parent}:{gate.path.parent}"],
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "swell/v1", "kind": "Job", "spec": spec}))
    done = box.swell("submit", str(file), env={"HF_TOKEN": "hunter3"})
    assert done.code == 0, done
    job = int(done.stdout)
    box.until_output(job, b"read-only")
    assert "hunter3" not in " ".join(box.processes())
    assert "hunter3" not in box.swell("show", str(job), "-o", "yaml").stdout
    gate.open()
    box.until(job, "succeeded")
    assert box.swell("logs", str(job)).stdout == "given\nhunter3\nread-only\n"


def test_it_runs_in_the_jobs_folder_and_sees_what_is_mounted(box: ContainerServer, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/in").write_text("given\n")
    (tmp_path / "own").mkdir()
    mounts = ("--mount", f"{tmp_path}/data:/data:ro", "--mount", f"{tmp_path}:/all")
    script = "pwd; cat /data/in; echo made > here; cat /all/own/here; touch /data/no 2>/dev/null || exit 7; id -u"
    done = box.swell("run", "--workdir", str(tmp_path / "own"), *mounts, *box.shell(script))
    assert (done.code, done.stdout.splitlines()) == (7, [str(tmp_path / "own"), "given", "made"])
    made = (tmp_path / "own/here").stat()
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (os.getuid(), os.getgid(), 0o644)


def test_a_job_file_says_how_large_its_shared_memory_is(box: ContainerServer, tmp_path: Path) -> None:
    """And how many CPUs it may use at most, which the runtime is told."""
    command = [*box.shell("cat /proc/mounts")][-3:]
    spec = {"command": command, "image": box.runtime.image, "shm": "96MiB", "cpuLimit": "1.5"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "swell/v1", "kind": "Job", "spec": spec}))
    done = box.swell("submit", "--wait", str(file))
    assert done.code == 0, done
    [mount] = [line for line in box.swell("logs", done.stdout.split()[0]).stdout.splitlines() if " /dev/shm " in line]
    assert f"size={96 * 1024}k" in mount


def test_a_folder_that_a_mount_covers_is_the_one_in_the_container(box: ContainerServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mounted")
    words = ("--workdir", "/app/there", "--mount", f"{tmp_path}:/app/there", *box.shell("pwd; cat file"))
    assert box.swell("run", *words).stdout == "/app/there\nmounted"


def test_what_was_asked_and_what_runs_it_can_be_seen(box: ContainerServer, tmp_path: Path) -> None:
    job = box.start(
        "--mount", f"{tmp_path}:/data:ro", "--port", f"{free_port()}:80", "--image", box.runtime.image, "--", "true"
    )
    shown = box.swell("show", str(job)).stdout.splitlines()
    assert {f"image:      {box.runtime.image}", f"mounts:     {tmp_path}:/data:ro"} <= set(shown)
    assert any(line.startswith("ports:      ") and line.endswith(":80") for line in shown)
    assert box.client().show(job)["spec"]["container"]["mounts"] == [
        {"source": str(tmp_path), "target": "/data", "is_read_only": True}
    ]
    program = "docker" if box.runtime.is_docker else "podman"  # a worker's report names no more than that
    [line] = [line for line in box.swell("nodes", "-o", "wide").stdout.splitlines() if " ready " in line]
    assert f" {program} " in f"{line} "
    box.until(job, "succeeded")


def test_it_has_no_right_beyond_its_users(box: ContainerServer, gate: Gate) -> None:
    where = ("--mount", f"{gate.path.parent}:{gate.path.parent}")
    job = box.start(*where, *box.shell(f"echo begun; read line < {gate}"))
    box.until_output(job, b"begun")
    status = Path(f"/proc/{box.inspect(job)['State']['Pid']}/status").read_text()
    gate.open()
    rights = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("Cap", "NoNew"))}
    assert set(rights.values()) == {"0" * 16, "1"}
    assert rights["NoNewPrivs"] == "1"
    box.until(job, "succeeded")


MEET = """
import os, socket
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    line, _ = socket.create_server(place).accept()
    print(line.makefile().read(), flush=True)
else:
    with socket.socket() as line:
        while line.connect_ex(place):
            pass
        line.sendall(f"from rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}".encode())
"""


def test_a_gang_of_two_containers_meets_on_loopback(box: ContainerServer) -> None:
    done = box.swell("run", "--tasks", "2", "--image", box.runtime.image, *PYTHON, "--", "/usr/bin/python3", "-c", MEET)
    assert (done.code, done.stdout) == (0, "0| from rank 1 of 2\n"), done


def test_it_trains_and_reports_with_the_library_that_is_mounted(box: ContainerServer) -> None:
    where = ("--image", box.runtime.image, *PYTHON, "--mount", f"{EXAMPLES}:/examples:ro")
    job = box.start("--epochs", "3", *where, "--", *TRAIN)
    document = box.until(job, "succeeded", "failed")
    assert document["progress"]["epochs_done"] == 3, b"".join(box.client().logs(job))
    checkpoint = box.client().show(job)["training"]["checkpoint"]
    assert checkpoint["epochs_done"] == 3
    assert (box.state.checkpoints / str(job) / checkpoint["path"]).exists()


def test_with_a_port_it_has_a_network_of_its_own_and_still_reports(box: ContainerServer, gate: Gate) -> None:
    """What it writes is read through its port of the machine; its epochs arrive through the socket."""
    port = free_port()
    serve = f"""
import http.server, threading
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"from inside")
server = http.server.HTTPServer(("", 80), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("listening", flush=True)
open({str(gate)!r}).readline()
import runpy
runpy.run_path("/examples/plain/train.py", run_name="__main__")
"""
    where = ("--image", box.runtime.image, *PYTHON, "--mount", f"{EXAMPLES}:/examples:ro", "--port", f"{port}:80")
    gates = ("--mount", f"{gate.path.parent}:{gate.path.parent}")
    job = box.start("--epochs", "2", *where, *gates, "--", "/usr/bin/python3", "-c", serve)
    box.until_output(job, b"listening")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.0\r\n\r\n")
        page = line.makefile("rb").read()
    assert page.endswith(b"from inside")
    gate.open()
    document = box.until(job, "succeeded", "failed")
    assert (document["state"], document["progress"]["epochs_done"]) == ("succeeded", 2)


def test_it_reports_through_the_socket_after_the_server_was_restarted(own_box: ContainerServer, gate: Gate) -> None:
    where = (
        "--image",
        own_box.runtime.image,
        *PYTHON,
        "--mount",
        f"{EXAMPLES}:/examples:ro",
        "--port",
        f"{free_port()}:80",
    )
    gates = ("--mount", f"{gate.path.parent}:{gate.path.parent}")
    wait = f"print('begun', flush=True); open({str(gate)!r}).readline(); import runpy; "
    run = "runpy.run_path('/examples/plain/train.py', run_name='__main__')"
    job = own_box.start("--epochs", "2", *where, *gates, "--", "/usr/bin/python3", "-c", wait + run)
    own_box.until_output(job, b"begun")
    own_box.kill()
    own_box.up()
    gate.open()
    document = own_box.until(job, "succeeded", "failed")
    assert (document["state"], document["progress"]["epochs_done"]) == ("succeeded", 2)


def test_a_cancelled_one_is_asked_first_and_may_save(box: ContainerServer) -> None:
    job = box.start(*box.shell("trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.1; done"))
    box.until_output(job, b"ready")
    assert box.swell("cancel", str(job)).code == 0
    document = box.until(job, "cancelled")
    assert b"".join(box.client().logs(job)) == b"ready\nasked\n"
    assert (document["exit_code"], box.left()) == (9, [])


def test_a_cancelled_one_that_does_not_listen_is_killed_after_the_grace(box: ContainerServer) -> None:
    job = box.start("--grace", "1s", *box.shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
    box.until_output(job, b"ready")
    assert box.swell("cancel", str(job)).code == 0
    assert (box.until(job, "cancelled")["exit_code"], box.left()) == (137, [])


def test_a_time_limit_ends_it_also_where_nobody_handles_the_signal(box: ContainerServer) -> None:
    """As the first process of a container `sleep` would not even notice SIGTERM."""
    job = box.start("--time", "1s", "--image", box.runtime.image, "--", "sleep", "600")
    document = box.until(job, "failed")
    assert (document["reason"]["code"], document["exit_code"], box.left()) == ("TimeLimit", 143, [])


def test_one_whose_image_is_still_being_fetched_is_cancelled_at_once(box: ContainerServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as registry:
        registry.settimeout(PATIENCE_S)
        job = box.start("--image", f"127.0.0.1:{registry.getsockname()[1]}/slow", "--", "true")
        line, _ = registry.accept()  # and never answers
        with line:
            assert box.swell("cancel", str(job)).code == 0
            box.until(job, "cancelled", patience_s=15)  # the grace is 30 s
    assert box.left() == []


def test_one_is_adopted_after_everything_but_it_was_killed(own_box: ContainerServer, gate: Gate) -> None:
    """Server, worker, keeper and the runtime's client: its later output and its code arrive all the same."""
    script = f"echo before; read line < {gate}; echo after; exit 5"
    job = own_box.start("--mount", f"{gate.path.parent}:{gate.path.parent}", *own_box.shell(script))
    own_box.until_output(job, b"before")
    container = own_box.inspect(job)["Id"]
    own_box.kill()
    own_box.kill("worker")
    kill_each(outside(own_box))
    assert own_box.inspect(job)["State"]["Status"] == "running"

    own_box.up()
    own_box.until_true(job, lambda document: document["state"] == "running")
    assert own_box.inspect(job)["Id"] == container
    gate.open()
    document = own_box.until(job, "failed")
    assert (document["exit_code"], document["attempts"]) == (5, 1)
    assert b"".join(own_box.client().logs(job)) == b"before\nafter\n"
    assert own_box.left() == []


def test_the_code_of_one_that_ended_while_nobody_watched_is_learnt(own_box: ContainerServer, gate: Gate) -> None:
    job = own_box.start(
        "--mount", f"{gate.path.parent}:{gate.path.parent}", *own_box.shell(f"echo up; read line < {gate}; exit 6")
    )
    own_box.until_output(job, b"up")
    pid = own_box.inspect(job)["State"]["Pid"]
    own_box.kill()
    own_box.kill("worker")
    kill_each(outside(own_box))
    with ended(pid):
        gate.open()
    own_box.up()
    assert (own_box.until(job, "failed")["exit_code"], own_box.left()) == (6, [])


def test_one_whose_client_alone_was_killed_goes_on(box: ContainerServer, gate: Gate) -> None:
    script = f"echo up; read line < {gate}; echo after; exit 4"
    job = box.start("--mount", f"{gate.path.parent}:{gate.path.parent}", *box.shell(script))
    box.until_output(job, b"up")
    begins = (" run --userns", " run --user", " run --cidfile /")
    [client] = [int(line.partition(":")[0]) for line in box.processes() if any(words in line for words in begins)]
    with ended(client):
        os.kill(client, signal.SIGKILL)
    gate.open()
    assert (box.until(job, "failed")["exit_code"], box.left()) == (4, [])
    said = b"".join(box.client().logs(job)).splitlines()
    assert [line for line in said if line != b"Killed"] == [b"up", b"after"]  # the keeper's shell, of the client


def test_an_adopted_one_can_still_be_cancelled(own_box: ContainerServer) -> None:
    job = own_box.start(*own_box.shell("trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.1; done"))
    own_box.until_output(job, b"ready")
    own_box.kill()
    own_box.kill("worker")
    kill_each(outside(own_box))
    own_box.up()
    assert own_box.swell("cancel", str(job)).code == 0
    document = own_box.until(job, "cancelled")
    assert (document["exit_code"], b"".join(own_box.client().logs(job))) == (9, b"ready\nasked\n")


def test_an_image_that_does_not_exist_is_said_in_the_runtimes_words(box: ContainerServer) -> None:
    done = box.swell("run", "--name", "imageless", "--image", "no-such-image-here", "--", "true")
    [job] = [job for job in box.jobs() if job["name"] == "imageless"]
    assert (done.code, job["reason"]["code"]) == (125, "StartFailed")
    words = "dial tcp" if box.runtime.is_docker else 'short-name "no-such-image-here" did not resolve'
    assert words in job["reason"]["message"]


def test_what_cannot_be_mounted_or_opened_is_said_before_anything_starts(box: ContainerServer, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cases = {
            ("--mount", f"{tmp_path}/none:/data"): f"mounts: {tmp_path}/none does not exist on this machine",
            ("--workdir", f"{tmp_path}/none"): f"the job's folder {tmp_path}/none does not exist on this machine",
            (
                "--port",
                f"{port}:80",
            ): f"ports: {port} of this machine cannot be given to the container: Address already",
        }
        for words, message in cases.items():
            done = box.swell("run", *words, "--image", box.runtime.image, "--", "sh")
            assert (done.code, message in done.stderr) == (125, True), done


def test_without_a_runtime_an_image_is_refused_at_once(tmp_path: Path) -> None:
    with BareServer(tmp_path) as server:
        done = server.swell("run", "--name", "boxed", "--image", "busybox", "--", "true")
        assert done.code == 125
        assert done.stderr.endswith(
            "job 'boxed' wants the image 'busybox', but no machine here has podman or docker; install one of "
            "them and restart the server (swell down, swell up -d), or leave out the image\n"
        )
        assert server.jobs() == []


def test_one_whose_client_outlived_its_keeper_is_adopted_and_says_nothing_twice(
    own_box: ContainerServer, gate: Gate
) -> None:
    """Incident: keeper and script were killed, docker's client went on copying, and so did the next keeper's. Every
    line of the container's came twice.
    """
    script = f"echo before; read line < {gate}; echo after; exit 5"
    job = own_box.start("--mount", f"{gate.path.parent}:{gate.path.parent}", *own_box.shell(script))
    own_box.until_output(job, b"before")
    own_box.kill()
    own_box.kill("worker")
    kill_each([pid for pid in outside(own_box) if Path(f"/proc/{pid}/comm").read_text() in ("sh\n", "dash\n")])
    assert outside(own_box) != []
    first = keeper_of(own_box, job)

    own_box.up()
    own_box.until_true(job, lambda document: document["state"] == "running")
    until = time.monotonic() + PATIENCE_S
    while keeper_of(own_box, job) == first or (own_box.runtime.is_docker and not reads_on(own_box)):
        assert time.monotonic() < until, "there is no other keeper"
        time.sleep(0.05)
    gate.open()
    document = own_box.until(job, "failed")
    assert (document["exit_code"], document["attempts"]) == (5, 1)
    assert b"".join(own_box.client().logs(job)) == b"before\nafter\n"


def reads_on(box: ContainerServer) -> bool:
    """Does the next keeper's client copy the engine's log?"""
    return any("docker logs --follow" in line and "swell-keeper" not in line for line in box.processes())


def keeper_of(box: ContainerServer, job: int) -> str:
    (begun,) = (box.state.tasks / f"{job}.1" / "0").glob("begun.*")
    return begun.name


def kill_each(pids: list[int]) -> None:
    for pid in pids:
        with ended(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_job_of_several_lives_in_containers_resumes_from_its_checkpoint(box: ContainerServer) -> None:
    where = ("--image", box.runtime.image, *PYTHON, "--mount", f"{EXAMPLES}:/examples:ro")
    job = box.start("--epochs", "30", "--gpus", "1..2", *where, "--", *TRAIN, "--step-s", "0.01")
    box.until_true(job, lambda document: (document["progress"]["epochs_done"] or 0) >= 2)
    assert box.swell("scale", str(job), "1").code == 0
    box.until(job, "succeeded", "failed", patience_s=90)
    story = read_story(box, job)
    assert story.epochs == list(range(1, 31))
    assert [life.outcome for life in story.lives] == ["yielded", "succeeded"]


def test_a_code_that_died_with_the_containers_monitor_is_not_made_up(own_box: ContainerServer) -> None:
    job = own_box.start(*own_box.shell("echo up; sleep 600"))
    own_box.until_output(job, b"up")
    first, monitor = own_box.inspect(job)["State"]["Pid"], own_box.runtime.monitor(own_box, job)
    own_box.kill()
    own_box.kill("worker")
    kill_each([monitor, *outside(own_box), first])
    own_box.up()
    document = own_box.until(job, "failed")
    # docker's engine sees for itself how the first process ended
    expected = ("TaskFailed", 137) if own_box.runtime.is_docker else ("KeeperLost", None)
    assert (document["reason"]["code"], document["exit_code"], own_box.left()) == (*expected, [])


def test_the_socket_of_containers_takes_reports_of_jobs_and_nothing_else(box: ContainerServer) -> None:
    path = box.state.sockets / "jobs.sock"
    token = box.state.token.read_text().strip()
    asked = {
        ("GET", "/api/v1/jobs", token): 403,
        ("GET", "/api/v1/health", ""): 403,
        ("GET", "/api/v1/attempts/1.1/control", ""): 401,
        ("GET", "/api/v1/attempts/1.1/control", token): 403,
        ("GET", "/api/v1/attempts/1.1/control", "swj.1.1.9999999999.forged"): 401,
    }
    found = {}
    for method, address, secret in asked:
        line = UnixConnection(str(path), "any.host", 80)
        line.request(method, address, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        found[method, address, secret] = line.getresponse().status
        line.close()
    assert found == asked
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def containers_line(box: ContainerServer, **variables: str) -> dict[str, str]:
    """What `swell doctor` says of containers."""
    found = box.swell("doctor", "--containers", "-o", "json", env=variables, timeout_s=120).json
    [line] = [finding for finding in found if finding["topic"] == "containers"]
    return dict(line)


def left_by_doctors(box: ContainerServer) -> list[str]:
    """Images and containers of doctors that have ended. Other tests share the runtime, and their doctors may run."""
    images = box.runtime.call("images", "--all", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
    names = box.runtime.call("ps", "--all", "--format", "{{.Names}}").stdout.split()
    made = [(name, re.search(r"swell-doctor-(\d+)-", name)) for name in images + names]
    return [name for name, found in made if found and not Path("/proc", found[1]).exists()]


def test_the_doctor_starts_one_and_removes_it_with_its_image(box: ContainerServer) -> None:
    found = containers_line(box)
    assert (found["level"], " started a container as you in " in found["text"]) == ("ok", True), found
    assert left_by_doctors(box) == []
