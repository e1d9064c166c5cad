"""`swell why`"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

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
    if document["ended_at"] is None:
        shown = client.show(document["id"])
        for note in (*_asked(document["state"], shown["attempts"]), *_widths(document, shown["spec"])):
            print(f"  note: {note}")
    return 0


def _asked(state: str, attempts: list[dict[str, Any]]) -> Iterator[str]:
    """For whom, or at whose word, it has given its room back, or will; of one that is held its reason tells that."""
    asked = attempts[-1]["asked"] if attempts and state != "held" else None
    if asked is not None:
        was = "was" if attempts[-1]["ended_at"] else "is"
        yield f"attempt {attempts[-1]['number']} {was} asked to give its room back: {asked['cause']}"


def _widths(document: dict[str, Any], spec: dict[str, Any]) -> Iterable[str]:
    """Why it has no other width; a server of before has none."""
    return spec.get("notes", ()) if document["width_min"] == document["width_max"] else ()
