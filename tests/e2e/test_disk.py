"""A state folder that fills up, turns read-only, or is on a network: accepted jobs survive, and it is said why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.disks import Ext4, fill, run, sshfs, tmpfs
from server import Gate, Server

pytestmark = pytest.mark.slow

ATTEMPTS_MAX = 300  # a database has some room left in its own files when the disk is full; then it is over


@pytest.fixture
def on_tmpfs(tmp_path: Path) -> Iterator[Server]:
    """A server whose state folder is a file system of its own, of 16 MiB."""
    with tmpfs(tmp_path / "state", "16m"), Server(tmp_path) as server:
        yield server


def submit_until_refused(server: Server) -> tuple[list[int], str]:
    """Jobs that were accepted, and what the first refusal said."""
    accepted: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        done = server.swell("run", "-d", "--name", "late", "--", "true", env={"PADDING": "x" * 20_000})
        if done.code != 0:
            assert (done.code, done.stdout) == (125, "")
            return accepted, done.stderr
        accepted.append(done.id)
    raise AssertionError(f"{ATTEMPTS_MAX} jobs were accepted on a full disk")


def test_a_full_disk_refuses_new_jobs_loses_none_and_goes_on_when_there_is_room(on_tmpfs, gate):
    server = on_tmpfs
    running = server.start("--name", "running", "--", "sh", "-c", f"echo up; read line < {gate}; exit 7")
    server.until(running, "running")
    queued = server.start("--name", "queued", "--wait-for-nodes", "--gpus", "64", "--", "true")
    server.until_true(queued, lambda document: document["reason"]["code"] == "CannotRunHere")

    ballast = fill(server.root)
    accepted, said = submit_until_refused(server)
    assert said == (
        f"swell: nothing was changed: the state folder {server.root} cannot be written: its disk is full; "
        "free some space, or name another folder with --state\n"
    )
    assert {running, queued, *accepted} == {job["id"] for job in server.jobs()}
    assert server.client().job(running).state == "running"
    assert server.swell("nodes").code == 0

    gate.open()  # it ends while nothing can be written down
    ballast.unlink()
    assert server.until(running, "failed")["exit_code"] == 7
    for job in accepted:
        server.until(job, "succeeded", "failed")
    after = server.start("--name", "after", "--", "true")
    assert server.until(after, "succeeded")["exit_code"] == 0
    assert server.client().job(queued).state == "queued"


def test_a_server_does_not_start_on_a_full_disk_and_finds_everything_when_there_is_room(on_tmpfs, gate):
    server = on_tmpfs
    job = server.start("--name", "survivor", "--", "sh", "-c", f"echo up; read line < {gate}; exit 5")
    server.until_output(job, b"up")
    config = server.state.config.read_text()
    ballast = fill(server.root)
    server.kill()
    server.kill("worker")
    done = server.swell("up", "-d", "--gpus", "2")
    assert done.code == 1
    assert done.stderr == (
        f"swell: the state folder {server.root} cannot be written: its disk is full; "
        "free some space, or name another folder with --state\n"
    )
    assert server.state.config.read_text() == config
    assert server.swell("run", "--", "true").code == 125
    gate.open()
    ballast.unlink()
    server.up()
    assert server.until(job, "failed")["exit_code"] == 5


def test_a_read_only_folder_is_refused_and_accepted_jobs_are_there_when_it_is_writable_again(on_tmpfs):
    server = on_tmpfs
    job = server.start("--name", "waits", "--wait-for-nodes", "--gpus", "64", "--", "true")
    server.down()
    before = sorted(path.name for path in server.root.iterdir())
    run("mount", "-o", "remount,ro", str(server.root))
    try:
        for words, code in (("up -d", 1), ("run -- true", 125)):
            done = server.swell(*words.split())
            assert done.code == code
            assert done.stderr == (
                f"swell: the state folder {server.root} cannot be written: it is read-only; "
                "remount it writable, or name another folder with --state\n"
            )
        assert sorted(path.name for path in server.root.iterdir()) == before
    finally:
        run("mount", "-o", "remount,rw", str(server.root))
    server.up()
    assert server.client().job(job).state == "queued"


def test_a_disk_that_turns_read_only_under_a_server_refuses_new_jobs_and_loses_none(tmp_path):
    disk = Ext4(tmp_path / "state", 32)
    disk.mount()
    outside = Gate(tmp_path / "gate")
    try:
        with Server(tmp_path) as server:
            queued = server.start("--name", "queued", "--wait-for-nodes", "--gpus", "64", "--", "true")
            running = server.start("--name", "running", "--", "sh", "-c", f"echo up; read line < {outside}")
            server.until_output(running, b"up")
            os.sync()  # what is lost with power is the next test's
            disk.fail()
            done = server.swell("run", "-d", "--", "true")
            assert (done.code, done.stdout) == (125, "")
            assert re.fullmatch(
                rf"swell: nothing was changed: the state folder {server.root} cannot be written: "
                r"(it is read-only; remount it writable|.*Input/output error; fix that), "
                r"or name another folder with --state\n",
                done.stderr,
            )
            assert [job["id"] for job in server.jobs()] == [queued, running]
            assert server.swell("cancel", str(queued)).code == 1

            server.kill_everything()
            disk.umount()
            disk.repair()
            server.up()
            assert server.client().job(queued).state == "queued"
            assert server.until(running, "failed")["reason"]["code"] == "KeeperLost"
    finally:
        outside.close()
        disk.close()


def test_a_server_starts_again_after_a_power_cut_has_emptied_what_was_not_yet_on_disk(own_server):
    job = own_server.start("--wait-for-nodes", "--gpus", "64", "--", "true")
    own_server.kill_everything()
    (own_server.root / "port").write_bytes(b"")  # written without fsync: this is what ext4 leaves
    try:
        assert own_server.swell("up", "-d").code == 0
        assert own_server.client().job(job).state == "queued"
    finally:
        (own_server.root / "port").unlink()


def test_a_folder_on_a_network_file_system_is_refused_and_a_local_one_suggested(tmp_path):
    (tmp_path / "far").mkdir()
    server = Server(tmp_path)
    with sshfs(tmp_path / "far", tmp_path / "net"):
        for words, code in ((["up", "-d"], 2), (["run", "--", "true"], 125)):
            done = server.swell(*words[:1], "--state", str(tmp_path / "net/state"), *words[1:])
            assert (done.code, done.stdout) == (code, "")
            assert done.stderr == (
                f"swell: the state folder {tmp_path}/net/state is on a network file system (fuse.sshfs), where "
                "the database's log and locks do not work; use a local folder: --state /var/tmp/swell-0 or "
                "SWELL_STATE\n"
            )
    assert list((tmp_path / "far").iterdir()) == []
