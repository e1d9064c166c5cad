"""A machine that was restarted under its jobs says so, and runs nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from swell.client import Client
from swell.client.embedded import stop_server
from swell.machine.state_folder import StateFolder
from swell.worker import processes

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SWELL = str(Path(sys.executable).with_name("swell"))


def up(state: StateFolder, boot_id: Path) -> None:
    """Start the server where the kernel's boot id reads otherwise: in a mount namespace of its own."""
    assert shutil.which("unshare"), "this needs unshare: apt-get install -y util-linux"
    assert os.geteuid() == 0, "this needs root, to mount a file over the kernel's boot id: sudo make test"
    inside = f'mount --bind "$1" {BOOT_ID} && exec "$2" up -d --gpus 2 --cpus 4 --state "$3"'
    argv = ["unshare", "--mount", "sh", "-c", inside, "sh", str(boot_id), SWELL, str(state)]
    subprocess.run(argv, check=True, capture_output=True, text=True)


def pull_the_plug(state: StateFolder, store: str) -> None:
    """Everything ends at once: server, worker, keepers, tasks."""
    for name in ("server", "worker"):
        os.kill(state.lock_holder(name) or 0, signal.SIGKILL)
    mark = (f"SWELL_STORE={store}".encode(),)
    while processes.kill(None, mark):
        pass


@pytest.mark.slow
def test_a_restarted_machine_fails_what_ran_and_goes_on_with_what_waited(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    up(state, boot_id)
    client = Client(state)
    store = state.read_json(state.server_file)["store"]
    count = 'echo x >> "$0"; sleep 600'
    try:
        gang = client.submit(["sh", "-c", count, str(tmp_path / "gang")], name="gang", tasks=2, gpus=1)
        array = client.submit(["sh", "-c", 'echo x >> "$0"; test $JOB_COMPLETION_INDEX != 1 || sleep 600',
                               str(tmp_path / "array")], name="array", array="0-3%1")  # fmt: skip
        waits = client.submit(["true"], name="waits", gpus=2)
        while gang.state != "running" or array.document["tasks"]["succeeded"] != 1:
            gang.refresh(wait_s=1 if gang.state != "running" else 0)
            array.refresh(wait_s=1)
        pull_the_plug(state, store)

        boot_id.write_text(f"{uuid.uuid4()}\n")
        up(state, boot_id)
        client = Client(state)
        ended = [client.wait(job.id, timeout_s=60) for job in (gang, array, waits)]
        reasons = [job.document["reason"] and job.document["reason"]["code"] for job in ended]
        assert [job.state for job in ended] == ["failed", "failed", "succeeded"]
        assert reasons == ["MachineRestarted", "MachineRestarted", None]
        assert (tmp_path / "gang").read_text() == "x\nx\n"  # each rank once
        assert (tmp_path / "array").read_text() == "x\n" * 4  # and each index: 0, 1 (lost), 2, 3
        tasks = client.show(array.id)["attempts"][0]["tasks"]
        assert [(task["index"], task["exit_code"], task["cause"]) for task in tasks] == [
            (0, 0, None),
            (1, None, "machine-restarted"),
            (2, 0, None),
            (3, 0, None),
        ]
    finally:
        stop_server(state)
        processes.kill(None, (f"SWELL_STORE={store}".encode(),))
