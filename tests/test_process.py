"""How we learn that a process has ended."""

from __future__ import annotations

import os
import resource
import subprocess

from swell.process import wait_for_end

MANY = 1100  # `select` knows 1024


def test_an_end_is_heard_of_also_by_a_server_that_many_are_connected_to():
    """The thread that keeps the worker alive ended when it was to watch one with a descriptor above 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * MANY), hard))
    taken = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(MANY)]
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        assert not wait_for_end(sleeper.pid, 0.01)
        sleeper.kill()
        assert wait_for_end(sleeper.pid, 20)
    finally:
        sleeper.kill()
        sleeper.wait()
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
