"""`swell release`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import change_each, job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("release")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...]) -> int:
    """Let held jobs go on; each lines up where it stood."""
    return change_each(client, jobs, lambda ref: client.release(ref), lambda _: "is released")
