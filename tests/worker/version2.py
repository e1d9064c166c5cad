"""Do limits hold wherever a kernel with only version 2 may have put us? `tools/soak.py cgroups2` asks it of one.

Root's, in the group of all; then where a group that has processes of its own hands nothing down, so that Swell moves
them aside: in a container, which sees its own group as the whole, and in a scope that systemd has delegated.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ALL = Path("/sys/fs/cgroup")
CONTROLLERS = "+cpu +memory +pids"
GROUPS, STORY = "tests/worker/test_cgroups.py", "tests/e2e/test_limits.py"
#: Emulated, a server takes long to start; there is no folder to keep a cache in.
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider", "--timeout", "900")
#: As a runtime of containers does it: the group becomes the whole of what is mounted.
CONTAINER = f'umount {ALL}; mount -t cgroup2 cgroup2 {ALL}; exec "$@"'
CONTAINED = ("unshare", "--cgroup", "--mount", "sh", "-c", CONTAINER, "sh")
#: A service's group is not moved aside: nothing is limited there, which is said, and a task's group can be entered.
COUNTED_ONLY = """
from pathlib import Path
from swell.worker import cgroups
from swell.worker.limits import TaskLimits, make_groups
found = cgroups.find("x")
assert [limit for limit, _ in found.unenforced] == ["memory", "pids", "cpu"], found
(group,) = make_groups(found, "1.1.0", TaskLimits(100))
(group / "cgroup.procs").write_text("0")
assert Path("/proc/self/cgroup").read_text() == "0::/other.service/swell-x/1.1.0\\n"
print(found.unenforced)
"""


def main() -> int:
    ended = [
        play("the group of all", ALL, PYTEST, GROUPS, STORY),
        play("a container", made("container"), (*CONTAINED, *PYTEST), GROUPS),
        play("a delegated scope", made("run-1.scope", "trusted.delegate"), PYTEST, GROUPS),
        play("a service that is given nothing", made("other.service"), (sys.executable, "-c", COUNTED_ONLY)),
    ]
    return 1 if any(ended) else 0


def made(name: str, mark: str = "") -> Path:
    """A group that is handed everything down, as systemd marks those that it gives away."""
    (ALL / "cgroup.subtree_control").write_text(CONTROLLERS)
    group = ALL / name
    group.mkdir()
    if mark:
        os.setxattr(group, mark, b"1")
    return group


def play(where: str, group: Path, command: tuple[str, ...], *tests: str) -> int:
    print(f"in {where}:", flush=True)
    enter = ("sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh")
    return subprocess.run([*enter, *command, *tests], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
