"""`swell hold`, `release`, `requeue` and `scale`: how is a job changed after it was submitted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import change_each, job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client, Job


@click.command("hold")
@job_argument(many=True)
@with_client
def hold(client: Client, jobs: tuple[str, ...]) -> int:
    """Hold jobs until they are released. A running job frees its resources at its next checkpoint.

    The running tasks of an array finish, and no other task starts.
    """
    return change_each(client, jobs, lambda ref: client.hold(ref), _how_held)


def _how_held(job: Job) -> str:
    if job.state == "held":
        return "is held"
    if job.document.get("is_array"):  # a server of before does not say
        return "is held: it starts no more tasks until you release it; running tasks finish"
    return "will be held at its next checkpoint"


@click.command("release")
@job_argument(many=True)
@with_client
def release(client: Client, jobs: tuple[str, ...]) -> int:
    """Release held jobs. Each job keeps its place in the queue."""
    return change_each(client, jobs, lambda ref: client.release(ref), lambda _: "is released")


@click.command("requeue")
@click.option("--now", is_flag=True, help="Stop a running job immediately; work since its last checkpoint is lost.")
@job_argument(many=True)
@with_client
def requeue(client: Client, jobs: tuple[str, ...], now: bool) -> int:
    """Queue jobs again. They resume from their last checkpoint if they have one.

    A running job stops at its next checkpoint and is queued again. A failed or cancelled job is queued again, too; of
    an array, only the tasks that have not succeeded run again.
    """

    def said(running: bool) -> str:
        return "restarts after its next checkpoint" if running and not now else "is queued again"

    return change_each(client, jobs, lambda ref: client.requeue(ref, now=now), lambda job: said(job.state == "running"))


@click.command("scale")
@click.option("--now", is_flag=True, help="Stop the job immediately; work since its last checkpoint is lost.")
@job_argument()
@click.argument("width", metavar="WIDTH|auto")
@with_client
def scale(client: Client, job: str, width: str, now: bool) -> int:
    """Change a job's width, within the range it asked for, as soon as resources are free.

    \b
    swell scale train 4       four GPUs (or tasks) from its next checkpoint on
    swell scale train auto    the width that the planner chooses
    """
    from swell.errors import Rejected

    if width != "auto" and not width.isdigit():
        raise Rejected(f"WIDTH must be a whole number or 'auto', not {width!r}")
    wanted = None if width == "auto" else int(width)

    def said(changed: Job) -> str:
        if wanted is None:
            return "gets the width that the planner chooses"
        return f"gets width {wanted} as soon as resources are free{_loss(client, changed, wanted)}"

    return change_each(client, (job,), lambda ref: client.scale(ref, wanted, now=now), said)


def _loss(client: Client, job: Job, wanted: int) -> str:
    """What a job loses that is stopped without waiting for a checkpoint; empty if nothing."""
    from swell.model.job import ResizeMode

    if job.document["width"] in (0, wanted):
        return ""
    shown = client.show(job.id)
    checkpoint = (shown["training"] or {}).get("checkpoint")
    if ResizeMode(shown["spec"]["resize"]).of(has_checkpoint=checkpoint is not None) is not ResizeMode.IMMEDIATE:
        return ""
    since = "since it started" if checkpoint is None else "since its last checkpoint"
    return f"; it restarts for this, and loses the work that it has not saved {since}"
