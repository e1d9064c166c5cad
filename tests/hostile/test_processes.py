"""Processes that say anything of themselves: real ones, looked at as root looks at them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import PATIENCE_S
from swell.doctor.gpus import _commands
from swell.model.cluster import Device
from swell.model.job import AttemptId, Numbered
from swell.model.launch import LaunchRole
from swell.worker import examine, processes
from swell.worker.environment import OURS, run_variables, task_variables
from swell.worker.nvml import GpuProcess, Reading
from swell.worker.sampler import Sample
from swell.worker.watch import Claim, Watch
from worker.test_environment import LAUNCH

from .test_loops import wait_for
from .things import NUMBERS

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"  # ours may lie where only root can go
VARIABLES = st.sampled_from([b"SWELL_STORE", b"SWELL_ATTEMPT", b"SWELL_TASK_INDEX", b"SWELL_", b"PATH"])
TEXTS = st.one_of(
    st.binary(max_size=40).filter(lambda text: b"\0" not in text),
    NUMBERS.filter(lambda text: "\0" not in text).map(os.fsencode),
    st.sampled_from([b"9" * 5000, b"1.1", b"store", b"1." + b"9" * 5000, b"\xff.\xfe", "²".encode()]),
)
ENVIRONMENTS = st.dictionaries(VARIABLES, TEXTS, max_size=5)
#: what a process calls itself; the kernel shows it in /proc/PID/stat and comm as it is
RENAMED = (
    "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0);"
    "print('up', flush=True); sys.stdin.read()"
)
#: it makes the kernel believe that its environment and its words are a gigabyte of zeros; anybody may (PR_SET_MM_MAP)
ENDLESS = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
size = 1 << 30
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = libc.mmap(None, size, 3, 0x22, -1, 0)
stat = [0, 0, 0, *open("/proc/self/stat").read().rpartition(")")[2].split()]
start_code, end_code, start_stack = (int(stat[n]) for n in (26, 27, 28))
start_data, end_data, start_brk = (int(stat[n]) for n in (45, 46, 47))
brk = libc.sbrk(ctypes.c_long(0))
fields = (start_code, end_code, start_data, end_data, start_brk, brk, start_stack, at, at + size, at, at + size, 0)
layout = ctypes.create_string_buffer(struct.pack("<12QII", *fields, 0, 0xFFFFFFFF))
libc.prctl.argtypes = [ctypes.c_int] + 4 * [ctypes.c_ulong]
assert libc.prctl(35, 14, ctypes.addressof(layout), 104, 0) == 0, ctypes.get_errno()
print("up", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(*argv: str, env: dict[bytes, bytes] | None = None) -> Iterator[int]:
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child.pid
        finally:
            os.kill(child.pid, signal.SIGKILL)


def sample(pid: int, *, at: float) -> Sample:
    found = processes.trace(pid)
    assert found is not None
    readings = (Reading("a", 16384, 1000, 0, (GpuProcess(pid, 1000),)),)
    return Sample(at, readings, {pid: found})


@settings(max_examples=25)
@given(ENVIRONMENTS)
def test_a_gpu_process_may_have_any_environment(env: dict[bytes, bytes]) -> None:
    """It runs as us, so at the most it counts for a job of ours: one that runs."""
    watch = Watch("store", (Device("a", 16384, "A100"),))
    claim = Claim(AttemptId(1, 1), {1: 0}, ("a",), os.getuid())
    with process("/bin/sh", "-c", "echo up; read _", env=env) as pid:
        for at in (0.0, 2.0):
            watch.take(sample(pid, at=at), [claim])
        assert processes.members(None, processes.marks("other", "9.9")) == []
        assert processes.is_keeper(pid, processes.marks("other", "9.9")) is False
        assert examine._process(GpuProcess(pid, 1))["job"] in (None, 1)
    is_ours = env.get(b"SWELL_STORE") == b"store" and env.get(b"SWELL_ATTEMPT") == b"1.1"
    assert watch.seen(AttemptId(1, 1)) is not None
    assert watch.seen(AttemptId(1, 1)).memory_mib == (1000 if is_ours else 0)  # type: ignore[union-attr]
    (offered,) = watch.devices((Device("a", 16384, "A100"),))
    assert offered.outsiders_mib == (0 if is_ours else 1024)


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b") R 1 1 1 (", b"a\nUid:\t0\t0\t0", b"\x1b[2J", b"(((((", b"0) Z 0 0 0", b"\n\n\n\n"]
)
def test_a_process_may_call_itself_anything(name: bytes) -> None:
    with process(sys.executable, "-c", RENAMED, name.hex()) as pid:
        found = processes.trace(pid)
        assert found is not None
        assert (found.group, found.session, found.uid) == (pid, pid, os.getuid())
        assert pid in processes.members(pid + 10_000_000, ()) or pid in processes.members(None, ())
        assert pid in _commands()
        shown = examine._command(pid)
        assert shown is not None
        assert shown.isprintable()


def test_a_process_with_an_endless_environment_is_read_a_little_and_left() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with process(sys.executable, "-c", ENDLESS) as pid:
        began = time.monotonic()
        assert processes.trace(pid) is not None
        assert not processes.is_keeper(pid, processes.marks("store", "1.1"))
        assert examine._command(pid) is not None
        assert time.monotonic() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_where_control_groups_tell_whose_a_process_is_its_memory_is_not_read() -> None:
    """What it has there can be a lie, and a page that nobody delivers: the reader would wait for ever."""
    in_groups, in_none = processes.Confined(NOBODY, ()), processes.Confined(NOBODY, None)
    env = {b"SWELL_STORE": b"only-here", b"SWELL_ATTEMPT": b"1.1"}
    become = ("/usr/bin/setpriv", "--reuid", str(NOBODY), "--clear-groups")
    with process(*become, "/bin/sh", "-c", "echo up; read _", env=env) as pid:
        marks = processes.marks("only-here", "1.1")
        assert processes.members(None, marks, in_none) == [pid]
        assert processes.members(None, marks, in_groups) == []


def test_a_process_that_ends_while_it_is_looked_at_is_nobody() -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert processes.trace(gone.pid) is None
    assert processes.group_is_empty(gone.pid)
    assert examine._command(gone.pid) is None


@given(st.dictionaries(st.sampled_from(sorted(OURS)), st.text(max_size=20), min_size=1))
def test_a_manifests_variables_are_never_ours(env: dict[str, str]) -> None:
    """They did override ours: root's keeper carried the marks of somebody else's job."""

    def told(launch: object, role: LaunchRole) -> dict[str, str]:
        shared = run_variables(launch, {}, store="store", port=4000)  # type: ignore[arg-type]
        return task_variables(shared, launch, role, index=0, local_rank=0, devices=())  # type: ignore[arg-type]

    clean = told(LAUNCH, LaunchRole(("true",)))
    pairs = tuple(sorted(env.items()))
    numbered = tuple(Numbered(name) for name in sorted(env))
    assert told(replace(LAUNCH, env=(*LAUNCH.env, *pairs)), LaunchRole(("true",))) == clean
    assert told(LAUNCH, LaunchRole(("true",), pairs, numbered)) == clean


@pytest.mark.parametrize(
    "confined",
    [processes.Confined(os.getuid(), ()), processes.Confined(os.getuid() + 1, None)],
    ids=["in control groups", "another user without any"],
)
def test_a_keepers_number_that_somebody_else_has_by_now_makes_them_nobodys_task(confined: processes.Confined) -> None:
    """Root's worker asked and killed whoever got the number of a keeper that had ended."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True) as other:
        try:
            marks = processes.marks(f"of-nobody-{os.getpid()}", "1.1", 0)  # tasks of other tests say "store"
            found = processes.members(other.pid, marks, confined), processes.group_is_empty(other.pid, confined)
            assert found == ([], True)
        finally:
            os.killpg(other.pid, signal.SIGKILL)


