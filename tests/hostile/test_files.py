"""Folders of tasks, logs and checkpoints that somebody has filled as they liked.

Nothing there can raise, hang or lead elsewhere: a reader says "there is none", and a removal goes on with the rest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import PATIENCE_S
from swell.api.checkpoints import parse_found
from swell.engines.logfolder import LogFolder
from swell.engines.workers.engine import keeper_pid
from swell.machine.log_limit import LogWatch
from swell.machine.removal import Eraser, remove_tree
from swell.model.job import AttemptId
from swell.worker import asuser, tasks
from swell.worker.machine import Machine
from swell.worker.run import Run
from swell.worker.runtimes import failure_text
from swell.worker.tasks import Found, Status
from worker.test_environment import LAUNCH

from .things import FACTS, KINDS, MORE_FACTS, NAMES, is_name

ATTEMPT = AttemptId(1, 1)
DEPTH = 3000


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="swell-hostile-"))
    try:
        yield made
    finally:
        subprocess.run(["rm", "-rf", str(made)], check=True)


def until(is_true: object, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)


# -- tasks ---------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(FACTS, MORE_FACTS, NAMES).filter(is_name), max_size=12, unique=True), st.randoms())
def test_a_tasks_folder_with_any_names_says_what_became_of_it(names: list[str], random: object) -> None:
    with folder() as made:
        for name in names:
            with contextlib.suppress(OSError):
                KINDS[random.choice(sorted(KINDS))](made / name)  # type: ignore[attr-defined]
        found = tasks.inspect(made)
        assert found.status in (Status.NEVER_BEGUN, Status.ENDED)
        assert found.code is None or 0 <= found.code <= 999
        assert found.begun_at <= time.time()
        assert found.ended_at <= time.time()


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", ["log", "lock"])
def test_whatever_lies_where_a_tasks_lock_should_be_it_is_looked_at_in_no_time(
    name: str, kind: str, tmp_path: Path
) -> None:
    KINDS[kind](tmp_path / name)
    assert tasks.inspect(tmp_path) == Found(Status.NEVER_BEGUN)


def test_a_name_that_nobody_of_us_made_says_nothing(tmp_path: Path) -> None:
    for name in (
        "begun.x.y",
        "begun.1",
        "begun.²²²²²²²²²²²²²²²².1",
        "exit.",
        "exit.one",
        f"exit.{'9' * 200}",
        "cause.A b",
    ):
        (tmp_path / name).touch()
    assert tasks.inspect(tmp_path) == Found(Status.NEVER_BEGUN)


def test_a_log_from_the_future_does_not_make_its_task_end_there(tmp_path: Path) -> None:
    """The log is its user's on a box, who may set its time: the job would have run for thousands of years."""
    (tmp_path / "begun.99.0").touch()
    (tmp_path / "log").touch()
    os.utime(tmp_path / "log", (2**40, 2**40))
    found = tasks.inspect(tmp_path)
    assert (found.status, found.note) == (Status.ENDED, "keeper")
    assert found.ended_at <= time.time()


@given(st.lists(st.one_of(NAMES, FACTS).filter(is_name), max_size=12, unique=True), st.randoms())
def test_a_run_is_taken_up_whatever_lies_beside_its_tasks(names: list[str], random: object) -> None:
    with folder() as made:
        for name in names:
            with contextlib.suppress(OSError):
                KINDS[random.choice(sorted(KINDS))](made / name)  # type: ignore[attr-defined]
        machine = Machine("store", "boot", lambda *_: None, lambda _: None, made, None)
        run = Run(machine, replace(LAUNCH, own=()), made, {}, port=4000)
        run.take_up(boot_id="boot", now=0.0)
        assert run.alive == {}


# -- logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_log_that_is_no_file_is_no_log(kind: str, tmp_path: Path) -> None:
    for name in ("log", "index"):
        (tmp_path / "1.1/0").mkdir(parents=True, exist_ok=True)
        KINDS[kind](tmp_path / "1.1/0" / name)
    logs = LogFolder(tmp_path)
    is_file = kind in ("empty", "garbage", "huge", "hard link")
    assert (logs.size(ATTEMPT, 0) is not None) == is_file
    start, data = logs.read(ATTEMPT, 0, 0, 1000)
    assert start >= 0
    assert (data != b"") == (kind in ("garbage", "hard link"))
    assert logs.offset_at(ATTEMPT, 0, 1.0) is None or is_file
    LogWatch(tmp_path / "1.1/0").look()
    logs.erase(ATTEMPT)
    assert logs.size(ATTEMPT, 0) is None


@given(st.binary(max_size=300))
def test_what_a_container_runtime_said_may_be_any_bytes(said: bytes) -> None:
    with folder() as made:
        (made / "log").write_bytes(said)
        assert failure_text(made / "log")


@given(st.binary(max_size=60))
def test_a_users_process_that_resolves_paths_may_say_anything(said: bytes) -> None:
    found = parse_found(said)
    assert found is None or all(path.is_absolute() for path in found)


LEASE = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""
#: whatever opens a log, and what it says of one that its user keeps shut
OPENERS: dict[str, tuple[Callable[[Path], object], object]] = {
    "the limit of its length": (lambda task: LogWatch(task, bytes_max=100, step=100).look(), None),
    "reading it": (lambda task: LogFolder(task.parent.parent).read(ATTEMPT, 0, 0, 100), (0, b"")),
    "why a container did not start": (lambda task: failure_text(task / "log"), "the container runtime did not say why"),
    "another keeper": (lambda task: _opened_for_a_keeper(task / "log"), "BlockingIOError"),
}


