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
@click.option("--all", is_flag=True, help="All of yours that have not ended, instead of naming them.")
@click.option("-u", "--user", metavar="USER", help="With --all: of this user. For administrators.")
@click.option("--all-users", is_flag=True, help="With --all: of everybody. For administrators.")
@job_argument(many=True, required=False)
@with_client
def command(
    client: Client,
    jobs: tuple[str, ...],
    grace: str | None,
    wait: bool,
    all: bool,  # noqa: A002
    user: str | None,
    all_users: bool,
) -> int:
    """End jobs: SIGTERM, then after the grace SIGKILL. A queued one just leaves the queue."""
    from swell.cli.printing import say
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_seconds

    try:
        grace_s = None if grace is None else 0.0 if grace in ("0", "0s") else parse_seconds(grace)
    except BadQuantity as problem:
        raise Rejected(f"--grace: {problem}") from None
    if all == bool(jobs) or ((user or all_users) and not all):
        raise Rejected("name the jobs to cancel, or say --all (and, as an administrator, --user or --all-users)")
    had_ended = {job.id for job in map(client.job, jobs) if job.has_ended}  # and all must exist
    if all:
        ending = client.cancel_all(user=user, all_users=all_users, grace_s=grace_s)
    else:
        ending = client.cancel_several(jobs, grace_s=grace_s)
    for job in ending:
        if wait:
            job.wait()
        elif not job.has_ended:
            job.refresh(wait_s=1)  # a queued one is gone at once
        how = "is cancelled" if job.has_ended else "is being stopped"
        say(f"job {job.id} ({job.name}) {f'had already ended: {job.state}' if job.id in had_ended else how}")
    return 0
