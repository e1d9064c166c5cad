"""How does a pool run as a process? In the foreground, or in the background as `python -m swell.cli.pool_process`."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell.errors import Rejected, SwellError, Unavailable
from swell.machine.processes import module_argv, spawn_detached
from swell.machine.state_folder import exposure, write_private

if TYPE_CHECKING:
    from swell.client.pools import PoolsClient
    from swell.pools.backend import PoolBackend
    from swell.pools.folder import PoolFolder
    from swell.pools.loop import PoolLoop
    from swell.pools.options import PoolOptions

POOLS_FOLDER = "~/.local/state/swell-pools"
START_S_MAX = 60.0  # a batch system's commands may take half a minute


@dataclass(frozen=True)
class PoolCommand:
    """A pool as somebody asked for it."""

    kind: str
    given: Mapping[str, Any]  #: the text after each flag, by its field
    state: str | None = None  #: --state; without a token file its server is asked as its owner

    def options(self) -> PoolOptions:
        from swell.pools.options import read_pool_options

        return read_pool_options(self.kind, self.given, folder=Path(POOLS_FOLDER).expanduser())

    def backend(self, options: PoolOptions) -> PoolBackend:
        from swell.pools.kinds import find_kind

        return find_kind(self.kind).backend(options, self.given)

    def server(self, options: PoolOptions) -> PoolsClient:
        from swell.client.connection import ServerConnection
        from swell.client.find import find_server
        from swell.client.login import Login
        from swell.client.pools import PoolsClient

        told = options.worker
        if options.token_file is None:
            return PoolsClient(ServerConnection(find_server(self.state)))
        login = Login(
            told.server,
            token_file=str(options.token_file),
            ca=None if told.ca is None else str(told.ca),
            insecure_http=told.insecure_http,
            fingerprint=told.fingerprint,
        )
        return PoolsClient(ServerConnection(login.remote()))


def run_here(told: PoolCommand, *, is_once: bool = False) -> int:
    """Until it is stopped. A signal ends the pool and no worker: the next pool of this folder takes them over."""
    from swell.pools.folder import PoolFolder
    from swell.pools.loop import PoolLoop

    options = told.options()
    folder = PoolFolder(options.folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if options.token_file is not None and (found := exposure(options.token_file)):
        logging.warning("the token file %s: %s; type: chmod 600 %s", options.token_file, found, options.token_file)
    with folder.held():
        keep_command(folder, told)
        pool = PoolLoop(options, told.backend(options), told.server(options), folder)
        if is_once:
            return _run_once(pool)
        folder.ready.unlink(missing_ok=True)
        pool.introduce()
        pool.turn()
        write_private(folder.ready, str(time.time()))
        if not pool.is_over:
            stop.wait(options.sleep_s)
        pool.run(stop)
    return 0


def _run_once(pool: PoolLoop) -> int:
    from swell.cli.printing import say

    launched, problem = pool.once()
    say(f"{pool.summary}; launched {launched}")
    if problem and problem not in pool.summary:
        say(problem)
    return 1 if problem else 0


def start_in_background(told: PoolCommand) -> None:
    """Returns when the first turn is done; raises what went wrong in it."""
    from swell.cli.printing import say
    from swell.errors import Conflict
    from swell.pools.folder import PoolFolder

    options = told.options()
    told.backend(options)
    told.server(options)  # what is wrong with either is said here, not in a log
    folder = PoolFolder(options.folder)
    folder.prepare()
    if folder.holder is not None:
        raise Conflict(
            f"the pool {options.name!r} is already running (process {folder.holder}); to change its options, stop it "
            f"first: swell pool stop {options.name}"
        )
    folder.ready.unlink(missing_ok=True)
    keep_command(folder, told)
    begun = folder.log.stat().st_size if folder.log.exists() else 0
    process = spawn_detached(module_argv("swell.cli.pool_process", str(folder.root)), folder.log)
    until = time.monotonic() + START_S_MAX
    while not folder.ready.exists():
        if process.poll() is not None:
            raise _ended(folder, begun)
        if time.monotonic() > until:
            say(f"the first look takes longer than {START_S_MAX:g} s; see {folder.log}")
            break
        time.sleep(0.05)
    say(
        f"pool {options.name} runs (process {process.pid}): {options.workers_min} to {options.workers_max} workers in "
        f"{told.kind}; log: {folder.log}"
    )


def _ended(folder: PoolFolder, begun: int) -> SwellError:
    with folder.log.open("rb") as file:
        file.seek(begun)
        lines = file.read().decode(errors="replace").strip().splitlines()
    said = next((line for line in reversed(lines) if line.startswith("swell: ")), lines[-1] if lines else "no message")
    return Rejected(said.removeprefix("swell: "))


def keep_command(folder: PoolFolder, told: PoolCommand) -> None:
    """Paths as they are from the root: the process that reads them again runs in another folder."""
    from swell.machine.worker_options import FlagKind
    from swell.pools.kinds import find_kind
    from swell.pools.options import POOL_FLAGS

    paths = {flag.field for flag in (*POOL_FLAGS, *find_kind(told.kind).flags) if flag.kind is FlagKind.PATH}
    given = {
        field: str(Path(text).expanduser().absolute()) if field in paths and isinstance(text, str) else text
        for field, text in told.given.items()
    }
    state = None if told.state is None else str(Path(told.state).expanduser().absolute())
    write_private(folder.command, json.dumps({"kind": told.kind, "given": given, "state": state}))


def read_command(folder: PoolFolder) -> PoolCommand:
    """How the pool of this folder was started."""
    try:
        kept = json.loads(folder.command.read_text())
        return PoolCommand(str(kept["kind"]), dict(kept["given"]), kept["state"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Unavailable(f"{folder.command} does not say how a pool was started: {error}") from error


def main() -> int:
    from swell.pools.folder import PoolFolder

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        return run_here(read_command(PoolFolder(Path(sys.argv[1]))))
    except SwellError as error:
        print(f"swell: {error}", file=sys.stderr)
        return 2 if isinstance(error, Rejected) else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
