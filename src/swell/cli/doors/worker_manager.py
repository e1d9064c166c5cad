"""`cl-worker-manager`: the command lines of CodaLab's worker managers, run as a pool of Swell."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import state_option
from swell.cli.root import Abbreviated, Failures
from swell.foreign.worker_manager import (
    COMMON,
    OF_EACH,
    ManagerCache,
    ManagerOption,
    default_name,
    explain,
    field_name,
    in_our_words,
    pool_name,
    shared_cache,
    with_shared_cache,
)

if TYPE_CHECKING:
    from swell.pools.kinds import PoolKind

OWN = (
    "name",
    "token_file",
    "fingerprint",
    "ca",
    "insecure_http",
    "folder",
    "cache",
)  # of a pool, beside CodaLab's options


class WithSearch(Failures, click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _without_search(args, _kinds()))


class Managers(Abbreviated, WithSearch):
    """A command for each backend, by CodaLab's name for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_kinds())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        kind = _kinds().get(name)
        return None if kind is None else _command(kind)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in _kinds() and not args[0].startswith("-"):
            raise click.UsageError(f"unknown backend {args[0]!r}; there are: {', '.join(sorted(_kinds()))}", ctx)
        return super().resolve_command(ctx, args)


def _kinds() -> dict[str, PoolKind]:
    from swell.pools.kinds import KINDS, find_kind

    found = (find_kind(name) for name in KINDS)
    return {kind.legacy.name: kind for kind in found}


def _without_search(words: list[str], kinds: dict[str, PoolKind]) -> list[str]:
    """`--search` has any number of words behind it, which no parser of ours reads: they become one."""
    kept: list[str] = []
    terms: list[str] | None = None
    for word in words:
        if terms is not None and not word.startswith("-") and word not in kinds:
            terms.append(word)
            continue
        if terms is not None:
            kept += ["--search", " ".join(terms)]
            terms = None
        if word == "--search":
            terms = []
        else:
            kept.append(word)
    return kept if terms is None else [*kept, "--search", " ".join(terms)]


def _click_option(option: ManagerOption) -> click.Option:
    text = (
        option.why and f"No effect: {option.why}." if not option.field else f"As --{option.flag} of `swell pool start`."
    )
    names = [f"--{option.name}", field_name(option)]
    if option.is_switch:
        return click.Option(names, is_flag=True, help=text)
    return click.Option(
        names, metavar="VALUE", help=text + (f"  [default: {option.default}]" if option.default else "")
    )


def _own_flags() -> list[click.Option]:
    from swell.cli.pool import flag_option
    from swell.pools.options import POOL_FLAGS

    return [flag_option(flag) for flag in POOL_FLAGS if flag.field in OWN]


def _of_kind(kind: PoolKind) -> tuple[ManagerOption, ...]:
    """The options of one backend: those that are called as ours, those that are called otherwise, and the rest."""
    from swell.machine.worker_options import FlagKind
    from swell.pools.options import POOL_FLAGS

    legacy = kind.legacy
    ours = {flag.name: flag for flag in (*POOL_FLAGS, *kind.flags)}
    same = [
        ManagerOption(
            flag.name, flag.field, flag.name, is_switch=flag.kind is FlagKind.SWITCH, is_secret=flag.is_secret
        )
        for flag in kind.flags
        if flag.name not in legacy.ignored
    ]
    same += [ManagerOption("gpus", "gpus", "gpus", default=legacy.defaults.get("gpus", "0"))]
    renamed = [
        ManagerOption(theirs, ours[mine].field, mine, adapt=pool_name if ours[mine].field == "name" else None)
        for theirs, mine in legacy.renamed.items()
    ]
    ignored = [
        ManagerOption(name, why=why.rstrip("."), is_switch=name in legacy.switches)
        for name, why in legacy.ignored.items()
    ]
    known = {option.name for option in (*renamed, *ignored)}
    return (*OF_EACH, *(option for option in same if option.name not in known), *renamed, *ignored)


def _command(kind: PoolKind) -> click.Command:
    options = _of_kind(kind)

    def run(**given: Any) -> int:
        context = click.get_current_context()
        assert context.parent is not None
        return _run(kind, options, context.parent.params, given)

    params: list[click.Parameter] = [_click_option(option) for option in options]
    params.append(click.Option(["--name", "name"], metavar="NAME", help="Name of the pool."))
    params.append(click.Option(["--dry-run", "is_dry_run"], is_flag=True, help="Print what would be submitted."))
    return Abbreviated(kind.legacy.name, callback=run, params=params, help=kind.help.split("\n", 1)[0])


def _run(kind: PoolKind, options: tuple[ManagerOption, ...], common: dict[str, Any], given: dict[str, Any]) -> int:
    import logging

    from swell.cli.pool import print_order
    from swell.cli.pool_process import PoolCommand, run_here
    from swell.cli.printing import say

    said = {**common, **given}
    own = {field: common[field] for field in OWN if common.get(field) not in (None, False)}
    options = (*_common(kind), *options)
    cache = None if "cache" in own else _cache(kind, {**kind.legacy.defaults, **in_our_words(options, said)})
    options = with_shared_cache(options, cache)
    for line in explain(options, said):
        say(line)
    told = {**kind.legacy.defaults, **in_our_words(options, said)}
    if cache is not None:
        told["cache"] = cache.folder
        told |= {"cache_mib_max": told["folder_mib_max"]} if "folder_mib_max" in told else {}
    told |= own
    told |= {"name": given["name"]} if given.get("name") else {}
    told.setdefault("name", default_name(kind.name, kind.legacy.named_after, told))
    if "token_file" not in told and os.environ.get("SWELL_TOKEN_FILE"):
        told["token_file"] = os.environ["SWELL_TOKEN_FILE"]
    asked = PoolCommand(kind.name, told, common.get("state"))
    if given.get("is_dry_run"):
        return print_order(asked)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return run_here(asked, is_once=bool(common.get("once")))


def _common(kind: PoolKind) -> tuple[ManagerOption, ...]:
    """The options of all backends, as this one understands them."""
    from swell.pools.image import SHARED_MEMORY_FLAG

    if SHARED_MEMORY_FLAG.field not in {flag.field for flag in kind.flags}:
        return COMMON
    field, flag = SHARED_MEMORY_FLAG.field, SHARED_MEMORY_FLAG.name
    return tuple(
        replace(one, field=field, flag=flag, form="{}GiB") if one.name == "worker-shared-memory-size-gb" else one
        for one in COMMON
    )


def _cache(kind: PoolKind, told: Mapping[str, Any]) -> ManagerCache | None:
    from swell.machine.state_folder import network_file_system

    prefix, network = told.get("folder_prefix"), None
    if prefix is not None and kind.legacy.has_our_disks:
        network = network_file_system(Path(prefix), Path("/proc/self/mountinfo").read_bytes().splitlines())
    return shared_cache(prefix, kind.legacy.shared_folders(told), network, getpass.getuser())


@click.command(cls=Managers, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@state_option
@click.option("--once", is_flag=True, help="Check the queue once, start workers if needed, and exit.")
def main(**_: Any) -> None:
    """Start workers in Slurm, AWS Batch, Azure Batch or Kubernetes when jobs wait for them.

    The options are those of CodaLab's program of this name; each says what it means to `swell pool start`.

    \b
    cl-worker-manager --server https://box.lab:8443 --token-file pool.token slurm-batch --partition gpu --gpus 1
    """


main.params += [*map(_click_option, COMMON), *_own_flags()]
