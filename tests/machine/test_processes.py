"""How we learn that a process has ended."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import swell
from swell.api import checkpoints
from swell.machine.processes import wait_for_end

MANY = 1100  # `select` knows 1024


@pytest.fixture
def many() -> Iterator[None]:
    """Descriptors that are in use: the next one is above 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * MANY), hard))
    taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(MANY)]
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_end_is_heard_of_also_by_a_server_that_many_are_connected_to(many):
    """The thread that keeps the worker alive ended when it was to watch one with a descriptor above 1024."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        assert not wait_for_end(sleeper.pid, 0.01)
        sleeper.kill()
        assert wait_for_end(sleeper.pid, 20)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_nothing_of_ours_waits_with_select():
    """Also the process that looks at a user's checkpoint could not be heard above descriptor 1024."""
    root = Path(swell.__file__).parent
    found = [str(path.relative_to(root)) for path in root.rglob("*.py") if "select.select(" in path.read_text()]
    assert found == [], "use machine.processes.ready"


def test_a_users_process_that_looks_is_heard_with_any_descriptor(many):
    child = subprocess.Popen(["printf", "/a"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.fileno() > 1024
    assert checkpoints._output(child) == b"/a"
