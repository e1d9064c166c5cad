"""`swell logs`"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client, Job

TAIL_BYTES_PER_LINE = 400  # a first guess; --tail reads that much per line from the end, and more if need be


@click.command("logs")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--rank",
    type=click.IntRange(0),
    help="Which task: a gang's rank, an array's index.  [default: the first]",
)
@click.option("--attempt", type=click.IntRange(1), help="Which life of the job.  [default: all, one after the other]")
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
    moment = _moment(since)
    if client.job(job).document["attempts"] == 0:
        from swell.cli.printing import say

        found = client.job(job)
        say(f"job {found.id} ({found.name}) has no output yet: it is {found.state}; see: swell why {found.id}")
        if not follow or found.has_ended:
            return 0
        while found.document["attempts"] == 0 and not found.has_ended:
            found.refresh(wait_s=25)
    out = sys.stdout.buffer
    which = {"rank": rank, "attempt": attempt}
    offset = 0
    if tail is not None:
        data, offset = _tail(client, job, which, moment, tail)
        out.write(data)
        out.flush()
        if not follow:
            return 0
    found = client.job(job)
    lives = _lives(client, found, attempt, is_tail=tail is not None)
    for life in lives or _growing(found, follow=follow):
        which = {"rank": rank, "attempt": life}
        since_then = None if tail is not None else moment
        is_one_of_many = lives is None and life != 1
        _copy(
            client,
            found.id,
            which,
            out,
            is_one_of_many=is_one_of_many,
            offset=offset,
            since=since_then,
            follow=follow,
        )
        offset = 0
    return 0


def _lives(client: Client, job: Job, attempt: int | None, *, is_tail: bool) -> list[int | None] | None:
    """The attempts to show; None: all of them, and those still to come. An array's task is in one of them."""
    if attempt is not None or is_tail:
        return [attempt]
    is_array = job.document["width_max"] and client.show(job.id)["spec"]["array"] is not None
    return [None] if is_array else None


def _growing(job: Job, *, follow: bool) -> Iterator[int]:
    """One attempt after the other, for as long as there may be another."""
    life = 1
    while True:
        while life > job.document["attempts"]:
            if job.has_ended or not follow:
                return
            job.refresh(wait_s=25)
        yield life
        life += 1
        job.refresh()


def _copy(client: Client, job: int, which: dict[str, Any], out: Any, *, is_one_of_many: bool, **how: Any) -> None:
    from swell.errors import NotFound

    try:
        for piece in client.logs(job, **which, **how):
            out.write(piece)
            out.flush()
    except NotFound:
        if not is_one_of_many:  # a later attempt may be narrower and not have this rank
            raise


def _tail(client: Client, job: str, which: dict[str, Any], since: float | None, lines: int) -> tuple[bytes, int]:
    """The last lines, and the offset after them; further back is read until there are enough of them."""
    window = max(1, lines) * TAIL_BYTES_PER_LINE
    while True:
        piece = client.read_log(job, **which, offset=-window if since is None else 0, since=since)
        start, data = piece.start, piece.data
        while piece.data:
            piece = client.read_log(job, **which, offset=piece.next)
            data += piece.data
        found = data.splitlines(keepends=True)
        if len(found) > lines or start == 0 or window >= piece.next or since is not None:
            return b"".join(found[len(found) - min(lines, len(found)) :]), piece.next
        window *= 4


def _moment(since: str | None) -> float | None:
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_duration

    if since is None:
        return None
    try:
        return time.time() - parse_duration(since)
    except BadQuantity as problem:
        raise Rejected(f"--since: {problem}") from None
