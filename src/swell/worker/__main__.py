"""`python -m swell.worker --state DIR`: the agent as a process. The embedded server starts it; it outlives it."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from swell.state import StateFolder
from swell.worker import cgroups
from swell.worker.agent import Agent
from swell.worker.devices import Declared, offer
from swell.worker.nvml import Nvml
from swell.worker.runtimes import find_runtime, for_users


def main() -> int:
    parser = argparse.ArgumentParser(prog="swell worker")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--socket", type=Path, help="of the box server; tasks run as their users")
    options = parser.parse_args()
    state = StateFolder(options.state.absolute(), options.socket)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.umask(0o077)
    lock = state.lock("worker")
    if lock is None:
        print(f"a worker for {state} runs already (process {state.lock_holder('worker')})", file=sys.stderr)
        return 1
    config = state.read_json(state.config)
    found, nvml = find_runtime(config), Nvml()
    runtime = found if state.socket is None else for_users(found)
    offered = offer(Declared.parse(config), nvml)
    runs_containers = "" if runtime is None else str(runtime)
    node = replace(offered, container_runtime=runs_containers, unenforced=cgroups.probe())
    agent = Agent(state, node, nvml, runtime)

    def close(*_: object) -> None:
        agent.is_closing = True
        agent.wake()

    signal.signal(signal.SIGTERM, close)
    signal.signal(signal.SIGINT, close)
    logging.info("worker %s offers its machine", os.getpid())
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
