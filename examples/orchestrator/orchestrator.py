"""The four-job demo of genai's workload manager, replayed on this machine: `orchestrator.py S1 S2 S3`.

genai-job1 to genai-job3 want two to four GPUs, genai-job4 exactly two; S1, S2 and S3 are the seconds between their
deployments. The GPUs are simulated, the training is real (train.py), and so is every number at the end: the widths
come from GET /get_all_jobs and GET /freegpu of the genai door, the times from Swell's own records.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
TRAIN = Path(__file__).with_name("train.py")
LIMITS = {"genai-job1": 4, "genai-job2": 4, "genai-job3": 4, "genai-job4": 2}
LOOK_S = 0.1
MANIFEST = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
  annotations: {{swell.dev/epochs: "{epochs}"}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: python:3.12
              command: ["{python}", "{train}"]
              args: [--name, {name}, --num_processes=2, "--num_train_epochs={epochs}", --output_dir, "{output}"]
              env: [{{name: NGPU, value: "2"}}]
              resources:
                requests: {{cpu: 100m, nvidia.com/gpu: 2}}
                limits: {{cpu: 100m, nvidia.com/gpu: {limit}}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sleeps", metavar="S", type=float, nargs=3, help="seconds between one deployment and the next")
    parser.add_argument("--gpus", type=int, default=6, help="simulated ones  [default: 6]")
    parser.add_argument("--epochs", type=int, default=3, help="of each job  [default: 3]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
        demo = Demo(Path(folder), options.epochs)
        demo.command("swell", "up", "-d", "--gpus", str(options.gpus))
        try:
            demo.door = demo.command("swell", "door", "open", "genai", "--port", "0").strip()
            demo.replay(options.sleeps)
        finally:
            demo.command("swell", "down", "--cancel")
    return 0


class Demo:
    def __init__(self, folder: Path, epochs: int) -> None:
        self.folder = folder
        self.epochs = epochs
        self.door = ""
        self.began = time.monotonic()
        self.shown: list[int] = []

    def command(self, program: str, *words: str, text: str | None = None) -> str:
        """Run a command of Swell's on the demo's own state folder."""
        argv = [str(BIN / program), *words, "--state", str(self.folder / "state")]
        return subprocess.run(argv, input=text, check=True, stdout=subprocess.PIPE, text=True).stdout

    def replay(self, sleeps: list[float]) -> None:
        print(f"{'time':>6}  {'':12}" + "".join(f"{name:>12}" for name in LIMITS) + f"{'free':>8}")
        self.began = time.monotonic()
        for (name, limit), sleep in zip(LIMITS.items(), [0.0, *sleeps], strict=True):
            self.watch(for_s=sleep)
            self.deploy(name, limit)
        self.watch(for_s=None)
        self.report()

    def deploy(self, name: str, limit: int) -> None:
        output = self.folder / name
        text = MANIFEST.format(
            name=name, limit=limit, python=sys.executable, train=TRAIN, output=output, epochs=self.epochs
        )
        self.command("genai-manager", "deploy", "-f", "-", text=text)
        self.shown = []  # a line for the newcomer, also if nothing has changed yet

    def watch(self, *, for_s: float | None) -> None:
        """Print the widths whenever one of them changes; None: until all jobs are completed."""
        until = None if for_s is None else time.monotonic() + for_s
        while until is None or time.monotonic() < until:
            records, free = self.look()
            widths = [records[name]["gpu_assigned"] if name in records else -1 for name in LIMITS]
            if widths != self.shown:
                self.shown = widths
                cells = "".join(f"{width if width >= 0 else '':>12}" for width in widths)
                print(f"{time.monotonic() - self.began:5.1f}s  {'GPUs held':12}{cells}{free:8}", flush=True)
            if until is None and all(record["status"] == "completed" for record in records.values()):
                return
            time.sleep(LOOK_S)

    def look(self) -> tuple[dict[str, Any], int]:
        """The jobs and the free GPUs of one moment: a job may end between two requests."""
        while True:
            free = sum(self.get("/freegpu").values())
            records = {record["job_name"]: record for record in self.get("/get_all_jobs")}
            if sum(self.get("/freegpu").values()) == free:
                return records, free

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.door + path, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def report(self) -> None:
        jobs = sorted(json.loads(self.command("swell", "ps", "-a", "-o", "json")), key=lambda job: job["id"])
        print(f"\n{'job':12}{'state':>11}{'waited':>9}{'took':>8}{'resizes':>9}{'lost GPU-s':>12}")
        for job in jobs:
            waited = moment(job["started_at"]) - moment(job["submitted_at"])
            took = moment(job["ended_at"]) - moment(job["submitted_at"])
            row = f"{job['name']:12}{job['state']:>11}{waited:8.1f}s{took:7.1f}s{job['resizes']:9}"
            print(f"{row}{job['lost_gpu_seconds']:12.1f}")
        began, ended = min(moment(job["submitted_at"]) for job in jobs), max(moment(job["ended_at"]) for job in jobs)
        print(f"\nmakespan {ended - began:.1f} s")


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    sys.exit(main())
