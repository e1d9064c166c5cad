"""`swell what-if`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import env_option, output_option, read_variables, with_client

if TYPE_CHECKING:
    from swell.client import Client


AT_ONCE_S = 1.0  # nobody's end is waited for


@click.command("what-if")
@click.option(
    "-f",
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="YAML manifest; - reads standard input.",
)
@click.argument("named", metavar="[FILE]...", nargs=-1, type=click.Path())
@env_option
@output_option
@with_client
def command(client: Client, files: tuple[str, ...], named: tuple[str, ...], env: tuple[str, ...], output: str) -> int:
    """Ask what would happen to jobs if they were submitted now; nothing is submitted.

    \b
    swell what-if -f job.yaml            would it fit, when would it start, who would shrink?
    swell what-if -f job.yaml -o json    the same for programs

    The server's planner answers, run forward. Run times are unknown, so each start is a range: the first number
    counts on progress, estimates and time limits of the jobs before it, the second on their time limits alone. Exits
    with 1 if a job could never run here.
    """
    from swell.cli.printing import print_document, visible_in
    from swell.cli.submit import read_manifest

    if not files and not named:
        raise click.UsageError("name a manifest file, for example: swell what-if -f job.yaml")
    texts = {name: read_manifest(name) for name in (*files, *named)}
    found = client.what_if(texts, env=read_variables(env))
    if output in ("json", "yaml"):
        print_document(found, output)
    else:
        for one in visible_in({"what_if": found})["what_if"]:
            print("\n".join(_lines(one)))
    return 0 if all(one["fits"] for one in found) else 1


def _lines(one: dict[str, Any]) -> Iterator[str]:
    if not one["fits"]:
        yield f"{one['name']}: can never run here: {one['problem']}"
        return
    if _waits_for_changes(one):
        given = " and ".join(map(_has_given, one["changes"]))
        yield f"{one['name']}: would start{_where(one)} as soon as {given}"
        return
    yield f"{one['name']}: {_start(one)}"
    if one["reason"] is not None:
        yield f"  why it would wait: {one['reason']['code']}: {one['reason']['message']}"
    for change in one["changes"]:
        given = f"shrink from {change['width']} to {change['new_width']}" if change["new_width"] else "be preempted"
        yield f"  job {change['job']} would {given}"


def _waits_for_changes(one: dict[str, Any]) -> bool:
    """For nothing but what running jobs are asked to give at once."""
    latest_s = one["expected_in_s"][1]
    return not one["starts_now"] and bool(one["changes"]) and latest_s is not None and latest_s < AT_ONCE_S


def _has_given(change: dict[str, Any]) -> str:
    if not change["new_width"]:
        return f"job {change['job']} was preempted"
    return f"job {change['job']} has shrunk from {change['width']} to {change['new_width']}"


def _where(one: dict[str, Any]) -> str:
    return f" with width {one['width']} on {', '.join(one['nodes'][:5])}" if one["nodes"] else ""


def _start(one: dict[str, Any]) -> str:
    from swell.cli.printing import between_text

    earliest_s, latest_s = one["expected_in_s"]
    if one["starts_now"]:
        return f"would start now{_where(one)}"
    if earliest_s is None:
        return "would wait; nobody can say how long"
    return f"would start {between_text(earliest_s, latest_s)}{_where(one)}"
