"""How long does HyperQueue take for an array? Run by the Python it is installed for; prints one JSON line.

The PyPI wheel has no `hq` program, only this library: server and worker share one process, and there is no
journal, so nothing is written down. Its client asks once a second whether a job has ended; to be fair, the end is
taken from the last task itself: one more of the lowest priority, which makes a file.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from hyperqueue import Job  # type: ignore[import-not-found]
from hyperqueue.cluster import LocalCluster, WorkerConfig  # type: ignore[import-not-found]
from hyperqueue.ffi.protocol import ResourceRequest  # type: ignore[import-not-found]


def main() -> None:
    folder, count, cpus, has_files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "files"
    os.chdir(folder)
    with LocalCluster(f"{folder}/server", WorkerConfig(cpus)) as cluster:
        client = cluster.client()
        _run(client, 10, has_files, Path(folder, "warm"))
        before = _cpu_s()
        last_s, client_s = _run(client, count, has_files, Path(folder, "last"))
        print(json.dumps({"last_s": last_s, "client_s": client_s, "cpu_s": _cpu_s() - before}))


def _run(client: object, count: int, has_files: bool, last: Path) -> tuple[float, float]:
    job = Job(default_workdir=last.parent)
    none = {"stdout": None, "stderr": None}
    for _ in range(count):
        job.program(["/bin/true"], resources=ResourceRequest(cpus=1), **({} if has_files else none))
    job.program(["/usr/bin/touch", str(last)], resources=ResourceRequest(cpus=1), priority=-1, **none)
    began = time.time()
    client.wait_for_jobs([client.submit(job)])  # type: ignore[attr-defined]
    return last.stat().st_mtime - began, time.time() - began


def _cpu_s() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


if __name__ == "__main__":
    main()
