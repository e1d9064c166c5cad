"""As the first process of a container, which looks after nobody but its own child."""

from __future__ import annotations

import subprocess
import sys

import pytest

from e2e.disks import need
from server import SWELL, Server

pytestmark = pytest.mark.slow

#: Waits for its child and for nothing else: what is left behind by others stays a zombie, as in many images.
FIRST_PROCESS = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
STORY = """
"$0" up -d && "$0" run -d -- sh -c 'sleep 600 & sleep 600 & exit 3' && "$0" wait --timeout 8s 1
"""


def test_a_job_ends_although_nobody_reaps_what_it_left_behind(tmp_path):
    server = Server(tmp_path)
    first = [need("unshare", "util-linux"), "--pid", "--fork", "--mount-proc", sys.executable, "-c", FIRST_PROCESS]
    done = subprocess.run(
        [*first, "sh", "-c", STORY, SWELL],
        env=server.environment(),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
