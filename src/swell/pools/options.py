"""What is a pool told, whatever its backend?

One table of flags, as for workers: `swell pool start KIND` and `cl-worker-manager KIND` both read it. A flag of
`swell worker` that is listed in `PASSED_ON` is one of a pool, too, and is passed on to every worker of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import FLAGS, Flag, FlagKind, WorkerOptions, read_flags, refuse_contradictions
from swell.model.pool import GPUS_MAX, POOL_NAME, WORKERS_MAX, PoolOffer
from swell.pools.backend import WorkerOrder
from swell.pools.worker_command import new_worker_id

IDLE_S = 600.0  # a worker that a pool started must go by itself, also when the pool is gone
EXECUTABLE = re.compile(r"[A-Za-z0-9_./-]{1,4096}")
PREFIX = re.compile(r"/[A-Za-z0-9_./-]{0,4095}")

PASSED_ON = frozenset(
    {
        "fingerprint",
        "ca",
        "insecure_http",
        "container_command",
        "container_options",
        "task_processes_max",
        "tag",
        "tag_exclusive",
        "group",
        "idle_s",
        "runs_max",
        "exits_on_exception",
        "passes_termination",
        "preemptible",
        "folder_mib_max",
        "cache",
        "cache_mib_max",
        "fetch_retries_max",
        "check_in_s",
        "lease_s",
    }
)

#: field → help, where a pool tells its workers something else than `swell worker` does
OF_WORKERS = {"idle_s": f"Workers exit after N seconds without a task.  [default: {IDLE_S:g}]"}

POOL_FLAGS = (
    Flag("name", "name", FlagKind.TEXT, "NAME", "Name of the pool.  [default: that of its kind]"),
    Flag("server", "server", FlagKind.TEXT, "URL", "Address of the server, as workers reach it."),
    Flag(
        "token-file",
        "token_file",
        FlagKind.PATH,
        "FILE",
        "File with a token of the scope pool.  [default: ask as yourself]",
    ),
    Flag("folder", "folder", FlagKind.PATH, "DIR", "Folder of this pool: its log, and what it has launched."),
    Flag("cpus", "cpus_milli", FlagKind.CPUS, "N", "CPUs of each worker.  [default: 1]"),
    Flag("memory", "memory_mib", FlagKind.MEMORY, "SIZE", "Memory of each worker.  [default: 2GiB]"),
    Flag("gpus", "gpus", FlagKind.COUNT, "N", "GPUs of each worker.  [default: 0]"),
    Flag("gpu-memory", "gpu_memory_mib", FlagKind.MEMORY, "SIZE", "Memory of each of its GPUs, if jobs ask for it."),
    Flag("min-workers", "workers_min", FlagKind.COUNT, "N", "Keep this many workers.  [default: 0]"),
    Flag("max-workers", "workers_max", FlagKind.COUNT, "N", "Never have more workers than this.  [default: 10]"),
    Flag("launches", "launches_max", FlagKind.COUNT, "N", "Launch at most N workers at once.  [default: 10]"),
    Flag("launch-seconds", "launch_s", FlagKind.PAUSE, "N", "Least time between two launches.  [default: 10]"),
    Flag("sleep-seconds", "sleep_s", FlagKind.SECONDS, "N", "Time between two looks at the queue.  [default: 5]"),
    Flag(
        "start-seconds",
        "start_s",
        FlagKind.SECONDS,
        "N",
        "Treat a worker as failed if it has not registered after N seconds.  [default: 600]",
    ),
    Flag(
        "max-failed-starts",
        "failed_starts_max",
        FlagKind.COUNT,
        "N",
        "End the pool when more than N starts have failed.  [default: keep trying, less often each time]",
    ),
    Flag("executable", "executable", FlagKind.TEXT, "PATH", "The program swell on the workers' machines."),
    Flag(
        "work-dir-prefix", "folder_prefix", FlagKind.TEXT, "DIR", "Where workers make their folders.  [default: /tmp]"
    ),
    *(replace(flag, help=OF_WORKERS.get(flag.field, flag.help)) for flag in FLAGS if flag.field in PASSED_ON),
)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    kind: str  #: slurm, aws-batch, azure-batch or kubernetes
    name: str
    worker: WorkerOptions  #: what its workers are told; token file and folder are the backend's to say
    token_file: Path | None  #: of the scope `pool`; None: the server of this machine is asked as its owner
    folder: Path
    cpus_milli: int = 1000
    memory_mib: int = 2048
    gpus: int = 0
    gpu_memory_mib: int = 0  #: of each GPU; 0: nobody has said, and jobs that ask for GPU memory are not served
    workers_min: int = 0
    workers_max: int = 10
    launches_max: int = 10
    launch_s: float = 10.0
    sleep_s: float = 5.0
    start_s: float = 600.0
    failed_starts_max: int | None = None  #: None: it keeps trying
    executable: str = "swell"
    folder_prefix: str = "/tmp"  # noqa: S108  the worker makes a folder of its own there, for itself only

    @property
    def offer(self) -> PoolOffer:
        """What each of its workers offers to jobs."""
        told = self.worker
        group, tag = told.group or "", told.tag or ""
        return PoolOffer(
            self.cpus_milli, self.memory_mib, self.gpus, self.gpu_memory_mib, tag, told.tag_exclusive, group
        )

    def order(self, token: str, *, is_standing: bool = False) -> WorkerOrder:
        """One more worker. `token`: of the scope `worker`. Standing: it keeps the minimum and stays when it is idle."""
        return WorkerOrder(
            pool=self.name,
            id=new_worker_id(self.name),
            cpus_milli=self.cpus_milli,
            memory_mib=self.memory_mib,
            gpus=self.gpus,
            worker=replace(self.worker, idle_s=None) if is_standing else self.worker,
            executable=self.executable,
            folder_prefix=self.folder_prefix,
            token=token,
        )


def read_pool_options(kind: str, given: Mapping[str, Any], *, folder: Path) -> PoolOptions:
    """`given`: the text after each flag by the flag's field; None or False: it was not said.

    `folder`: under which pools have theirs, by name, unless one is given.
    """
    said = read_flags(POOL_FLAGS, given)
    if "server" not in said:
        raise Rejected(f"a pool needs --server URL: {POOL_FLAGS[1].help}")
    passed = {field: said.pop(field) for field in PASSED_ON & said.keys()}
    server, name = said.pop("server"), said.pop("name", kind)
    said.setdefault("token_file", None)
    said.setdefault("folder", folder / name)
    worker = WorkerOptions(server=server, token_file=Path("/"), folder=Path("/"), **{"idle_s": IDLE_S, **passed})
    options = PoolOptions(kind=kind, name=name, worker=worker, **said)
    refuse_contradictions(worker)
    _refuse_what_cannot_be(options)
    return options


def _refuse_what_cannot_be(options: PoolOptions) -> None:
    if not POOL_NAME.fullmatch(options.name):
        raise Rejected(
            f"--name {options.name[:100]!r} cannot be the name of a pool; write up to 32 lower-case letters, digits "
            "and '-'"
        )
    if not options.workers_min <= options.workers_max:
        raise Rejected(
            f"--min-workers {options.workers_min} is more than --max-workers {options.workers_max}; lower the first or "
            "raise the second"
        )
    if not 0 < options.workers_max <= WORKERS_MAX:
        raise Rejected(f"--max-workers {options.workers_max} must be between 1 and {WORKERS_MAX}")
    if not options.cpus_milli or not options.memory_mib:
        raise Rejected("a worker without CPUs or memory runs no job; say --cpus 1 --memory 2GiB or more")
    if options.gpus > GPUS_MAX:
        raise Rejected(f"--gpus {options.gpus} is more than a machine has; say at most {GPUS_MAX}")
    if not options.launches_max:
        raise Rejected("--launches 0 would never launch a worker; say at least 1")
    if not EXECUTABLE.fullmatch(options.executable) or options.executable.startswith("-"):
        raise Rejected(f"--executable {options.executable[:100]!r} is not the path of a program")
    if not PREFIX.fullmatch(options.folder_prefix) or ".." in options.folder_prefix.split("/"):
        raise Rejected(
            f"--work-dir-prefix {options.folder_prefix[:100]!r} must be an absolute path of letters, digits, '_', '.', "
            "'-' and '/'"
        )
