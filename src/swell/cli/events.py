"""`swell events`"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import complete_job, output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("events")
@click.option("-f", "--follow", is_flag=True, help="Go on as they happen.")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_job)
@output_option
@with_client
def command(client: Client, job: str | None, follow: bool, output: str) -> int:
    """What happened, oldest first: to one job or to all; who did it, and when."""
    from swell.cli.printing import print_document, print_table

    found = client.events(job=job)
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
        for event in client.follow_events(job=job, after=found[-1]["id"] if found else 0):
            print(json.dumps(event) if output == "json" else "  ".join(_row(event)), flush=True)
    return 0


def _row(event: dict[str, Any]) -> list[str]:
    from swell.cli.printing import event_detail

    return [event["at"], str(event["job"] or "-"), event["kind"], event["actor"], event_detail(event)]
