"""`swell pool`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, state_option, with_client
from swell.machine.worker_options import Flag, FlagKind
from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client


@click.group("pool", invoke_without_command=True)
@state_option
@click.pass_context
def command(ctx: click.Context, state: str | None) -> int | None:
    """Start workers in Slurm, a cloud or a cluster when jobs wait for them. Without a subcommand, list pools.

    \b
    swell token create lab --scope pool --token-file pool.token    on the machine of the server
    swell pool start slurm --server https://box.lab:8443 --token-file pool.token --partition gpu --gpus 1
    swell pool ps                                              pools and their workers
    swell pool logs lab                                        what the pool does
    swell pool kill-worker lab-0123abcd                        end one worker
    swell pool stop lab                                        end the pool; workers leave when they are idle
    """
    if ctx.invoked_subcommand is None:
        code: int = ctx.invoke(listing, state=state)
        return code
    ctx.default_map = {name: {"state": state} for name in command.commands}  # `--state` may stand before the word
    return None


def flag_option(flag: Flag) -> click.Option:
    if flag.kind is FlagKind.SWITCH:
        return click.Option([f"--{flag.name}", flag.field], is_flag=True, help=flag.help)
    return click.Option([f"--{flag.name}", flag.field], metavar=flag.metavar, help=flag.help)


class Kinds(click.Group):
    """A command for each kind of pool, made from its flags when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from swell.pools.kinds import KINDS

        return list(KINDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        from swell.pools.kinds import KINDS, find_kind
        from swell.pools.options import POOL_FLAGS

        if name not in KINDS:
            return None
        kind = find_kind(name)
        own = [
            click.Option(["--state", "state"], metavar="DIR", help="State folder of the server, without --token-file."),
            click.Option(["--foreground", "is_foreground"], is_flag=True, help="Do not go to the background."),
            click.Option(
                ["--once", "is_once"], is_flag=True, help="Check the queue once, start workers if needed, and exit."
            ),
            click.Option(["--dry-run", "is_dry_run"], is_flag=True, help="Print what would be submitted for a worker."),
        ]
        flags = [flag_option(flag) for flag in (*kind.flags, *POOL_FLAGS)]

        def start(**given: Any) -> int:
            return _start(name, given)

        return click.Command(name, callback=start, params=[*flags, *own], help=kind.help)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from swell.pools.kinds import KINDS

        with formatter.section("Kinds"):
            formatter.write_dl([(name, text) for name, (_, text) in KINDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from swell.pools.kinds import KINDS

        if args[0] not in KINDS and not args[0].startswith("-"):
            raise click.UsageError(f"unknown kind {args[0]!r}; the kinds are: {', '.join(KINDS)}", ctx)
        return super().resolve_command(ctx, args)


@command.command("start", cls=Kinds)
def start() -> None:
    """Start a pool in the background: a process that starts workers when jobs wait for them.

    Run it where the batch system or cluster can be asked, such as on a login node of Slurm. Started again after it has
    ended, it takes over the workers of before.
    """


def _start(kind: str, given: dict[str, Any]) -> int:
    from swell.cli.pool_process import PoolCommand, run_here, start_in_background

    state = given.pop("state", None)
    is_foreground, is_once, is_dry_run = (given.pop(f"is_{name}") for name in ("foreground", "once", "dry_run"))
    told = PoolCommand(kind, {field: value for field, value in given.items() if value not in (None, False)}, state)
    if is_dry_run:
        return print_order(told)
    if is_foreground or is_once:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        return run_here(told, is_once=is_once)
    start_in_background(told)
    return 0


def print_order(told: Any) -> int:
    options = told.options()
    print(told.backend(options).render(options.order("TOKEN")))
    return 0


@command.command("ps")
@output_option
@with_client
def listing(client: Client, output: str = "table") -> int:
    """List pools: their state, their last error, and their workers."""
    from swell.cli.printing import print_document, print_table, visible

    pools = client.pools.listing()
    if output in ("json", "yaml"):
        print_document(pools, output)
        return 0
    if not pools:
        print("no pools; to start one, run: swell pool start slurm --help")
        return 0
    header = ["POOL", "KIND", "STATE", "WORKERS", "PENDING", "BUSY", "MISSING", "LAUNCHED", "FAILED", "EACH"]
    print_table(header, [_row(pool) for pool in pools])
    for line in problem_lines(pools):
        print(visible(line))
    workers = [_worker_row(pool, worker) for pool in pools for worker in pool["workers"] if _is_shown(worker, output)]
    if workers:
        print()
        print_table(["WORKER", "POOL", "STATE", "NODE", "ID", "DETAIL", "LOG"], workers)
    return 0


def _is_shown(worker: dict[str, Any], output: str) -> bool:
    return output == "wide" or worker["state"] != "ended"


def _row(pool: dict[str, Any]) -> list[str]:
    live = sum(worker["state"] != "ended" for worker in pool["workers"])
    missing = max(0, pool["wanted"] - sum(_is_under_way(worker) for worker in pool["workers"]))
    offer = pool["offer"]
    each = f"{number_of(offer['cpus_milli'] / 1000, 'CPU')}, {offer['memory_mib'] / 1024:.1f} GiB"
    each += f", {number_of(offer['gpus'], 'GPU')}" if offer["gpus"] else ""
    counts = (pool["pending"], pool["busy"], missing, pool["launched"], pool["failed"])
    limits = f"{live} ({pool['workers_min']}..{pool['workers_max']})"
    return [pool["name"], pool["kind"], pool["state"], limits, *map(str, counts), each]


def _is_under_way(worker: dict[str, Any]) -> bool:
    return worker["state"] != "ended" and not worker["has_registered"]


def problem_lines(pools: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong, a line for each pool."""
    lines = []
    for pool in pools:
        if pool["state"] == "silent":
            lines.append(
                f"  {pool['name']}: not heard from for {pool['silent_s']:.0f} s; start it again: swell pool start "
                f"{pool['kind']}"
            )
        elif pool["problem"]:
            again = f" (it tries again in {pool['retry_s']:.0f} s)" if pool["retry_s"] else ""
            lines.append(f"  {pool['name']}: {pool['problem']}{again}")
    return lines


def _worker_row(pool: dict[str, Any], worker: dict[str, Any]) -> list[str]:
    state = f"{worker['state']} ({worker['word']})" if worker["word"] else worker["state"]
    return [worker["id"], pool["name"], state, worker["node"] or "-", worker["backend_id"] or "-"] + [
        worker[name] or "-" for name in ("detail", "log")
    ]


@command.command("stop")
@click.argument("name", metavar="POOL")
@click.option("--workers", is_flag=True, help="End its workers, too; their jobs are requeued.")
@with_client
def stop(client: Client, name: str, workers: bool) -> int:
    """Stop a pool. Workers that wait are taken back; those that run jobs leave when they are idle."""
    from swell.cli.printing import say

    if client.pools.stop(name, ends_workers=workers):
        say(f"pool {name} will stop at its next check-in")
    else:
        say(f"pool {name} has not contacted the server and was removed. Its workers leave when they are idle")
    return 0


@command.command("kill-worker")
@click.argument("worker", metavar="WORKER")
@click.option("--force", is_flag=True, help="Kill it at once, without time for a checkpoint.")
@with_client
def kill_worker(client: Client, worker: str, force: bool) -> int:
    """End one worker, named by its name or by what its backend calls it. Its jobs are requeued."""
    from swell.cli.printing import say

    found = client.pools.kill(worker, is_forced=force)
    known = found["backend_id"] or "not listed yet"
    say(f"pool {found['pool']} ends worker {found['worker']} ({known}) with its next look")
    return 0


@command.command("logs")
@click.argument("name", metavar="POOL|WORKER")
@click.option("--folder", metavar="DIR", help="Folder of the pool.  [default: ~/.local/state/swell-pools/POOL]")
def logs(name: str, folder: str | None) -> int:
    """Print the log of a pool, or the backend's own log of one worker, also of one that never registered.

    Run it on the machine of the pool, which has its log and may ask its backend.
    """
    import sys

    for piece in log_of(name, folder):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


def log_of(name: str, folder: str | None) -> Any:
    from swell.cli.pool_process import POOLS_FOLDER, read_command
    from swell.errors import NotFound
    from swell.model.pool import POOL_NAME, WORKER_ID, worker_at
    from swell.pools.folder import PoolFolder
    from swell.pools.ledger import read_ledger

    worker = WORKER_ID.fullmatch(worker_at(name))  # as `swell nodes` calls it
    name = name if worker is None else worker_at(name)
    if worker is None and not POOL_NAME.fullmatch(name):
        raise NotFound(f"{name[:100]!r} is no name of a pool or of a worker; see `swell pool ps`")
    pool = name if worker is None else worker["pool"]
    root = Path(folder) if folder else Path(POOLS_FOLDER).expanduser() / pool
    here = PoolFolder(root.expanduser().absolute())
    if not here.root.is_dir():
        raise NotFound(f"no pool {pool!r} was started on this machine: {here.root} is not there; see `swell pool ps`")
    if worker is None:
        return _file(here.log, f"the pool {pool!r} has written no log yet")
    known = {entry.id: entry for entry in read_ledger(here.ledger).entries}
    if name not in known or not known[name].backend_id:
        raise NotFound(f"the pool {pool!r} does not know the worker {name!r} any more; see `swell pool logs {pool}`")
    told = read_command(here)
    return told.backend(told.options()).logs(known[name].backend_id)


def _file(path: Path, problem: str) -> Any:
    from swell.errors import NotFound

    if not path.exists():
        raise NotFound(problem)
    with path.open("rb") as file:
        while piece := file.read(1 << 16):
            yield piece
