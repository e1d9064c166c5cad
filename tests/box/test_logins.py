"""What a login makes anew for a user is new for a job and a notice, too, whatever the last user did."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from box.machine import SYSTEM_PYTHON, Machine, Person, wait_for
from swell.machine.keyring import KEYCTL, join_new_keyring
from swell.worker import asuser

pytestmark = pytest.mark.slow

SECRET = "swell-secret-of-somebody"
#: says what it was given, and then spoils all of it for whoever has the same
PROBE = """
import ctypes, json, os, resource, signal, sys
number, key, told = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
call = ctypes.CDLL(None, use_errno=True).syscall
def keyctl(*words):
    return call(*[ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in (number, *words)])
mask = os.umask(0)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
signals = {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")}
found = {
    "keys": [keyctl(10, -3, b"user", key, 0) > 0, keyctl(11, -3, None, 0)],
    "umask": mask,
    "oom_score_adj": int(open("/proc/self/oom_score_adj").read()),
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "ionice": call(ctypes.c_long(int(sys.argv[4])), ctypes.c_long(1), ctypes.c_long(0)),
    "scheduler": os.sched_getscheduler(0),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"},
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "ignored": signals["SigIgn"],
    "capabilities": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "has a terminal": os.path.exists("/dev/tty") and not os.system("exec 2>/dev/null < /dev/tty"),
    "session": os.getsid(0) == int(os.getppid()) or os.getsid(0),
    "groups": sorted({os.getgid(), *os.getgroups()}),
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2 and
                          os.path.exists("/proc/self/fd/" + name)),
}
with open(told + ".part", "w") as file:
    json.dump(found, file)
call(ctypes.c_long(number - 2 if number != 219 else 217), b"user", key, b"mine", ctypes.c_long(6), ctypes.c_long(-3))
os.nice(5)
open("/proc/self/oom_score_adj", "w").write("900")
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.rename(told + ".part", told)
"""
IOPRIO_GET = {"x86_64": 252, "aarch64": 31, "riscv64": 31, "loongarch64": 31, "ppc64le": 274, "s390x": 283}


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    join_new_keyring()  # as systemd gives a service one
    with Machine() as machine:
        yield machine


def words(told: Path) -> tuple[str, ...]:
    machine = platform.machine()
    return SYSTEM_PYTHON, "-c", PROBE, str(KEYCTL[machine]), SECRET, str(told), str(IOPRIO_GET[machine])


def as_a_job(box: Machine, person: Person) -> dict[str, Any]:
    told = person.home / "told"
    box.until(person.start("--", *words(told)), "succeeded")
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def as_a_notice(person: Person) -> dict[str, Any]:
    told = person.home / "noticed"
    script = person.home / "notice"
    (person.home / "probe.py").write_text(PROBE)
    script.write_text(f"#!/bin/sh\nexec {SYSTEM_PYTHON} {person.home}/probe.py {' '.join(words(told)[3:])}\n")
    script.chmod(0o755)
    person.start("--notify", str(script), "--", "true")
    wait_for(told.exists, "the notice")
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def expected(person: Person, **other: Any) -> dict[str, Any]:
    groups = sorted(os.getgrouplist(person.name, person.gid))
    return {
        "keys": [False, 0],
        "umask": 0o022,
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),  # the operator says how the service is run
        "blocked": [],
        "capabilities": ["0" * 16] * 4,
        "has a terminal": False,
        "scheduler": 0,
        "groups": groups,
        "ids": [person.uid, person.uid, person.gid, person.gid],
        "descriptors": [],
        **other,
    }


def test_what_a_login_makes_anew_a_job_has_anew(box):
    """Jobs of all users shared the service's session keyring: a key that one had added was read by another's job."""
    anna, ben, _ = box.people
    first, second, again = as_a_job(box, anna), as_a_job(box, ben), as_a_job(box, anna)
    for found, person in ((first, anna), (second, ben), (again, anna)):
        assert {name: found[name] for name in expected(person)} == expected(person)
    shared = {"limits", "ionice", "ignored", "session"}
    assert {name: second[name] for name in shared} == {name: first[name] for name in shared}


def test_what_protects_the_service_from_the_hunger_for_memory_does_not_protect_a_job(tmp_path):
    """Not through /proc: whether root may lower it depends on where the tests run."""
    given = tmp_path / "oom_score_adj"
    for before, after in (("-500", "0\n"), ("0", "0"), ("200", "200")):
        given.write_text(before)
        script = asuser.ENTER.replace("/proc/self/oom_score_adj", str(given))
        done = subprocess.run(["/bin/sh", "-c", script, "enter", "--", "echo", "in"], capture_output=True, check=True)
        assert (done.stdout, done.stderr, given.read_text()) == (b"in\n", b"", after)
    script = asuser.ENTER.replace("/proc/self/oom_score_adj", str(tmp_path / "none"))
    done = subprocess.run(["/bin/sh", "-c", script, "enter", "--", "echo", "in"], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"in\n", b"")


def test_so_has_a_notice(box):
    _, ben, cleo = box.people
    first, second = as_a_notice(ben), as_a_notice(cleo)
    for found, person in ((first, ben), (second, cleo)):
        assert {name: found[name] for name in expected(person)} == expected(person, umask=0o077)
    assert {name: second[name] for name in ("limits", "ionice")} == {name: first[name] for name in ("limits", "ionice")}
