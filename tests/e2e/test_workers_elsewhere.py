"""Workers that are not the server's own: real processes that know an address, a token and a folder of their own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.disks import fill, tmpfs
from e2e.training import SDK, TRAIN
from ec2 import NOTICE, MachineData
from remote_worker import RemoteWorker, make_token, processes_of
from server import PATIENCE_S, SWELL, Gate, Server, up_before_and_empty_after, wait_for_end

pytestmark = pytest.mark.slow

MEET = """
import os, socket, time
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(place) as listener:
        other, _ = listener.accept()
        print("met", other.recv(100).decode(), flush=True)
else:
    for _ in range(300):
        try:
            with socket.create_connection(place, timeout=10) as line:
                line.sendall(b"rank %d of %s" % (rank, os.environ["WORLD_SIZE"].encode()))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    print(os.environ["NODELIST"], os.environ["SWELL_HOSTS"], os.environ["NODE_RANK"])
"""


#: It saves once more, and far ahead, when it wakes up.
WAKES_UP = TRAIN.replace(
    "for epoch in",
    """import signal
ahead = lambda path: Path(path).write_text("99999")
signal.signal(signal.SIGCONT, lambda *_: run.save(ahead, epochs_done=99999))
for epoch in""",
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("elsewhere"), gpus=0, cpus=1) as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """For tests whose workers leave: the server forgets them."""
    yield from up_before_and_empty_after(shared)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """For tests that lose a worker, whose name is taken until its lease ends."""
    with Server(tmp_path, gpus=0, cpus=1) as server:
        yield server


@pytest.fixture
def machine_data() -> Iterator[MachineData]:
    data = MachineData()
    yield data
    data.close()


def attempts(server: Server, job: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.swell("show", str(job), "-o", "json").json["attempts"]
    return found


def test_a_gang_over_two_workers_meets_at_one_place(server: Server, tmp_path: Path) -> None:
    """Each node told its ranks 127.0.0.1 and a port of its own."""
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    with RemoteWorker(server, tmp_path, "second", "--cpus", "1", "--address", "127.0.0.2") as worker:
        done = server.swell("run", "--tasks", "2", "--cpus", "1", "--", "python3", str(script))
        assert (done.code, worker.node() is not None) == (0, True), done
        first, second = (
            task["node"] for task in sorted(attempts(server, done.job)[-1]["tasks"], key=lambda one: one["index"])
        )
        assert {first, second} == {"second", os.uname().nodename}
        addresses = {"second": "127.0.0.2", os.uname().nodename: "127.0.0.1"}
        log = server.until_output(done.job, b"\n", rank=1).decode()
        assert log == f"{first},{second} {addresses[first]}:1,{addresses[second]}:1 1\n"
        assert server.until_output(done.job, b"\n", rank=0) == b"met rank 1 of 2\n"


def test_the_log_of_a_job_elsewhere_is_complete_on_the_server_and_survives_its_worker(
    own_server: Server, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    with RemoteWorker(own_server, tmp_path, "second", "--cpus", "4") as worker:
        words = ("python3", "-c", "import sys\nfor n in range(200000): print(n)\nprint('bye', file=sys.stderr)")
        done = own_server.swell("run", "--cpus", "4", "--", *words)
        assert done.code == 0
        job = own_server.start("--cpus", "4", "--", "sh", "-c", f"echo begun; read line < {gate}; echo over")
        assert own_server.until_output(job, b"begun\n") == b"begun\n"
        gate.open()
        own_server.until(job, "succeeded")
        expected = "".join(f"{n}\n" for n in range(200000)) + "bye\n"
        assert own_server.swell("logs", str(done.job)).stdout == expected
        worker.kill()
        assert own_server.swell("logs", str(done.job)).stdout == expected
        assert own_server.swell("logs", str(job)).stdout == "begun\nover\n"
        assert not (worker.folder / "swell.db").exists()
    gate.close()


def test_a_worker_that_is_told_to_pass_its_end_down_gives_its_jobs_back_and_leaves(
    server: Server, tmp_path: Path
) -> None:
    worker = RemoteWorker(server, tmp_path, "second", "--cpus", "4", "--pass-down-termination")
    with worker:
        job = server.start("--cpus", "4", "--grace", "5s", "--", "sh", "-c", "echo begun; exec sleep 1000")
        server.until_output(job, b"begun\n")
        assert worker.process is not None
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.node() is None
        server.until(job, "queued")
        assert attempts(server, job)[0]["outcome"] == "evicted"


@pytest.mark.parametrize("end", ["SIGTERM", "EC2's notice"])
def test_a_task_of_a_worker_that_passes_its_end_down_yields_at_its_checkpoint_and_goes_on_elsewhere(
    server: Server, tmp_path: Path, machine_data: MachineData, end: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    words = ("--cpus", "4", "--epochs", "100000", "--env", f"PYTHONPATH={SDK}", "--", "python3", str(script))
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": machine_data.url}
    first = RemoteWorker(server, tmp_path, "first", "--cpus", "4", "--preemptible", "--spot-notice", env=env)
    with first:
        job = server.start(*words)
        server.until_output(job, b"epoch 3\n")
        assert first.process is not None
        if end == "SIGTERM":
            first.process.send_signal(signal.SIGTERM)
        machine_data.notice = NOTICE
        assert first.wait() == 0
    assert ("EC2 takes this machine back" in first.log.read_text()) or end == "SIGTERM"
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4"):
        server.until_true(job, lambda found: found["attempts"] == 2 and found["state"] == "running")
        began = server.until_output(job, b"epoch").decode().splitlines()
        lives = [server.swell("logs", "--attempt", str(number), str(job)).stdout.splitlines() for number in (1, 2)]
        assert began[0] == f"from {len(lives[0]) - 1}"  # the line before its epochs is the first
        done = attempts(server, job)[0]
        assert (done["outcome"], done["tasks"][0]["exit_code"]) == ("yielded", 75)
        assert lives[1][1] == f"epoch {len(lives[0]) - 1}"
        server.swell("cancel", str(job))


def test_from_a_job_one_finds_its_worker_the_backends_id_and_the_backends_log(server: Server, tmp_path: Path) -> None:
    env = {"SLURM_JOB_ID": "4711", "SLURM_SUBMIT_DIR": "/home/ann"}
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4", "--tag", "big", "--preemptible", env=env) as worker:
        done = server.swell("run", "--cpus", "4", "--", "true")
        assert done.code == 0
        wide = server.swell("nodes", "-o", "wide").stdout
        node = worker.node()
    expected = {"backend": "slurm", "id": "4711", "log": "/home/ann/slurm-4711.out"}
    assert node is not None
    assert (node["tag"], node["group"], node["preemptible"], node["backend"]) == ("big", "", True, expected)
    assert "ready, preemptible" in wide
    assert "/home/ann/slurm-4711.out" in wide
    assert server.swell("show", str(done.job), "-o", "json").json["workers"] == [{"node": "second", **expected}]
    assert "worker second: slurm 4711, log: /home/ann/slurm-4711.out" in server.swell("show", str(done.job)).stdout


def test_a_job_on_a_worker_in_a_container_runs_the_programs_of_its_image(server: Server, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    program = image / "only-in-the-image"
    program.write_text("#!/bin/sh\necho $OF_THE_IMAGE $SWELL_WORKER_SECRET $HOME\n")
    program.chmod(0o755)
    env = {
        "AWS_BATCH_JOB_ID": "1",
        "PATH": f"{image}:/usr/bin:/bin",
        "OF_THE_IMAGE": "yes",
        "SWELL_WORKER_SECRET": "no",
    }
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4", env={**env, "HOME": str(image)}):
        done = server.swell("run", "--cpus", "4", "--", "only-in-the-image", env={"HOME": "/home/not-there"})
    assert (done.code, done.stdout) == (0, f"yes {image}\n"), done


def counting(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder, and a command that makes a file there for its index; a second copy of an index fails."""
    folder = tmp_path / "counted"
    folder.mkdir()
    return folder, ("sh", "-c", f'set -C; : > "{folder}/$JOB_COMPLETION_INDEX"; sleep 0.1')


