"""`swell cancel` and `swell delete`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, say_if_nobody, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.command("cancel")
@click.option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL.  [default: the job's own --grace]")
@click.option("--wait", is_flag=True, help="Wait until the jobs have ended.")
@click.option("--all", is_flag=True, help="Cancel all your queued and running jobs.")
@click.option("-u", "--user", metavar="USER", help="With --all: cancel this user's jobs. Administrators only.")
@click.option("--all-users", is_flag=True, help="With --all: cancel all users' jobs. Administrators only.")
@job_argument(many=True, required=False)
@with_client
def cancel(
    client: Client,
    jobs: tuple[str, ...],
    grace: str | None,
    wait: bool,
    all: bool,  # noqa: A002
    user: str | None,
    all_users: bool,
) -> int:
    """Cancel jobs. A running job gets SIGTERM and, after the grace period, SIGKILL; a queued job leaves the queue."""
    from swell.cli.printing import say
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_grace

    try:
        grace_s = None if grace is None else 0.0 if grace in ("0", "0s") else parse_grace(grace)
    except BadQuantity as problem:
        raise Rejected(f"--grace: {problem}") from None
    if all == bool(jobs) or ((user or all_users) and not all):
        raise Rejected("name the jobs to cancel, or use --all (administrators can add --user or --all-users)")
    had_ended = {job.id for job in map(client.job, jobs) if job.has_ended}  # and all must exist
    if all:
        ending = client.cancel_all(user=user, all_users=all_users, grace_s=grace_s)
    else:
        ending = client.cancel_several(jobs, grace_s=grace_s)
    if all and not ending:
        if user is None:
            say("no jobs to cancel: all of them have ended")
        say_if_nobody(client, user, "has no queued or running jobs")
    for job in ending:
        if wait:
            job.wait()
        elif not job.has_ended:
            job.refresh(wait_s=1)  # a queued one is gone at once
        how = "is cancelled" if job.has_ended else "is being stopped"
        say(f"job {job.id} ({job.name}) {f'had already ended: {job.state}' if job.id in had_ended else how}")
    return 0


@click.command("delete")
@job_argument(many=True)
@with_client
def delete(client: Client, jobs: tuple[str, ...]) -> int:
    """Delete ended jobs with their history and logs. Cancel a running job before you delete it.

    Checkpoints in the state folder are deleted, too; a folder named with --checkpoints is kept.
    """
    from swell.cli.printing import say

    found = {ref: client.job(ref) for ref in jobs}  # all must exist before any is touched
    for ref, job in found.items():
        client.delete(ref)
        say(f"job {job.id} ({job.name}) is deleted")
    return 0
