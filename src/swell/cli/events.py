"""`swell events`"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import complete_job, output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Print new events as they happen.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N events.")
@click.option("--since", metavar="TIME", help="Only events of the last 10m, 2h, …")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_job)
@output_option
@with_client
def command(client: Client, job: str | None, follow: bool, tail: int | None, since: str | None, output: str) -> int:
    """List events, oldest first, of one job or of all jobs: what happened, when, and who did it.

    Times are in this machine's time zone, in seconds; -o json has the exact times.
    """
    from swell.cli.logs import moment_of
    from swell.cli.printing import moment, print_document, print_table, visible

    first = moment_of(since)
    every = list(_all(client, job))
    recent = [event for event in every if first is None or (moment(event["at"]) or first) >= first]
    found = recent if tail is None else recent[len(recent) - min(tail, len(recent)) :]
    if output in ("json", "yaml") and not follow:
        print_document(found, output)
        return 0
    if output == "json":
        for event in found:
            print(json.dumps(event))
    else:
        print_table(["AT", "JOB", "EVENT", "BY", "DETAIL"], [_row(event) for event in found])
    if follow:
        sys.stdout.flush()  # whoever reads our pipe sees what was before there is anything new
        for event in client.follow_events(job=job, after=every[-1]["id"] if every else 0):
            print(json.dumps(event) if output == "json" else visible("  ".join(_row(event))), flush=True)
    return 0


def _all(client: Client, job: str | None) -> Iterator[dict[str, Any]]:
    """Fetch events page by page: a server returns at most a thousand at once."""
    after = 0
    while page := client.events(job=job, after=after):
        yield from page
        after = page[-1]["id"]


def _row(event: dict[str, Any]) -> list[str]:
    from swell.cli.printing import event_detail, local

    return [local(event["at"]), str(event["job"] or "-"), event["kind"], event["actor"], event_detail(event)]
