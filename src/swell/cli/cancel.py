"""`swell cancel`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("cancel")
@click.option("--grace", metavar="TIME", help="Between SIGTERM and SIGKILL.  [default: as the job says]")
@click.option("--wait", is_flag=True, help="Return when they have ended.")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...], grace: str | None, wait: bool) -> int:
    """End jobs: SIGTERM, then after the grace SIGKILL. A queued one just leaves the queue."""
    from swell.cli.printing import say
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_duration

    try:
        grace_s = None if grace is None else 0.0 if grace in ("0", "0s") else parse_duration(grace)
    except BadQuantity as problem:
        raise Rejected(f"--grace: {problem}") from None
    had_ended = {job.id for job in map(client.job, jobs) if job.has_ended}  # and all must exist
    for job in client.cancel_several(jobs, grace_s=grace_s):
        if wait:
            job.wait()
        elif not job.has_ended:
            job.refresh(wait_s=1)  # a queued one is gone at once
        how = "is cancelled" if job.has_ended else "is being stopped"
        say(f"job {job.id} ({job.name}) {f'had already ended: {job.state}' if job.id in had_ended else how}")
    return 0
