"""Where state is kept: on which file systems, by whom, and readable by whom."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from swell.errors import Denied, Rejected, Unavailable
from swell.machine.state_folder import (
    NETWORK_FILE_SYSTEMS,
    StateFolder,
    disk_problem,
    exposure,
    network_file_system,
)
from swell.machine.worker_folder import GIVEN_TOKEN, WorkerFolder


def mounts(*pairs: tuple[str, str]) -> list[bytes]:
    """Lines of /proc/self/mountinfo, in the order they were mounted."""
    return [
        f"{36 + n} 35 98:0 / {point} rw,noatime shared:{n} master:1 - {kind} server:/x rw,errors=continue".encode()
        for n, (point, kind) in enumerate(pairs)
    ]


def found(path: str, *pairs: tuple[str, str]) -> str | None:
    return network_file_system(Path(path), mounts(*pairs))


def test_the_mount_that_a_path_is_on_is_the_longest_that_holds_it():
    table = (("/", "ext4"), ("/home", "nfs4"), ("/home/ann/local", "xfs"))
    assert found("/var/tmp/x", *table) is None
    assert found("/home", *table) == "nfs4"
    assert found("/home/ann/state", *table) == "nfs4"
    assert found("/home/ann/local/state", *table) is None
    assert found("/homes/ann", *table) is None


def test_a_path_that_does_not_exist_yet_counts_as_where_it_would_be():
    assert found("/nowhere/yet/at/all", ("/", "ext4"), ("/nowhere/yet", "fuse.sshfs")) == "fuse.sshfs"


def test_a_later_mount_on_the_same_point_hides_the_earlier_one():
    assert found("/data/x", ("/", "ext4"), ("/data", "nfs"), ("/data", "ext4")) is None
    assert found("/data/x", ("/", "ext4"), ("/data", "ext4"), ("/data", "nfs")) == "nfs"


def test_a_root_that_is_itself_on_the_network_counts():
    assert found("/tmp/x", ("/", "nfs"), ("/proc", "proc")) == "nfs"
    assert found("/tmp/x", ("/", "nfs"), ("/tmp", "tmpfs")) is None


def test_a_mount_point_with_spaces_and_other_letters_is_recognised():
    table = (("/", "ext4"), (r"/mnt/my\040disk\011x\134y", "cifs"), ("/mnt/caf\u00e9", "nfs"), (r"/mnt/a\0401", "nfs"))
    assert found("/mnt/my disk\tx\\y/state", *table) == "cifs"
    assert found("/mnt/caf\u00e9/state", *table) == "nfs"
    assert found("/mnt/a 1/state", *table) == "nfs"
    assert found("/mnt/a 12/state", *table) is None


def test_a_mount_point_that_is_no_utf8_is_recognised():
    lines = [*mounts(("/", "ext4")), b"40 35 0:50 / /mnt/caf\xe9 rw - nfs server:/x rw"]
    assert network_file_system(Path(os.fsdecode(b"/mnt/caf\xe9/state")), lines) == "nfs"


def test_a_symbolic_link_is_judged_by_where_it_leads(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    assert found(str(tmp_path / "near/state"), ("/", "ext4"), (str(tmp_path / "far"), "lustre")) == "lustre"


def test_a_line_without_optional_fields_is_understood():
    lines = [b"22 1 8:1 / / rw - ext4 /dev/sda1 rw", b"23 22 0:40 / /srv rw - nfs4 s:/ rw"]
    assert network_file_system(Path("/srv/x"), lines) == "nfs4"


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_every_network_file_system_is_refused(kind):
    assert found("/net/x", ("/", "ext4"), ("/net", kind)) == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuse.bindfs", "f2fs"])
def test_a_local_file_system_is_fine(kind):
    assert found("/net/x", ("/", "ext4"), ("/net", kind)) is None


def test_the_state_folder_is_the_option_then_the_variable_then_the_users_own(monkeypatch, tmp_path):
    monkeypatch.setenv("SWELL_STATE", "/var/swell")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    monkeypatch.setenv("SWELL_SOCKET", "")  # none, also where this machine has a box server
    monkeypatch.chdir(tmp_path)
    assert StateFolder.locate("here").root == tmp_path / "here"
    assert StateFolder.locate().root == Path("/var/swell")
    monkeypatch.delenv("SWELL_STATE")
    assert StateFolder.locate().root == Path("/xdg/swell")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ann")
    assert StateFolder.locate().root == Path("/home/ann/.local/state/swell")
    assert StateFolder.locate("~/x").root == Path("/home/ann/x")


def test_a_machines_box_server_comes_before_ones_own_folder_and_after_a_named_one(monkeypatch, tmp_path):
    monkeypatch.setenv("SWELL_SOCKET", "/run/lab.sock")
    monkeypatch.delenv("SWELL_STATE", raising=False)
    assert StateFolder.locate().socket == Path("/run/lab.sock")
    assert str(StateFolder.locate()) == "this machine (/run/lab.sock)"
    assert StateFolder.locate(str(tmp_path)).socket is None
    monkeypatch.setenv("SWELL_STATE", str(tmp_path))
    assert StateFolder.locate().socket is None


def test_a_new_state_folder_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        state = StateFolder(tmp_path / "a/b")
        state.prepare()
        state.secret(state.token)
        state.write_json(state.config, {"gpus": 4})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (state.root, *state.root.iterdir())}
    folders = {"b": 0o700, "tasks": 0o700, "checkpoints": 0o700, "sockets": 0o700}
    assert modes == {**folders, "token": 0o600, "config.json": 0o600}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "its disk is full; free some space"),
        (errno.EDQUOT, "your disk quota is exceeded; free some space"),
        (errno.EROFS, "it is read-only; remount it writable"),
        (errno.EACCES, "you do not have permission to write there; change its permissions"),
        (errno.EIO, "[Errno 5] Input/output error; fix that"),
    ],
)
def test_a_folder_that_cannot_be_written_says_why_and_what_to_do(code, said):
    text = disk_problem(OSError(code, os.strerror(code)), Path("/s"))
    assert text == f"the state folder /s cannot be written: {said}, or name another folder with --state"


def test_a_file_where_the_folder_should_be_is_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Unavailable, match="a file with that name exists; move it away"):
        StateFolder(tmp_path / "file").prepare()
    with pytest.raises(Unavailable, match="a part of the path is a file, not a folder; correct the path"):
        StateFolder(tmp_path / "file/state").prepare()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_secret_is_made_once_and_is_long(tmp_path):
    state = StateFolder(tmp_path)
    first = state.secret(state.token)
    assert len(first) >= 43
    assert state.secret(state.token) == first
    assert state.secret(state.worker_token) != first


def test_a_secret_that_others_may_read_is_closed_again(tmp_path):
    state = StateFolder(tmp_path)
    state.secret(state.token)
    state.token.chmod(0o644)
    state.secret(state.token)
    assert stat.S_IMODE(state.token.stat().st_mode) == 0o600


def test_an_empty_secret_left_by_a_full_disk_is_made_again(tmp_path):
    """A token file whose writing had failed used to be taken for a token of no letters, for ever."""
    state = StateFolder(tmp_path)
    state.token.touch(mode=0o600)
    assert len(state.secret(state.token)) >= 43


def test_settings_are_written_whole_or_not_at_all(tmp_path):
    state = StateFolder(tmp_path)
    state.write_json(state.config, {"gpus": 4})
    with pytest.raises(TypeError):
        state.write_json(state.config, {"gpus": object()})
    assert state.read_json(state.config) == {"gpus": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null"])
def test_settings_that_cannot_be_read_count_as_none(tmp_path, text):
    state = StateFolder(tmp_path)
    state.config.write_text(text)
    assert state.read_json(state.config) == {}


def test_a_lock_has_one_holder_and_names_it(tmp_path):
    state = StateFolder(tmp_path)
    assert state.lock_holder("server") is None
    lock = state.lock("server")
    assert lock is not None
    assert state.lock("server") is None
    assert state.lock("worker") is not None
    assert state.lock_holder("server") == os.getpid()
    lock.release()
    assert state.lock_holder("server") is None
    assert state.lock("server") is not None


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path):
    state = StateFolder(tmp_path)
    code = (
        "import sys; from pathlib import Path; from swell.machine.state_folder import StateFolder; "
        "lock = StateFolder(Path(sys.argv[1])).lock('server'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=-1, stdout=-1)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert state.lock_holder("server") == holder.pid
    holder.kill()
    holder.wait()
    assert state.lock_holder("server") is None


def test_asking_who_holds_a_lock_never_keeps_anybody_from_taking_it(tmp_path):
    """Whoever waits for a server to come up asks every few milliseconds; a server that began just then refused."""
    state = StateFolder(tmp_path)
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            state.lock_holder("server")

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    taken = 0
    for _ in range(500):
        lock = state.lock("server")
        taken += lock is not None
        if lock is not None:
            lock.release()
    is_over.set()
    for asker in askers:
        asker.join()
    assert taken == 500


def test_a_secret_that_somebody_else_makes_is_kept_and_follows_their_file(tmp_path):
    state, given = StateFolder(tmp_path / "state"), tmp_path / "given"
    state.prepare()
    own = state.secret(state.token)
    for text in ("a-token-of-theirs-1\n", "another-one-of-them"):
        given.write_text(text)
        state.keep_secret(state.token, given)
        assert (state.secret(state.token), stat.S_IMODE(state.token.stat().st_mode)) == (text.strip(), 0o600)
        assert own != text.strip()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the token file {path} cannot be read: No such file or directory; create it, or name another file"),
        (
            "short\n",
            (
                "the token file {path} has 5 characters, which is too easy to guess; write at least 16: openssl "
                "rand -base64 32"
            ),
        ),
    ],
)
def test_a_secret_that_is_none_is_refused_and_the_old_one_stays(tmp_path, text, said):
    state, given = StateFolder(tmp_path / "state"), tmp_path / "given"
    state.prepare()
    own = state.secret(state.token)
    if text is not None:
        given.write_text(text)
    with pytest.raises(Rejected) as refused:
        state.keep_secret(state.token, given)
    assert (str(refused.value), state.secret(state.token)) == (said.format(path=given), own)


@pytest.mark.parametrize("inside", [".", "tasks", "tasks/.environments", "checkpoints", "sockets"])
def test_a_folder_that_others_may_have_prepared_is_refused(tmp_path, inside):
    """Whoever had made the folder of a worker gave its jobs a PATH of their own, and ran programs as its user."""
    folder = WorkerFolder(tmp_path / "w")
    prepared = folder.root / inside
    prepared.mkdir(parents=True)
    prepared.chmod(0o777)
    with pytest.raises(Denied, match=r"^other users may write to .*; type: chmod go-w "):
        folder.prepare()
    prepared.chmod(0o700)
    os.chown(prepared, 65534, -1)
    with pytest.raises(Denied, match=r"belongs to another user, who could run programs as you"):
        folder.prepare()
    os.chown(prepared, os.geteuid(), -1)
    folder.prepare()


@pytest.mark.parametrize(("mode", "said"), [(0o600, ""), (0o640, "0640"), (0o604, "0604"), (0o700, "")])
def test_a_file_with_a_secret_that_others_may_read_is_named_with_its_mode(tmp_path: Path, mode: int, said: str) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(mode)
    expected = f"other users of this machine may read it (mode {said})" if said else ""
    assert exposure(tmp_path / "token") == expected


def test_a_terminal_a_pipe_and_what_is_not_there_expose_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.fchmod(writing, 0o666)
    assert [exposure(one) for one in (writing, tmp_path, tmp_path / "gone")] == ["", "", ""]
    os.close(reading)
    os.close(writing)


def test_a_worker_that_leaves_removes_what_it_has_made_and_nothing_else(tmp_path: Path) -> None:
    folder, token = WorkerFolder(tmp_path / "work"), tmp_path / "work" / GIVEN_TOKEN
    token.parent.mkdir(mode=0o700)
    token.write_text("secret")
    for name in ("thesis.tex", "tasks.txt"):
        (folder.root / name).write_text("mine")
    folder.prepare()
    lock = folder.lock()
    assert lock is not None
    folder.secret_key()
    folder.write_json(folder.heard, {})
    (folder.cache / "files" / "deep").mkdir(parents=True)
    (folder.tasks / "1.1").mkdir()
    (folder.tasks / "1.1" / "link").symlink_to(tmp_path)
    folder.remove(token_file=token)
    assert sorted(path.name for path in folder.root.iterdir()) == ["tasks.txt", "thesis.tex"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]
    lock.release()


def test_a_worker_that_leaves_removes_a_folder_in_which_nothing_is_left_and_no_token_of_another_name(
    tmp_path: Path,
) -> None:
    folder, token = WorkerFolder(tmp_path / "work"), tmp_path / "lab.token"
    token.write_text("secret")
    folder.prepare()
    folder.remove(token_file=token)
    assert [path.name for path in tmp_path.iterdir()] == ["lab.token"]
