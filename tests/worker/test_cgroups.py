"""Where control groups are made, on machines of all kinds; and what this one's kernel does with them."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.worker import cgroups, devicefilter
from swell.worker.cgroups import Base, Groups, Hierarchy
from swell.worker.limits import TaskLimits, killed_for_memory, make_groups, processes_max, shares_of, weight_of

MAJOR = 195  # of NVIDIA's GPUs; there is no driver here, so one that may be opened has no such device behind it
ALLOWED, DENIED = "No such device or address", "Operation not permitted"


def mount(kind: str, point: Path, options: str = "rw") -> bytes:
    point.mkdir(parents=True, exist_ok=True)
    return f"30 23 0:26 / {point} rw shared:4 - {kind} {kind} {options}\n".encode()


def test_with_version_1_each_controller_has_a_hierarchy_of_its_own(tmp_path: Path) -> None:
    mounts = mount("cgroup", tmp_path / "memory", "rw,memory") + mount("cgroup", tmp_path / "cpu", "rw,cpu,cpuacct")
    (tmp_path / "memory/box").mkdir()
    own = b"4:memory:/box\n1:cpu,cpuacct:/elsewhere\n0::/\n"
    assert list(cgroups.parse(mounts, own)) == [
        Hierarchy(1, frozenset({"memory"}), tmp_path / "memory/box", "/box"),
        Hierarchy(1, frozenset({"cpu", "cpuacct"}), tmp_path / "cpu", "/"),  # a container sees only a part
    ]


@pytest.mark.parametrize(("inside", "folder"), [("/swell.service", "swell.service"), ("/a/swell-itself", "a")])
def test_with_version_2_there_is_one_and_systemd_may_have_put_us_beside_our_tasks(
    inside: str, folder: str, tmp_path: Path
) -> None:
    mounts = mount("cgroup2", tmp_path)
    (tmp_path / inside.lstrip("/")).mkdir(parents=True)
    (tmp_path / folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (found,) = cgroups.parse(mounts, f"0::{inside}\n".encode())
    assert found == Hierarchy(2, frozenset({"cpu", "memory", "pids"}), tmp_path / folder, f"/{folder}")


@pytest.mark.parametrize("limit", ["memory", "pids", "cpu"])
def test_with_version_2_a_group_of_others_that_has_processes_is_left_as_it_is(limit: str, tmp_path: Path) -> None:
    """Of a service or a login session: the kernel handed "pids" down there, and then no task could enter its group."""
    folder, base = (
        tmp_path / "session-3.scope",
        Base(tmp_path / "session-3.scope/swell-x", 2, "/session-3.scope/swell-x"),
    )
    base.folder.mkdir(parents=True)
    for name, text in (("cgroup.type", "domain\n"), ("cgroup.procs", "1\n"), ("cgroup.subtree_control", "")):
        (folder / name).write_text(text)
    why = cgroups.hand_down(Hierarchy(2, frozenset({limit}), folder, "/session-3.scope"), base, limit)
    assert why == f"{folder} does not delegate it: Device or resource busy; systemd 254 arranges that for the service"
    left = [(folder / name).read_text() for name in ("cgroup.procs", "cgroup.subtree_control")]
    assert (left, list(base.folder.iterdir())) == (["1\n", ""], [])


def test_what_is_limited_in_version_2_is_written_as_its_kernel_reads_it(tmp_path: Path) -> None:
    """The files are only looked at; `tools/soak.py cgroups2` has a kernel that reads them."""
    base = Base(tmp_path, 2, "/swell-x", frozenset({"memory", "pids", "cpu"}))
    files = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight", "cpu.max")
    (tmp_path / "1.1.0").mkdir()
    for name in files:
        (tmp_path / "1.1.0" / name).touch()
    groups = Groups((base,))
    assert make_groups(groups, "1.1.0", TaskLimits(100, 64, 2000, 500)) == (tmp_path / "1.1.0",)
    written = [(tmp_path / "1.1.0" / name).read_text() for name in files]
    assert written == [str(64 << 20), "0", "1", "100", "79", "50000 100000"]
    (tmp_path / "1.1.0/memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert killed_for_memory(groups, "1.1.0") == 64
    (tmp_path / "1.1.0/memory.peak").write_text(f"{60 << 20}\n")
    assert killed_for_memory(groups, "1.1.0") == 60
    (tmp_path / "1.1.0/memory.events").write_text("oom_kill 0\n")
    assert killed_for_memory(groups, "1.1.0") is None


def test_a_share_of_the_cpus_is_what_was_asked_for_and_weighs_as_in_kubernetes() -> None:
    assert [shares_of(milli) for milli in (0, 1, 500, 1000, 8000, 10**9)] == [1024, 2, 512, 1024, 8192, 262144]
    assert [weight_of(shares) for shares in (2, 1024, 262144)] == [1, 39, 10000]


def test_two_tasks_never_have_every_process_number_there_is() -> None:
    assert processes_max(None) <= int(Path("/proc/sys/kernel/pid_max").read_text()) // 2
    assert processes_max(77) == 77


# -- with this machine's kernel ------------------------------------------------------------------------------


@pytest.fixture
def groups() -> Iterator[Groups]:
    assert os.geteuid() == 0, "control groups are root's to make: sudo make test"
    found = cgroups.find(f"test-{secrets.token_hex(4)}")
    assert found is not None
    try:
        yield found
    finally:
        for base in found.bases:
            for group in base.folder.glob("*/"):
                cgroups.remove(group)
        found.close()
        assert not [base for base in found.bases if base.folder.exists()]


def run_in(folders: tuple[Path, ...], script: str) -> subprocess.CompletedProcess[str]:
    enter = "".join(f"echo 0 > {folder}/cgroup.procs\n" for folder in folders)
    return subprocess.run(["/bin/sh", "-c", enter + script], capture_output=True, text=True, check=False, timeout=60)


def need(groups: Groups, limit: str) -> None:
    why = dict(groups.unenforced).get(limit)
    assert why is None, f"this machine cannot limit {limit}: {why}"


def test_what_takes_more_memory_than_its_limit_is_killed_and_known_to_be(groups: Groups) -> None:
    need(groups, "memory")
    inside = make_groups(groups, "1.1.0", TaskLimits(1000, 64))
    done = run_in(inside, "exec python3 -c 'bytearray(200 << 20)'")
    assert done.returncode == -9
    assert killed_for_memory(groups, "1.1.0") == 64
    assert killed_for_memory(groups, "1.1.1") is None


def test_what_stays_below_its_limit_is_left_alone(groups: Groups) -> None:
    inside = make_groups(groups, "1.1.0", TaskLimits(1000, 256))
    assert run_in(inside, "exec python3 -c 'bytearray(64 << 20)'").returncode == 0
    assert killed_for_memory(groups, "1.1.0") is None


def test_a_fork_bomb_ends_at_the_limit(groups: Groups) -> None:
    need(groups, "pids")
    inside = make_groups(groups, "1.1.0", TaskLimits(20))
    script = "for n in $(seq 60); do sleep 5 & done; wait"
    done = run_in(inside, script)
    assert "Cannot fork" in done.stderr
    for pid in cgroups.pids(groups.holding("1.1.0")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    until_empty(groups)


def until_empty(groups: Groups) -> None:
    end = time.monotonic() + 10
    while cgroups.pids(groups.holding("1.1.0")):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_has_a_limit_of_cpus_uses_no_more_where_more_are_free(groups: Groups) -> None:
    """A fifth of a CPU: half a second of CPU time takes two seconds at the least."""
    need(groups, "cpu")
    inside = make_groups(groups, "1.1.0", TaskLimits(100, 0, 100, 200))
    began = time.monotonic()
    done = run_in(inside, "exec python3 -c 'import time\nwhile time.process_time() < 0.5: pass'")
    assert (done.returncode, time.monotonic() - began > 1.5) == (0, True)


def test_its_share_of_the_cpus_is_written_down(groups: Groups) -> None:
    need(groups, "cpu")
    make_groups(groups, "1.1.0", TaskLimits(100, 0, 2500))
    base = groups.limiting("cpu")
    assert base is not None
    file, share = ("cpu.shares", "2560\n") if base.version == 1 else ("cpu.weight", "98\n")
    assert (base.folder / "1.1.0" / file).read_text() == share


@pytest.fixture
def device_files(tmp_path: Path) -> Path:
    for minor in range(4):
        os.mknod(tmp_path / f"nvidia{minor}", 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))
    return tmp_path


def opened(folders: tuple[Path, ...], files: Path) -> list[str]:
    script = f"for n in 0 1 2 3; do cat {files}/nvidia$n; done; cat /dev/null && echo null; ls -l {files} > /dev/null"
    done = run_in(folders, script)
    assert done.stdout == "null\n"
    return [line.rpartition(": ")[2] for line in done.stderr.splitlines()]


def test_gpus_that_are_not_its_own_cannot_be_opened(groups: Groups, device_files: Path) -> None:
    need(groups, "devices")
    inside = make_groups(groups, "1.1.0", TaskLimits(100, denied=((MAJOR, 1), (MAJOR, 3))))
    assert opened(inside, device_files) == [ALLOWED, DENIED, ALLOWED, DENIED]
    assert opened((), device_files) == [ALLOWED] * 4


def test_the_kernels_own_filter_denies_the_same_in_version_2(groups: Groups, device_files: Path) -> None:
    """Programs may hang on any group of version 2, whichever version has the controllers."""
    assert groups.bases[0].version == 2, "no hierarchy of version 2 is mounted here"
    assert devicefilter.problem() == ""
    group = groups.holding("1.1.0")
    group.mkdir()
    devicefilter.deny(group, [(MAJOR, 1), (MAJOR, 3)])
    assert opened((group,), device_files) == [ALLOWED, DENIED, ALLOWED, DENIED]
    devicefilter.deny(group, [(MAJOR, 0)])  # more programs, and one no is enough
    assert opened((group,), device_files) == [DENIED, DENIED, ALLOWED, DENIED]


def test_a_filter_of_as_many_devices_as_there_can_be_is_taken_by_the_kernel(groups: Groups) -> None:
    group = groups.holding("1.1.0")
    group.mkdir()
    devicefilter.deny(group, [(MAJOR, minor) for minor in range(devicefilter.DEVICES_MAX)])
    with pytest.raises(ValueError, match="more than the 128"):
        devicefilter.render(tuple((MAJOR, minor) for minor in range(129)))


@pytest.mark.parametrize("devices", [(), ((1, 2),), ((195, 0), (195, 7), (9, 9))])
def test_a_filter_says_no_to_exactly_those(devices: tuple[tuple[int, int], ...]) -> None:
    """As read by a small interpreter of the instructions that it uses."""
    program = devicefilter.render(devices)
    asked = [(kind, major, minor) for kind in (1, 2) for major in (1, 9, 195) for minor in (0, 2, 7, 9)]
    denied = [one for one in asked if not answer(program, *one)]
    assert denied == [one for one in asked if one[0] == 2 and one[1:] in devices]


def answer(program: bytes, kind: int, major: int, minor: int) -> int:
    steps = list(struct.iter_unpack("<BBhi", program))
    context = {0: kind | 2 << 16, 4: major, 8: minor}
    registers = [0] * 11
    at = 0
    while True:
        code, both, offset, value = steps[at]
        to = both & 15
        at += 1
        if code == 0x61:
            registers[to] = context[offset]
        elif code == 0x57:
            registers[to] &= value
        elif code == 0xB7:
            registers[to] = value
        elif code == 0x55:
            at += offset if registers[to] != value else 0
        elif code == 0x05:
            at += offset
        else:
            assert code == 0x95
            return registers[0]


def test_only_one_function_makes_groups_and_it_always_limits_processes() -> None:
    """A notice's control group was made by hand, and had no limits."""
    root = Path(cgroups.__file__).parent.parent
    makers = [str(path.relative_to(root)) for path in root.rglob("*.py") if "cgroups.make(" in path.read_text()]
    assert makers == ["worker/limits.py"]
