"""Do the tests of a tier pass, and which of them fail only now and then?

python tools/run_tests.py fast       # what needs no server process: part of `make check`
python tools/run_tests.py local      # everything that needs no Kubernetes: `make test`
python tools/run_tests.py cluster    # everything that needs one: `make test-cluster`

Tests run in several processes, those of one file in one. Tests that start servers wait most of their time, so there are
more processes than cores. Whatever failed is run once more, alone, when all the others are done. A test that passes
then is printed as `FLAKE: test` and does not fail the run, unless there are too many of them: docs/flakes.md keeps each
with its cause. FLAKES names a file that counts them over several calls, as `.ci/run` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TIERS = {
    "fast": "not slow and not cluster and not soak",
    "local": "not cluster and not soak",
    "cluster": "cluster and not soak",
}
#: fast tests use a core each; the others wait most of their time for a server or a cluster (docs/testing.md, Times)
PROCESSES_PER_CORE = {"fast": 1, "local": 4, "cluster": 2}
#: what a user's shell does not have: with the first a test cannot see what a buffer holds back; with the second every
#: process that a test starts compiles all of Swell again
NOT_A_USERS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
UNUSED = ("-p", "no:schemathesis")  # as a plugin of pytest; each process would import it, for 0.4 s of CPU
FLAKES_MAX = 3  # more than that is no bad luck: something is broken, or the machine is
RETRIED_MAX = 20  # when so many fail they were broken by one thing; running them again would only take time
NESTED_MAX = 20_000  # calls, of which a folder takes two
TESTS_FAILED = 1  # pytest's exit code for it; every other one means that the tests were not run to their end


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0] not in TIERS:
        print(f"usage: run_tests.py {'|'.join(TIERS)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    code = run_tier(words[0])
    took_s = round(time.monotonic() - began)
    print(f"{words[0]} tests: {took_s // 60} min {took_s % 60} s", flush=True)
    return code


def run_tier(tier: str) -> int:
    compile_tests(tier)
    processes = PROCESSES_PER_CORE[tier] * (os.cpu_count() or 1)
    by_file = ["-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder"]
    code, failed = run_pytest(*by_file, "-m", TIERS[tier])
    if code != TESTS_FAILED or not failed or len(failed) > RETRIED_MAX:
        return code
    print(f"{len(failed)} failed; running them once more, alone", flush=True)
    return judge(failed, *run_pytest("-n", "1", *failed))


def compile_tests(tier: str) -> None:
    """Once in a fresh folder: several processes that begin at the same time would each do it, for 10 s of CPU."""
    if next((ROOT / "tests").rglob("*-pytest-*.pyc"), None) is None:
        argv = [sys.executable, "-m", "pytest", "-qq", "--collect-only", "-m", TIERS[tier]]
        subprocess.run(argv, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, check=False)


def run_pytest(*words: str) -> tuple[int, list[str]]:
    """The exit code, and the names of the tests that failed."""
    with tempfile.NamedTemporaryFile("r", prefix="failed-tests-") as failed:
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "tools.run_tests", *UNUSED, *words]
        env = {**environment(), "FAILED_TESTS": failed.name}
        code = subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode
        return code, sorted({line.rstrip("\n") for line in failed})


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_A_USERS}


def pytest_runtest_logreport(report: Any) -> None:
    """Called by pytest, in which this file is a plugin. Its own memory of failures forgets what xdist ran again."""
    if report.failed:
        with Path(os.environ["FAILED_TESTS"]).open("a", errors="surrogateescape") as file:
            file.write(f"{report.nodeid}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Pytest removes the folders of earlier runs now, by a recursion. One that was killed leaves 3,000 nested ones."""
    sys.setrecursionlimit(NESTED_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who hands files to processes. xdist's own waits for ever after a process died.

    It hands out again all files of that process, also those whose tests have all run. A process that is given only such
    a file has no test to report, and is given nothing else.
    """
    from xdist.scheduler import LoadFileScheduling

    class UnfinishedFiles(LoadFileScheduling):  # type: ignore[misc]
        def _assign_work_unit(self, node: Any) -> None:
            for file in [file for file, tests in self.workqueue.items() if all(tests.values())]:
                del self.workqueue[file]
            if self.workqueue:
                super()._assign_work_unit(node)
            else:
                node.shutdown()

    return UnfinishedFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Any:
    """A failed test may show text that is no UTF-8, which cannot be sent to the process that prints it."""
    return sendable((yield))


def sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {sendable(key): sendable(one) for key, one in value.items()}
    return type(value)(map(sendable, value)) if isinstance(value, list | tuple) else value


def judge(failed: list[str], code: int, again: list[str]) -> int:
    """The exit code after the second run; prints what passed there."""
    flakes = [test for test in failed if test not in again]
    if code not in (0, TESTS_FAILED):
        return code
    for test in flakes:
        print(f"FLAKE: {test}", flush=True)
    total = count_flakes(flakes)
    if total > FLAKES_MAX:
        print(f"{total} tests failed only now and then; {FLAKES_MAX} are tolerated", flush=True)
    return TESTS_FAILED if again or total > FLAKES_MAX else 0


def count_flakes(flakes: list[str]) -> int:
    """These, and those that earlier calls have written into the file that FLAKES names."""
    if not (name := os.environ.get("FLAKES")):
        return len(flakes)
    with Path(name).open("a+") as file:
        file.writelines(f"{test}\n" for test in flakes)
        file.seek(0)
        return len(file.readlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
