"""`swell delete`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("delete")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...]) -> int:
    """Forget ended jobs: their history and their logs. Running jobs must be cancelled first.

    Checkpoints in the state folder go with them; a folder that --checkpoints named stays.
    """
    from swell.cli.printing import say

    found = {ref: client.job(ref) for ref in jobs}  # all must exist before any is touched
    for ref, job in found.items():
        client.delete(ref)
        say(f"job {job.id} ({job.name}) is deleted")
    return 0
