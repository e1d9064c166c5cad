"""`python -m swell.worker --server … --token-file … --folder …`: the agent as a process, which outlives its server."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from swell.errors import Rejected, SwellError
from swell.machine.state_folder import exposure
from swell.machine.worker_folder import WorkerFolder
from swell.machine.worker_options import FLAGS, FlagKind, WorkerOptions, read_options
from swell.worker import cgroups
from swell.worker.agent import Agent
from swell.worker.allocation import read_allocation
from swell.worker.devices import WHOLE, Declared, offer
from swell.worker.guard import fork_guard
from swell.worker.nvml import Nvml
from swell.worker.runtimes import find_runtime, for_users
from swell.worker.spot_notice import SpotNotice
from swell.worker.sync import address_of


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.umask(0o077)
    try:
        options = read_options(vars(_parser().parse_args()))
        folder = WorkerFolder(options.folder)
        if options.is_remote:
            folder.prepare()
            _look_at_token(options.token_file)
        lock = folder.lock()
    except SwellError as error:
        print(f"swell: {error}", file=sys.stderr)
        return 2
    if lock is None:
        print(f"a worker for {folder} is already running (process {folder.lock_holder})", file=sys.stderr)
        return 1
    if options.is_remote:
        fork_guard(folder, lock, lease_s=options.lease_s, end_tasks=lambda: _agent(options, folder).end_tasks())
    if _work(options, folder) and options.deletes_folder:
        folder.remove(token_file=options.token_file)
    return 0


def _look_at_token(path: Path) -> None:
    """A worker without one would try for ever; the file is read again for each request, so that it can be renewed."""
    try:
        path.read_bytes()
    except OSError as error:
        raise Rejected(
            f"the token file {path} cannot be read ({error.strerror}); name another: --token-file"
        ) from error
    if found := exposure(path):
        logging.warning("the token file %s: %s; type: chmod 600 %s", path, found, path)


def _agent(options: WorkerOptions, folder: WorkerFolder) -> Agent:
    nvml = Nvml()
    found = find_runtime(options.container_command, options.container_options)
    runtime = found if options.users_runtime is None else for_users(found)
    given = read_allocation(os.environ) if options.is_remote else WHOLE
    offered = offer(Declared.of(options), nvml, given)
    runs_containers = "" if runtime is None else str(runtime)
    node = replace(offered, container_runtime=runs_containers, unenforced=cgroups.probe())
    return Agent(options, folder, address_of(options), node, nvml, runtime)


def _work(options: WorkerOptions, folder: WorkerFolder) -> bool:
    """True: it has left for good."""
    agent = _agent(options, folder)

    def close(*_: object) -> None:
        if options.is_remote:
            agent.terminations += 1  # its tasks are stopped, or waited for, before it goes
        else:
            agent.is_closing = True  # the next worker of this machine takes its tasks up
        agent.wake()

    def taken_back(notice: str) -> None:
        logging.warning("EC2 takes this machine back: %s; the tasks are stopped, and their jobs requeued", notice)
        agent.terminations = max(agent.terminations, 2)
        agent.wake()

    if options.spot_notice:
        SpotNotice(taken_back, os.environ).start()
    signal.signal(signal.SIGTERM, close)
    signal.signal(signal.SIGINT, close)
    logging.info("worker %s offers its machine as %s", os.getpid(), agent.node_name)
    agent.run()
    return agent.has_left


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="swell worker", allow_abbrev=False)
    for flag in FLAGS:
        if flag.kind is FlagKind.SWITCH:
            parser.add_argument(f"--{flag.name}", dest=flag.field, action="store_true", help=flag.help)
        else:
            parser.add_argument(f"--{flag.name}", dest=flag.field, metavar=flag.metavar, help=flag.help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
