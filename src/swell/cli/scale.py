"""`swell scale`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import change_each, job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("scale")
@click.option("--now", is_flag=True, help="Stop it at once; what it did since its checkpoint is lost.")
@job_argument()
@click.argument("width", metavar="WIDTH|auto")
@with_client
def command(client: Client, job: str, width: str, now: bool) -> int:
    """Give a job another width, within the range it asked for, as soon as there is room.

    \b
    swell scale train 4       four GPUs (or tasks) from its next checkpoint on
    swell scale train auto    whatever is best, as before
    """
    from swell.errors import Rejected

    if width != "auto" and not width.isdigit():
        raise Rejected(f"WIDTH {width!r} is neither a whole number nor 'auto'")
    wanted = None if width == "auto" else int(width)
    said = (
        "is as wide as the planner thinks best" if wanted is None else f"gets width {wanted} as soon as there is room"
    )
    return change_each(client, (job,), lambda ref: client.scale(ref, wanted, now=now), lambda _: said)