def nodes_of(server: Server, job: int) -> set[str]:
    return {task["node"] for attempt in attempts(server, job) for task in attempt["tasks"]}


def test_an_array_is_dealt_out_over_the_workers(server: Server, tmp_path: Path) -> None:
    folder, words = counting(tmp_path)
    with RemoteWorker(server, tmp_path, "second", "--cpus", "2"), RemoteWorker(server, tmp_path, "third"):
        done = server.swell("run", "--array", "0-49", "--cpus", "1", "--", *words)
        assert done.code == 0
        assert nodes_of(server, done.job) == {os.uname().nodename, "second", "third"}
        assert sorted(int(path.name) for path in folder.iterdir()) == list(range(50))
        assert len(attempts(server, done.job)) == 1


def test_what_a_worker_that_leaves_has_not_begun_of_an_array_is_done_elsewhere(server: Server, tmp_path: Path) -> None:
    folder, words = counting(tmp_path)
    workers = {name: RemoteWorker(server, tmp_path, name, "--cpus", "2") for name in ("second", "third")}
    with workers["second"], workers["third"]:
        job = server.start("--array", "0-49%2", "--cpus", "1", "--", *words)
        [first] = server.until_true(job, lambda found: found["state"] == "running")["nodes"]
        leaving = workers[first]
        assert leaving.process is not None
        leaving.process.send_signal(signal.SIGTERM)
        assert leaving.wait() == 0
        server.until(job, "succeeded")
    assert sorted(int(path.name) for path in folder.iterdir()) == list(range(50))
    assert nodes_of(server, job) == {"second", "third"}


