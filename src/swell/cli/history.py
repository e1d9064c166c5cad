"""`swell history`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import with_client
from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client


@click.group("history")
def command() -> None:
    """Export what jobs did as a workload, to ask what another policy or cluster would have made of it.

    \b
    swell history export --days 7 > week.csv
    swell sim week.csv --cluster 4x8 --policy swell --policy backfill
    """


@command.command("export")
@click.option("--days", type=click.IntRange(1), metavar="N", help="The last N days, including today.  [default: 30]")
@click.option("--since", metavar="DATE", help="From this day on (UTC), for example 2026-11-16.")
@click.option("-u", "--user", metavar="USER", help="This user's jobs instead of yours.")
@click.option("--all-users", is_flag=True, help="All users' jobs; for administrators.")
@click.option("-o", "output", type=click.Choice(["csv", "json"]), default="csv", show_default=True, help="Format.")
@with_client
def export(client: Client, days: int | None, since: str | None, user: str | None, all_users: bool, output: str) -> int:
    """Print the jobs that have ended since, as a workload that `swell sim` reads.

    A job that reported epochs keeps its speed at every width that was measured. Of any other only the run time of its
    last attempt is known. Jobs without whole GPUs, arrays, and jobs that never ran are left out; a line on stderr
    counts them.
    """
    import csv
    import sys

    from swell.cli.printing import print_document, say

    found = client.history(days=days, since=since, user=user, all_users=all_users)
    if output == "json":
        print_document(found, output)
    elif found["jobs"]:
        writer = csv.DictWriter(sys.stdout, found["jobs"][0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found["jobs"])
    left_out = ", ".join(f"{count} {why}" for why, count in found["left_out"].items())
    say(
        f"{number_of(len(found['jobs']), 'job')} that ended since {found['since']}"
        + (f"; left out: {left_out}" if left_out else "")
    )
    return 0