#: holds every thread of another process back from its end, for as long as it lives itself
TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, TRACEEXIT = 0x4206, 0x40
for thread in os.listdir(f"/proc/{sys.argv[1]}/task"):
    words = [ctypes.c_long(word) for word in (SEIZE, int(thread), 0, TRACEEXIT)]
    assert libc.ptrace(*words) == 0, os.strerror(ctypes.get_errno())
print("holds", flush=True)
sys.stdin.read()
"""
#: its first thread has ended long before the other
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@contextlib.contextmanager
def as_nobody(*words: str, said: bytes = b"") -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/") as child:
        assert child.stdout is not None
        assert not said or child.stdout.readline() == said + b"\n"
        try:
            yield child
        finally:
            child.kill()


def kill_until_gone(group: Path, pid: int) -> bool:
    (group / "cgroup.procs").write_text(str(pid))
    confined, killed, until = processes.Confined(NOBODY, (group,)), set[int](), time.monotonic() + PATIENCE_S
    while processes.kill(None, (), confined, killed):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_who_traces_a_process_cannot_keep_it_from_being_ended(tmp_path: Path) -> None:
    """With PTRACE_O_TRACEEXIT a job outlived SIGKILL, its time limit and its administrator, and held its GPUs."""
    with (
        as_nobody("sleep", "1000") as held,
        as_nobody(SYSTEM_PYTHON, "-c", TRACER, str(held.pid), said=b"holds") as first,
        as_nobody(SYSTEM_PYTHON, "-c", TRACER, str(first.pid), said=b"holds") as second,
    ):
        assert kill_until_gone(tmp_path, held.pid)
        assert [one.wait(PATIENCE_S) for one in (held, first, second)] == [-signal.SIGKILL] * 3


def test_somebody_elses_tracer_is_left_alone_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with as_nobody("sleep", "1000") as held:
        words = (SYSTEM_PYTHON, "-c", TRACER, str(held.pid))
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as roots:
            assert roots.stdout is not None
            assert roots.stdout.readline() == b"holds\n"
            (tmp_path / "cgroup.procs").write_text(str(held.pid))
            confined, killed = processes.Confined(NOBODY, (tmp_path,)), set[int]()
            assert [processes.kill(None, (), confined, killed) for _ in range(3)] == [1, 1, 1]
            assert roots.poll() is None
            told = f"process {roots.pid} keeps process {held.pid} of a task from ending: it traces it"
            assert [record.getMessage() for record in caplog.records] == [told]
            roots.kill()
        assert held.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_process_without_its_first_thread_is_still_one(tmp_path: Path) -> None:
    """It looks like a zombie, and was nobody's: its task had ended, and it went on."""
    with as_nobody(SYSTEM_PYTHON, "-c", HEADLESS, said=b"up") as held:
        wait_for(lambda: processes._stat_fields(held.pid)[0] == b"Z", "the end of its first thread")
        (tmp_path / "cgroup.procs").write_text(str(held.pid))
        assert processes.members(None, (), processes.Confined(NOBODY, (tmp_path,))) == [held.pid]
        assert kill_until_gone(tmp_path, held.pid)
