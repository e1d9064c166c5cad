"""`sbatch`, `squeue`, `scancel`, `scontrol` and `sacct` on PATH, for what Debian's Slurm cannot be made to do.

One program under five names; its memory is a JSON file beside it, which a test reads and changes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROGRAM = """\
#!{python} -IS
import json, os, re, sys
here = os.path.dirname(os.path.realpath(__file__))
path = os.path.join(here, "state.json")
state = json.load(open(path))
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
told = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
plain = [word for word in words if not word.startswith("--")]
jobs = state["jobs"]

def fail(said):
    print(f"{{name}}: error: {{said}}", file=sys.stderr)
    sys.exit(1)

def ended(job):
    return job["state"] in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")

state["calls"].append([name, *words])
json.dump(state, open(path, "w"))
if state["failure"].get(name) or state["failure"].get("*"):
    fail(state["failure"].get(name) or state["failure"]["*"])
if name == "sbatch":
    number = str(len(jobs) + 1)
    jobs[number] = dict(name=told["job-name"], comment=told["comment"], state="PENDING", reason="Priority", exit="0:0",
                        log=told["output"].replace("%j", number), script=sys.stdin.read(), words=words,
                        environment=dict(os.environ))
    print(number)
elif name == "squeue":
    fields = {{"%A": "id", "%j": "name", "%T": "state", "%r": "reason", "%k": "comment"}}
    for number, job in jobs.items():
        if not job.get("purged"):
            print(re.sub("%[A-Za-z]", lambda at: dict(job, id=number)[fields[at[0]]], told["format"]))
    print(state["garbage"], end="")
elif name == "scancel":
    job = jobs.get(plain[0])
    if job is None or job.get("purged"):
        fail(f"Kill job error on job id {{plain[0]}}: Invalid job id specified")
    if ended(job):
        fail(f"Kill job error on job id {{plain[0]}}: Job/step already completing or completed")
    if told.get("state") in (None, job["state"]) and "signal" not in told or job["state"] != "PENDING":
        job.update(state="CANCELLED", reason="None", exit="0:15")
elif name == "scontrol":
    if words == ["show", "config"]:
        print(state["config"])
    else:
        job = jobs.get(plain[-1]) or fail("Invalid job id specified")
        print(f"JobId={{plain[-1]}} JobState={{job['state']}} Reason={{job['reason']}} Requeue=1 "
              f"Restarts={{job.get('restarts', 0)}} ExitCode={{job['exit']}}")
elif name == "sacct":
    for number, job in jobs.items():
        if ended(job):
            print(told["delimiter"].join([number, job["name"], job["state"], job["exit"], ""]))
json.dump(state, open(path, "w"))
"""
CONFIG = "AccountingStorageType  = accounting_storage/none\nProctrackType = {tracking}\n"


class FakeSlurm:
    def __init__(self, folder: Path, *, tracking: str = "proctrack/cgroup") -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self._state = self.bin / "state.json"
        program = self.bin / "slurm.py"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        for name in ("sbatch", "squeue", "scancel", "scontrol", "sacct"):
            (self.bin / name).symlink_to(program)
        self.write({"jobs": {}, "failure": {}, "calls": [], "garbage": "", "config": CONFIG.format(tracking=tracking)})

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._state.read_text())
        return found

    def write(self, state: dict[str, Any]) -> None:
        self._state.write_text(json.dumps(state))

    def set(self, job: str, **values: Any) -> None:
        state = self.read()
        state["jobs"][job] |= values
        self.write(state)

    def fail(self, command: str, said: str) -> None:
        """`*`: every command."""
        state = self.read()
        state["failure"][command] = said
        self.write(state)

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.read()["jobs"]
        return found

    @property
    def path(self) -> str:
        return f"{self.bin}:{os.environ['PATH']}"
