"""`swell logs`"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client

TAIL_BYTES_PER_LINE = 400  # a guess at a long line; --tail reads that much per line from the end


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended.")
@click.option(
    "--rank",
    type=click.IntRange(0),
    help="Which task: a gang's rank, an array's index.  [default: the first]",
)
@click.option("--attempt", type=click.IntRange(1), help="Which life of the job.  [default: the last]")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only what was written in the last 10m, 2h, …")
@job_argument()
@with_client
def command(
    client: Client,
    job: str,
    follow: bool,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    since: str | None,
) -> int:
    """Print a task's output, as it was written: standard output and error together."""
    if job and client.job(job).document["attempts"] == 0:
        from swell.cli.printing import say

        found = client.job(job)
        say(f"job {found.id} ({found.name}) has no output yet: it is {found.state}; see: swell why {found.id}")
        if not follow or found.has_ended:
            return 0
        while found.document["attempts"] == 0 and not found.has_ended:
            found.refresh(wait_s=25)
    offset = 0 if tail is None else -max(1, tail) * TAIL_BYTES_PER_LINE
    out = sys.stdout.buffer
    pieces = client.logs(job, rank=rank, attempt=attempt, offset=offset, since=_moment(since), follow=follow)
    for number, piece in enumerate(pieces):
        data = piece
        if number == 0 and tail is not None:
            data = b"".join(piece.splitlines(keepends=True)[-tail:]) if tail else b""
        out.write(data)
        out.flush()
    return 0


def _moment(since: str | None) -> float | None:
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_duration

    if since is None:
        return None
    try:
        return time.time() - parse_duration(since)
    except BadQuantity as problem:
        raise Rejected(f"--since: {problem}") from None
