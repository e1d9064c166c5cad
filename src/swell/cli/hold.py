"""`swell hold`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import change_each, job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("hold")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...]) -> int:
    """Let jobs wait until they are released. A running one gives its room back at its next checkpoint."""
    return change_each(
        client,
        jobs,
        lambda ref: client.hold(ref),
        lambda job: f"is {'held' if job.state == 'held' else 'held from its next checkpoint on'}",
    )
