"""Make the state folder of an older Swell, with jobs in every state, as kill -9 leaves it.

git worktree add /tmp/older COMMIT && make -C /tmp/older environment
unshare --uts python tests/upgrade/make.py /tmp/older tests/upgrade/schema-NNNN.tar.gz

The host name, the boot and the folder are written as fixed words, which `state.py` replaces by those of
whoever reads it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

FOLDER = Path("/var/tmp/swell-before")  # the same wherever it is made; unpacking replaces it
STATE = FOLDER / "state"
HOST = "machine-before"
BOOT = "boot-before"
#: of processes that are gone, and of the machine
KEPT_NOT = (".lock", ".log", ".sock", ".yaml", "-shm", "server.json", "port", ".cgroups")
PATIENCE_S = 60.0

ENDLESS = ("sleep", "86400")
DEAF = ("sh", "-c", "trap '' TERM; while :; do sleep 86400; done")
SOME = ("sh", "-c", 'test "$JOB_COMPLETION_INDEX" -lt 2 || exec sleep 86400')
TRAINS = """
import json, os, time, urllib.request as web
os.makedirs(os.environ["SWELL_CHECKPOINTS"], exist_ok=True)
open(os.path.join(os.environ["SWELL_CHECKPOINTS"], "three"), "w").close()
saved = {"epochs_done": 3, "path": "three", "at": time.time()}
told = {"rank": 0, "begun": 4, "epochs_done": 3, "epochs": [[1, 9.0], [2, 6.0], [3, 6.5]], "steps": [300, 21.0],
        "memory_mib": 900, "checkpoint": saved, "metrics": {"loss": 0.5}}
where = os.environ["SWELL_URL"] + "/api/v1/attempts/" + os.environ["SWELL_ATTEMPT"] + "/report"
head = {"Authorization": "Bearer " + os.environ["SWELL_TOKEN"], "Content-Type": "application/json"}
web.urlopen(web.Request(where, json.dumps(told).encode(), head)).read()
time.sleep(86400)
"""
ELABORATE = """
apiVersion: swell/v1
kind: Job
metadata: {name: elaborate}
spec:
  priority: 3
  time: 2h
  grace: 45s
  workdir: /
  env: {COLOR: blue}
  after: [waits]
  retries: 2
  notify: ["true"]
  notifyOn: error
  tensorboard: /
  checkpoints: /
  epochs: 5
  resize: either
  tasks: 1..3
  cpus: 2
  memory: 1GiB
  gpus: 1
  command: ["true", "--flag"]
  utilizationPolicy: {minGpuUtilization: 5, window: 10m}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: pytorch}
spec:
  runPolicy: {suspend: true}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          nodeSelector: {zone: a}
          tolerations: [{key: gpu, operator: Exists}]
          containers: [{name: pytorch, image: train:1, command: ["true"], resources: {limits: {nvidia.com/gpu: 1}}}]
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: pytorch, image: train:1, command: ["true"], resources: {limits: {nvidia.com/gpu: 1}}}]
"""


class Older:
    """An older version's command line, on the folder that is to be kept."""

    def __init__(self, checkout: Path) -> None:
        self._bin = checkout / ".venv/bin"

    def swell(self, *words: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "HOME": "/", "USER": "ann", "LANG": "C.UTF-8", "SWELL_STATE": str(STATE)}
        done = subprocess.run(
            [self._bin / "swell", *words], env=env, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    def run(self, name: str, *words: str) -> str:
        """The job's id."""
        return self.swell("run", "-d", "--name", name, *words).strip()

    def until(self, name: str, state: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while (found := json.loads(self.swell("show", name, "-o", "json")))["state"] != state:
            assert time.monotonic() < until, found
            time.sleep(0.1)

    def until_reported(self, name: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not (found := json.loads(self.swell("show", name, "-o", "json"))).get("training"):
            assert time.monotonic() < until, found
            time.sleep(0.1)

    def told(self) -> list[dict[str, object]]:
        """Every job as that version shows it."""
        jobs = json.loads(self.swell("ps", "-a", "-o", "json"))
        return [json.loads(self.swell("show", str(job["id"]), "-o", "json")) for job in jobs]

    def keeper(self) -> str:
        """The script that ran around every task."""
        words = [self._bin / "python", "-c", "from swell.worker.tasks import KEEPER; print(KEEPER, end='')"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def pid(self, lock: str) -> int:
        return int((STATE / f"{lock}.lock").read_text())


def make(older: Older) -> list[dict[str, object]]:
    """Jobs in every state; what was said of them before everything was killed."""
    older.swell("up", "-d", "--gpus", "4", "--gpu-memory", "16GiB", "--cpus", "16")
    older.run("succeeded", "--", "true")
    older.run("failed", "--", "sh", "-c", "exit 3")
    older.run("cancelled", "--", *ENDLESS)
    older.until("cancelled", "running")
    older.swell("cancel", "--grace", "1s", "cancelled")
    older.run("running", "--", *ENDLESS)
    older.run("gang", "--tasks", "2", "--", *ENDLESS)
    older.run("array", "--array", "0-5%2", "--", *SOME)
    older.run("shares", "--gpu-memory", "4GiB", "--on-overrun", "stop", "--", *ENDLESS)
    for name in ("training", "asked"):
        older.run(name, "--gpus", "1", "--epochs", "20", "--", "python3", "-c", TRAINS)
        older.until_reported(name)
    older.swell("hold", "asked")
    older.run("stopping", "--grace", "1h", "--", *DEAF)
    older.until("stopping", "running")
    older.swell("cancel", "stopping")
    older.until("stopping", "stopping")
    older.run("retrying", "--retries", "90", "--", "sh", "-c", "exit 9")
    older.run("waits", "--gpus", "4", "--", "true")
    older.run("held", "--after", "waits", "--", "true")
    older.swell("hold", "held")
    older.run("follows", "--after", "waits", "--", "true")
    documents = FOLDER / "elaborate.yaml"
    documents.write_text(ELABORATE)
    older.swell("submit", "-f", str(documents))
    older.swell("token", "create", "ci")
    for name, state in (
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("array", "running"),
    ):
        older.until(name, state)
    os.kill(older.pid("worker"), signal.SIGSTOP)  # nobody begins what is started from now on
    older.run("starting", "--", *ENDLESS)
    older.until("starting", "starting")
    return older.told()


def kill(older: Older) -> None:
    """The server first: it brings the worker back."""
    for process in ("server", "worker"):
        os.kill(older.pid(process), signal.SIGKILL)


def end_tasks() -> None:
    for begun in STATE.glob("tasks/*/*/begun.*"):
        try:
            os.killpg(int(begun.name.split(".")[1]), signal.SIGKILL)
        except ProcessLookupError:
            continue


def pack(target: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for launch in STATE.glob("tasks/*/launch.json"):
        launch.write_text(launch.read_text().replace(boot, BOOT))
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(FOLDER.rglob("*")):
            if not path.name.endswith(KEPT_NOT) and not path.is_socket():
                archive.add(path, path.relative_to(FOLDER), recursive=False)


def main(checkout: str, target: str) -> None:
    socket.sethostname(HOST)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    older = Older(Path(checkout))
    try:
        told = make(older)
    finally:
        kill(older)
        end_tasks()
    (FOLDER / "told.json").write_text(json.dumps(told, indent=1))
    (FOLDER / "keeper.sh").write_text(older.keeper())
    pack(Path(target))


if __name__ == "__main__":
    main(*sys.argv[1:])