def test_what_a_lost_worker_had_of_an_array_is_done_elsewhere(own_server: Server, tmp_path: Path) -> None:
    """Its process is killed, with its tasks: what it had begun counts as not done, and is done once more."""
    short = ("--cpus", "2", "--checkin-frequency-seconds", "1", "--lease-seconds", "10")
    with RemoteWorker(own_server, tmp_path, "second", *short) as lost:
        job = own_server.start("--array", "0-99", "--cpus", "1", "--", "sleep", "0.1")
        own_server.until_true(job, lambda found: found["tasks"]["succeeded"] > 3)
        lost.kill()
        own_server.until(job, "succeeded", patience_s=150)
        assert own_server.swell("show", str(job), "-o", "json").json["tasks"]["succeeded"] == 100


def test_a_worker_for_a_group_runs_no_job_of_other_users(server: Server, tmp_path: Path) -> None:
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4", "--group", "vision"):
        job = server.start("--cpus", "4", "--", "true")
        waiting = server.until_true(job, lambda found: (found["reason"] or {}).get("code") == "NoSuitableNode")
        assert "it is for the group vision" in waiting["reason"]["message"], waiting


def test_a_job_that_asks_for_a_tag_waits_for_a_machine_with_it_also_for_one_that_keeps_others_away(
    server: Server, tmp_path: Path
) -> None:
    job = server.start("--tag", "big", "--", "echo", "here")
    server.until_true(job, lambda found: (found["reason"] or {}).get("code") == "NoSuitableNode")
    with RemoteWorker(server, tmp_path, "second", "--cpus", "1", "--tag", "big", "--tag-exclusive"):
        server.until(job, "succeeded")
        assert nodes_of(server, job) == {"second"}


def test_a_worker_leaves_when_it_has_been_idle_and_after_as_many_jobs_as_it_was_told(
    server: Server, tmp_path: Path
) -> None:
    words = ("--cpus", "4", "--idle-seconds", "3", "--delete-work-dir-on-exit")  # it is seen before it leaves
    with RemoteWorker(server, tmp_path, "idle", *words) as worker:
        assert worker.wait() == 0
        worker.until_forgotten()
        assert not worker.folder.exists()
    with RemoteWorker(server, tmp_path, "one", "--cpus", "4", "--exit-after-num-runs", "1") as worker:
        assert server.swell("run", "--cpus", "4", "--", "true").code == 0
        assert worker.wait() == 0
        worker.until_forgotten()
        assert worker.folder.exists()


