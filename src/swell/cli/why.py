"""`swell why`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, output_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("why")
@job_argument()
@output_option
@with_client
def command(client: Client, job: str, output: str) -> int:
    """Why a job is not running: what it wants, what is true, what to do. docs/reasons.md lists the codes."""
    from swell.cli.printing import paint, print_document

    document = client.job(job).document
    reason = document["reason"]
    if output in ("json", "yaml"):
        print_document(reason, output)
        return 0
    print(f"job {document['id']} ({document['name']}) is {paint(document['state'], document['state'])}", end="")
    if reason is None:
        print("." if document["state"] == "running" else ": all its tasks ended well.")
    else:
        print(f": {reason['code']}\n  {reason['message']}")
        if reason["next"]:
            print(f"  next: {reason['next']}")
    if document["ended_at"] is None and document["width_min"] == document["width_max"]:
        spec = client.show(document["id"])["spec"]
        for note in spec.get("notes", ()):  # why it has no other width; a server of before has none
            print(f"  note: {note}")
    return 0
