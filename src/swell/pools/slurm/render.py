"""What is sbatch told for one worker? Pure."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_folder import GIVEN_TOKEN
from swell.pools.backend import WorkerOrder
from swell.pools.worker_command import KEEP_TOKEN, TOKEN_VARIABLE, worker_folder, worker_words

WARNED_S = 90  # before the time limit: tasks save a checkpoint, and the worker leaves
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,250}")
NODES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,1000}")
FEATURES = re.compile(r"[A-Za-z0-9_(\[][A-Za-z0-9_.,&|*()\[\]-]{0,250}")
TIME = re.compile(r"[0-9]{1,9}|[0-9]{1,9}(?::[0-9]{1,2}){1,2}|[0-9]{1,6}-[0-9]{1,2}(?::[0-9]{1,2}){0,2}|UNLIMITED")
FOLDER = re.compile(r"/[A-Za-z0-9_./+@=-]{0,3000}")  # a % would be a pattern to sbatch
KEPT = ("HOME", "LANG", "LOGNAME", "PATH", "USER")  # of the pool's environment; jobs bring their own

SHAPES: dict[str, tuple[re.Pattern[str], str]] = {
    "partition": (NAME, "the name of a partition, or several with commas"),
    "account": (NAME, "the name of an account"),
    "qos": (NAME, "the name of a quality of service"),
    "nodelist": (NODES, "names of nodes as Slurm writes them: node[1-4],big1"),
    "exclude": (NODES, "names of nodes as Slurm writes them: node[1-4],big1"),
    "constraint": (FEATURES, "names of features with & and |"),
    "gpu_type": (NAME, "a type of GPU, such as a100"),
    "time": (TIME, "a time as Slurm writes it: 90 (minutes), 12:00:00 or 2-00:00:00"),
}

#: When Slurm starts a job again, the worker of before may still live on a node that is out of reach: this is another.
SCRIPT = """\
#!/bin/sh
# worker {id} of the pool {pool}
set -- {words}
name={id} folder={folder}
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ]; then
  name="$name-r$SLURM_RESTART_COUNT" folder="$folder-r$SLURM_RESTART_COUNT"
  set -- "$@" --name "$name" --folder "$folder" --token-file "$folder/{given}"
fi
{keep_token}
export SWELL_BACKEND_LOG={log}-"$SLURM_JOB_ID".out
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """None: sbatch is not told, and the cluster decides."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    constraint: str | None = None
    gpu_type: str | None = None
    time: str | None = None
    log_folder: Path | None = None  #: None: `logs` in the folder of the pool


def read_slurm_options(said: Mapping[str, Any]) -> SlurmOptions:
    given = {name: value for name, value in said.items() if value not in (None, "")}
    for name, (shape, what) in SHAPES.items():
        if name in given and not shape.fullmatch(given[name]):
            raise Rejected(f"--{name.replace('_', '-')} {given[name][:100]!r} is not {what}")
    return SlurmOptions(**{field.name: given[field.name] for field in fields(SlurmOptions) if field.name in given})


def check_log_folder(folder: Path) -> None:
    if not FOLDER.fullmatch(str(folder)):
        raise Rejected(f"--log-dir {str(folder)[:200]!r} must be an absolute path without blanks and '%'")


def pool_comment(pool: str, server: str) -> str:
    """By which a pool knows its own jobs: two servers may have pools of one name here."""
    return f"swell:{pool}:{hashlib.sha256(server.encode()).hexdigest()[:12]}"


def render_arguments(order: WorkerOrder, options: SlurmOptions, log_folder: Path) -> tuple[str, ...]:
    """After `sbatch`. Each value stands behind its `=`, so none of them can be taken for an option."""
    cpus = -(-order.cpus_milli // 1000)
    gres = ":".join(filter(None, ("gpu", options.gpu_type, str(order.gpus)))) if order.gpus else None
    told = {
        "job-name": order.id,
        "comment": pool_comment(order.pool, order.worker.server),
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(cpus),
        "mem": f"{order.memory_mib}M",
        "gres": gres,
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "nodelist": options.nodelist,
        "exclude": options.exclude,
        "constraint": options.constraint,
        "time": options.time,
        "signal": f"B:TERM@{WARNED_S}",
        "output": str(log_folder / f"{order.id}-%j.out"),
        "open-mode": "append",
        "chdir": "/",
        "export": ",".join((*KEPT, TOKEN_VARIABLE)),
    }
    return ("--parsable", "--requeue", *(f"--{name}={value}" for name, value in told.items() if value is not None))


def render_script(order: WorkerOrder, log_folder: Path) -> str:
    """Slurm ends a worker with SIGTERM: its tasks save a checkpoint, and their jobs are queued again."""
    told = replace(order, worker=replace(order.worker, passes_termination=True))
    folder = worker_folder(order)
    words = worker_words(told, token_file=folder / GIVEN_TOKEN)
    return SCRIPT.format(
        id=order.id,
        pool=order.pool,
        words=shlex.join(words),
        folder=shlex.quote(str(folder)),
        given=GIVEN_TOKEN,
        keep_token=KEEP_TOKEN,
        log=shlex.quote(str(log_folder / order.id)),
    )


def render_environment(environ: Mapping[str, str], token: str) -> dict[str, str]:
    """Of sbatch: what it passes on to the job, and what Slurm's own commands read."""
    kept = {name: text for name, text in environ.items() if name in KEPT or name.startswith(("SLURM_CONF", "TMPDIR"))}
    return {**kept, TOKEN_VARIABLE: token}