@pytest.mark.parametrize("options", [("--exit-on-exception",), ()])
def test_a_worker_that_fails_gives_its_jobs_back_and_leaves_if_it_was_told_to_and_goes_on_otherwise(
    server: Server, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """What it has noted of a job cannot be removed, when that has ended."""
    gate = Gate(tmp_path / "gate")
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4", *options) as worker:
        other = server.start("--cpus", "2", "--", "sh", "-c", "echo begun; exec sleep 1000")
        job = server.start("--cpus", "2", "--", "sh", "-c", f"echo begun; read line < {gate}")
        for one in (other, job):
            server.until_output(one, b"begun\n")
        noted = worker.folder / f"tasks/{job}.1/launch.json"
        noted.unlink()
        noted.mkdir()
        gate.open()
        server.until(job, "succeeded")
        worker.until_said("the worker's main loop failed and continues: IsADirectoryError")
        if options:
            assert worker.wait() == 0
            server.until(other, "queued")
            assert (worker.node(), attempts(server, other)[0]["outcome"]) == (None, "evicted")
        else:
            worker.until_node(lambda node: node["reachable"] and not node["cordoned"])
            assert server.swell("run", "--cpus", "2", "--", "echo", "it goes on").stdout == "it goes on\n"
            assert server.until(other, "running")["attempts"] == 1
        server.swell("cancel", str(other))
    gate.close()


def test_a_killed_worker_takes_its_tasks_up_again(server: Server, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with RemoteWorker(server, tmp_path, "second", "--cpus", "4") as worker:
        job = server.start("--cpus", "4", "--", "sh", "-c", f"echo begun; read line < {gate}; echo over; exit 3")
        server.until_output(job, b"begun\n")
        worker.kill()
        gate.open()
        worker.start()
        document = server.until(job, "failed")
        assert (document["exit_code"], document["attempts"]) == (3, 1)
        assert server.swell("logs", str(job)).stdout == "begun\nover\n"
    gate.close()


def test_a_worker_without_a_server_stops_its_tasks_when_its_lease_ends(own_server: Server, tmp_path: Path) -> None:
    """The server is killed, so nobody asks for it."""
    options = ("--cpus", "4", "--checkin-frequency-seconds", "1", "--lease-seconds", "10")
    with RemoteWorker(own_server, tmp_path, "second", *options):
        job = own_server.start("--cpus", "4", "--grace", "1s", "--", "sh", "-c", "echo $$; exec sleep 1000")
        pid = int(own_server.until_output(job, b"\n"))
        descriptor = os.pidfd_open(pid)
        own_server.kill()
        assert select.select([descriptor], [], [], 30)[0]
        os.close(descriptor)
        own_server.up()
        own_server.until_true(job, lambda found: found["attempts"] == 2)
        assert attempts(own_server, job)[0]["outcome"] == "node-lost"


def test_the_tasks_of_a_worker_that_is_killed_and_never_started_again_end_with_its_lease(
    own_server: Server, tmp_path: Path
) -> None:
    """They ran on, and the server started them elsewhere: two copies of one task."""
    options = ("--cpus", "4", "--checkin-frequency-seconds", "1", "--lease-seconds", "10")
    with RemoteWorker(own_server, tmp_path, "first", *options) as first:
        job = own_server.start("--cpus", "4", "--grace", "1s", "--", "sh", "-c", "trap '' TERM; echo $$; sleep 1000")
        pid = int(own_server.until_output(job, b"\n"))
        descriptor = os.pidfd_open(pid)
        first.kill()
        assert first.process is not None
        first.process = None
        with RemoteWorker(own_server, tmp_path, "second", *options):
            assert not select.select([descriptor], [], [], 0)[0]  # a worker may be started again meanwhile
            assert select.select([descriptor], [], [], 45)[0]
            os.close(descriptor)
            assert len(attempts(own_server, job)) == 1
            own_server.until_true(job, lambda found: found["attempts"] == 2, patience_s=150)
            first.until_said("the worker is gone and its lease is over: its tasks are stopped")
            assert attempts(own_server, job)[0]["outcome"] == "node-lost"
            own_server.swell("cancel", str(job))


def test_a_machine_that_slept_through_its_lease_stops_its_copy_whose_checkpoint_counts_for_nothing(
    own_server: Server, tmp_path: Path
) -> None:
    """A suspended machine: its worker and its task know nothing of the time that has passed."""
    script = tmp_path / "train.py"
    script.write_text(WAKES_UP)
    options = ("--cpus", "4", "--checkin-frequency-seconds", "1", "--lease-seconds", "10")
    words = ("--cpus", "4", "--epochs", "100000", "--env", f"PYTHONPATH={SDK}", "--", "python3", str(script))
    with RemoteWorker(own_server, tmp_path, "first", *options) as first:
        assert first.process is not None
        job = own_server.start(*words)
        own_server.until_output(job, b"epoch 3\n")
        checkpoints, stale = own_server.state.checkpoints / str(job), processes_of(own_server, job, 1)
        for pid in (first.process.pid, *stale):
            os.kill(pid, signal.SIGSTOP)
        asleep = max(int(path.name.rpartition("-")[2]) for path in checkpoints.glob("attempt-1-epoch-*"))
        with RemoteWorker(own_server, tmp_path, "second", *options):
            own_server.until_true(
                job,
                lambda found: found["attempts"] == 2 and found["progress"]["epochs_done"] > asleep + 2,
                patience_s=150,
            )
            for pid in stale:
                os.kill(pid, signal.SIGCONT)
            until_there(checkpoints / "attempt-1-epoch-99999")
            os.kill(first.process.pid, signal.SIGCONT)
            for pid in stale:
                wait_for_end(pid)
            assert own_server.swell("requeue", str(job)).code == 0
            own_server.until_true(job, lambda found: found["attempts"] == 3 and found["state"] == "running")
            began = own_server.until_output(job, b"epoch").decode().splitlines()[0]
            second = own_server.swell("logs", "--attempt", "2", str(job)).stdout.splitlines()
            assert (second[0], began) == (f"from {asleep}", f"from {int(second[-1].removeprefix('epoch ')) + 1}")
            own_server.swell("cancel", str(job))


def until_there(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.02)


def test_a_worker_whose_disk_is_full_takes_nothing_new_and_goes_on_when_there_is_room(
    server: Server, tmp_path: Path
) -> None:
    disk = tmpfs(tmp_path / "worker-second", "32m")
    with disk, RemoteWorker(server, tmp_path, "second", "--cpus", "4") as worker:
        ballast = fill(worker.folder)
        worker.until_node(lambda node: node["cordoned"])
        job = server.start("--cpus", "4", "--", "echo", "there was room")
        waiting = server.until_true(job, lambda found: found["reason"] is not None)
        assert waiting["state"] == "queued"
        ballast.unlink()
        server.until(job, "succeeded")
        assert server.swell("logs", str(job)).stdout == "there was room\n"


def test_a_worker_whose_token_is_revoked_gets_nothing_more_and_its_tasks_end_with_its_lease(
    server: Server, tmp_path: Path
) -> None:
    options = ("--cpus", "4", "--checkin-frequency-seconds", "1", "--lease-seconds", "10")
    with RemoteWorker(server, tmp_path, "second", *options) as worker:
        job = server.start("--cpus", "4", "--grace", "1s", "--", "sh", "-c", "echo $$; exec sleep 1000")
        pid = int(server.until_output(job, b"\n"))
        descriptor = os.pidfd_open(pid)
        assert server.swell("token", "revoke", worker.name).code == 0
        worker.until_said("the server refuses this worker: 401: ")
        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)
        server.until_true(job, lambda found: found["state"] == "queued", patience_s=150)
        assert attempts(server, job)[0]["outcome"] == "node-lost"
        assert worker.node() is None
        server.swell("cancel", str(job))


@pytest.mark.parametrize("what", ["revoked", "other scope", "nonsense"])
def test_a_worker_without_a_good_token_is_told_so_and_gets_nothing(server: Server, tmp_path: Path, what: str) -> None:
    token = make_token(server, tmp_path, "lab")
    if what == "revoked":
        assert server.swell("token", "revoke", "lab").code == 0
    elif what == "other scope":
        token.write_text(server.swell("token", "create", "me", "--scope", "submit").stdout)
    else:
        token.write_text("nonsense\n")
    worker = RemoteWorker(server, tmp_path, "second", "--cpus", "4", token=token)
    worker.start()
    try:
        worker.until_said("the server refuses this worker: 40")
        assert worker.node() is None
    finally:
        worker.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_no_server_has_answered_says_so_and_leaves_when_it_is_told_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It tried for ever without a word, and only SIGKILL ended it."""
    (tmp_path / "token").write_text("swt.1\n")
    (tmp_path / "token").chmod(0o600)
    address = ("--server", "https://127.0.0.1:1", "--token-file", tmp_path / "token", "--folder", tmp_path / "folder")
    worker = subprocess.Popen([SWELL, "worker", *address, "--gpus", "0"], stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    next(line for line in worker.stderr if "the server https://127.0.0.1:1 cannot be reached" in line)
    worker.send_signal(number)
    assert worker.wait(60) == 0
    worker.stderr.close()


def test_a_worker_whose_token_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    words = ("--server", "https://127.0.0.1:1", "--token-file", "nowhere", "--folder", tmp_path / "folder")
    done = subprocess.run([SWELL, "worker", *words], capture_output=True, text=True, check=False, cwd=tmp_path)
    said = f"swell: the token file {tmp_path}/nowhere cannot be read (No such file or directory); name another"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"{said}: --token-file")


def test_a_worker_that_calls_itself_as_another_is_refused(own_server: Server, tmp_path: Path) -> None:
    token = make_token(own_server, tmp_path, "lab")
    token.chmod(0o604)
    with RemoteWorker(own_server, tmp_path, "second", "--cpus", "4", token=token) as first:
        first.until_said(f"the token file {token}: other users of this machine may read it (mode 0604)")
        other = RemoteWorker(own_server, tmp_path / "state", "second", "--cpus", "64", token=first.token)
        other.start()
        try:
            other.until_said("another worker is called 'second'")
            node = first.node()
            assert node is not None
            assert node["cpus"] == 4
        finally:
            other.kill()
