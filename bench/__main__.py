"""Which benchmarks are there, and on what do they run? `python -m bench --help`"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import swell
from bench import binds, clogging, decide, feel, kubernetes, metrics, packing, quality, resize, sdk, tasks, workers
from bench.folders import working_folder
from bench.hyperqueue_install import VERSION as HYPERQUEUE
from bench.interrupts import interrupt_on_all
from bench.rows import Row, Setting, progress

BENCHES: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "tasks": tasks.run,
    "feel": feel.run,
    "sdk": sdk.run,
    "resize": resize.run,
    "metrics": metrics.run,
    "workers": workers.run,
    "binds": binds.run,
    "kubernetes": kubernetes.run,
    "scale": kubernetes.run_scale,
    "clogging": clogging.run,
    "quality": quality.run,
    "packing": packing.run,
    "decide": decide.run,
}


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHES)}")
    interrupt_on_all()
    try:
        with working_folder(options.folder) as folder:
            _run(options.names or list(BENCHES), _setting(options, folder))
    except KeyboardInterrupt:
        progress("interrupted; nothing is left behind")
        return 130
    return 0


def _run(names: list[str], setting: Setting) -> None:
    print(json.dumps(_machine(setting)), flush=True)
    for name in names:
        progress(name)
        for row in BENCHES[name](setting):
            print(row.to_line(), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Prints one JSON line per row.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(BENCHES)}  [default: all]")
    parser.add_argument("--tasks", type=int, default=2000, help="in one array  [default: 2000]")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the middle one counts  [default: 3]")
    parser.add_argument("--stored", type=int, default=10_000, help="jobs in the store  [default: 10000]")
    parser.add_argument("--submissions", type=int, default=3000, help="timed, 32 in flight  [default: 3000]")
    parser.add_argument("--starts", type=int, default=50, help="jobs whose start is timed  [default: 50]")
    parser.add_argument("--nodes", type=int, default=1000, help="of the simulated cluster  [default: 1000]")
    parser.add_argument("--seed", type=int, default=1, help="draws the order of contenders  [default: 1]")
    parser.add_argument("--data", type=Path, help="folder with published traces, for: quality, packing")
    parser.add_argument("--workloads", default="", metavar="N,…", help="of the traces  [default: all]")
    parser.add_argument("--rows", default="", metavar="WORDS;…", help="of quality, by words in them  [default: all]")
    parser.add_argument("--folder", type=Path, help="where to work; a real disk  [default: the temporary folder]")
    return parser


def _setting(options: argparse.Namespace, folder: Path) -> Setting:
    return Setting(
        folder=folder,
        seed=options.seed,
        tasks=options.tasks,
        repeats=options.repeats,
        stored=options.stored,
        submissions=options.submissions,
        starts=options.starts,
        nodes=options.nodes,
        data=options.data,
        workloads=tuple(filter(None, options.workloads.split(","))),
        rows=tuple(filter(None, options.rows.split(";"))),
    )


def _machine(setting: Setting) -> dict[str, Any]:
    disk = subprocess.run(["stat", "-f", "-c", "%T", setting.folder], check=True, capture_output=True, text=True)
    return {
        "bench": "machine",
        "cpus": setting.cpus,
        "kernel": platform.release(),
        "file_system": disk.stdout.strip(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "swell": swell.__version__,
        "hyperqueue": HYPERQUEUE,
        "sqlite": sqlite3.sqlite_version,
        "seed": setting.seed,
    }


if __name__ == "__main__":
    sys.exit(main())
