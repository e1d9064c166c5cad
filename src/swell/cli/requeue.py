"""`swell requeue`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import change_each, job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("requeue")
@click.option("--now", is_flag=True, help="Stop a running one at once; what it did since its checkpoint is lost.")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...], now: bool) -> int:
    """Start jobs again, from their last checkpoint when they have one.

    A running one stops at its next checkpoint and lines up again; one that failed or was cancelled lines up too.
    """

    def said(running: bool) -> str:
        return "starts again after its next checkpoint" if running and not now else "lines up again"

    return change_each(client, jobs, lambda ref: client.requeue(ref, now=now), lambda job: said(job.state == "running"))