def _opened_for_a_keeper(log: Path) -> str:
    with contextlib.ExitStack() as stack:
        try:
            asuser._open(str(log), os.O_WRONLY | os.O_APPEND, stack)
        except OSError as error:
            return type(error).__name__
    return "opened"


@pytest.mark.parametrize("opener", sorted(OPENERS))
def test_nobody_waits_for_a_log_that_its_user_holds_a_lease_on(opener: str) -> None:
    """A job took a lease on its own log, and root's worker, which was to shorten it, stood still for 45 s, again and
    again, and everybody's jobs with it.
    """
    open_it, expected = OPENERS[opener]
    with folder() as made:
        task = made / str(ATTEMPT) / "0"
        task.mkdir(parents=True)
        (task / "log").write_bytes(b"x" * 1000)
        (task / "index").touch()
        argv = [sys.executable, "-c", LEASE, str(task / "log")]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            said: list[object] = []
            asking = threading.Thread(target=lambda: said.append(open_it(task)), daemon=True)
            asking.start()
            asking.join(PATIENCE_S)
            assert said == [expected]
            holder.kill()


@given(st.lists(st.one_of(FACTS, MORE_FACTS, NAMES).filter(is_name), max_size=12, unique=True))
def test_whose_keeper_it_is_is_told_by_whole_names_only(names: list[str]) -> None:
    """`int` of a part of a file's name raised for `begun.x`."""
    with folder() as made:
        task = made / str(ATTEMPT) / "0"
        task.mkdir(parents=True)
        for name in names:
            (task / name).touch()
        found = keeper_pid(made, ATTEMPT, 0)
        assert found is None or any(name.startswith(f"begun.{found}.") or "begun.0" in name for name in names)


# -- checkpoints ---------------------------------------------------------------------------------------------


def nest(top: Path, depth: int) -> None:
    """Far beyond what a path may be long."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_three_thousand_folders_inside_one_another_do_not_end_the_eraser() -> None:
    """They did, for good (RecursionError), and the models of everybody's deleted jobs stayed on the disk."""
    with folder() as made:
        (made / "1").mkdir()
        nest(made / "1", DEPTH)
        (made / "2").mkdir()
        eraser = Eraser(made)
        eraser.erase("1")
        eraser.erase("2")
        assert [path.name for path in made.iterdir() if not path.name.startswith(".")] == []
        until(lambda: not list(made.iterdir()), "the end of both")


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=12), st.randoms())
def test_a_folder_with_anything_in_it_is_removed_and_nothing_outside(paths: list[list[str]], random: object) -> None:
    with folder() as made:
        outside = made / "outside"
        outside.mkdir()
        (outside / "precious").write_text("kept")
        (made / "job").mkdir()
        for path in paths:
            with contextlib.suppress(OSError):
                place = (made / "job").joinpath(*path)
                place.parent.mkdir(parents=True, exist_ok=True)
                KINDS[random.choice(sorted(KINDS))](place)  # type: ignore[attr-defined]
        with contextlib.suppress(FileExistsError):
            (made / "job" / "link").symlink_to(outside)
        assert remove_tree(made, "job", slice_s=60)
        assert [path.name for path in made.iterdir()] == ["outside"]
        assert (outside / "precious").read_text() == "kept"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_to_be_removed_need_not_be_a_folder(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "job")
    assert remove_tree(tmp_path, "job")
    assert not os.path.lexists(tmp_path / "job")


def test_somebody_who_goes_on_writing_keeps_nobody_waiting() -> None:
    """A process of the user's has the folder open and makes files as fast as it can."""
    with folder() as made:
        (made / "1").mkdir()
        (made / "2").mkdir()
        handle = os.open(made / "1", os.O_RDONLY)
        has_enough = threading.Event()

        def write() -> None:
            for number in range(10**9):
                with contextlib.suppress(OSError):
                    os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
                if has_enough.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        try:
            eraser = Eraser(made)
            eraser.erase("1")
            eraser.erase("2")
            until(lambda: not list(made.glob(".erased-2*")), "the second, while the first goes on")
        finally:
            has_enough.set()
            writer.join()
            os.close(handle)
        until(lambda: not list(made.iterdir()), "the first, when nobody writes any more")


def test_a_mount_inside_is_left_alone_and_the_others_go(caplog: pytest.LogCaptureFixture) -> None:
    """Users may mount what they like in folders of their own (FUSE); whoever enters such a mount may never return."""
    with folder() as made:
        for name in ("1", "2"):
            (made / name / "inside").mkdir(parents=True)
        eraser = Eraser(made)
        try:
            subprocess.run(["mount", "-t", "tmpfs", "none", str(made / "1/inside")], check=True)
            (made / "1/inside/file").write_text("of another file system")
            eraser.erase("1")
            eraser.erase("2")
            until(lambda: not list(made.glob(".erased-2*")), "the end of the second")
            (left,) = made.iterdir()
            mounted = next(path for path in left.iterdir() if path.is_mount())
            assert (mounted / "file").read_text() == "of another file system"
        finally:
            for path in made.glob(".erased-1*/*"):
                subprocess.run(["umount", str(path)], check=False, capture_output=True)
        assert "could not be removed" in caplog.text


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux is missing: make system")
def test_one_who_is_not_root_removes_folders_that_may_not_be_entered() -> None:
    with folder() as made:
        made.chmod(0o777)
        script = "mkdir -p job/a/b && touch job/a/b/f && chmod 0 job/a/b && chmod 0 job/a"
        become = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "--inh-caps=-all"]
        subprocess.run([*become, "sh", "-c", script], cwd=made, check=True)
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            os.setgroups([])
            os.setresgid(65533, 65533, 65533)
            os.setresuid(65533, 65533, 65533)
            os._exit(0 if remove_tree(made, "job") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert list(made.iterdir()) == []
