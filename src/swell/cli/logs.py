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
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job has ended.")
@click.option(
    "--rank",
    type=click.IntRange(0),
    help="Task: a rank of a gang or an index of an array.  [default: the first]",
)
@click.option(
    "--all", "every", is_flag=True, help="All tasks, at most 16; each line starts with the number of its task."
)
@click.option("--failed", is_flag=True, help="The first failed task.")
@click.option(
    "--attempt", type=click.IntRange(1), help="Number of the attempt.  [default: all attempts, one after the other]"
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--since", metavar="TIME", help="Only output of the last 10m, 2h, …")
@job_argument()
@with_client
def command(
    client: Client,
    job: str,
    follow: bool,
    rank: int | None,
    every: bool,
    failed: bool,
    attempt: int | None,
    tail: int | None,
    since: str | None,
) -> int:
    """Print the output of a task: standard output and standard error together.

    For a job with several tasks, print the output of the first task. For an array, -f then follows the running tasks
    until the job has ended.
    """
    from swell.cli.tasklogs import first_failed, follow_array, is_array, print_all, say_which

    moment = moment_of(since)
    _refuse_several(rank=rank is not None, all=every, failed=failed)
    if every and (tail is not None or since is not None):
        from swell.errors import Rejected

        raise Rejected(
            "--all prints the whole log of each task; leave out --tail and --since, or name one task with --rank"
        )
    found = client.job(job)
    if not _has_output(client, found, follow=follow):
        return 0
    if every:
        print_all(client, found, attempt, follow=follow)
        return 0
    if failed:
        rank = first_failed(client, found)
    elif rank is None:
        say_which(client, found, follow=follow)
        if follow and is_array(found) and attempt is None and tail is None:
            follow_array(client, found, sys.stdout.buffer, since=moment)
            return 0
    _print_one(client, found, rank, attempt, follow=follow, tail=tail, since=moment)
    return 0


def _has_output(client: Client, found: Job, *, follow: bool) -> bool:
    """Tell the user that a job which has not started has no output; -f waits for it instead."""
    if found.document["attempts"] > 0:
        return True
    from swell.cli.printing import say
    from swell.client.find import typed

    see = typed(f"why {found.id}", client.state)
    say(f"job {found.id} ({found.name}) has no output yet: it is {found.state}; to see why, run: {see}")
    while follow and found.document["attempts"] == 0 and not found.has_ended:
        found.refresh(wait_s=25)
    return follow and bool(found.document["attempts"])


def _print_one(
    client: Client,
    found: Job,
    rank: int | None,
    attempt: int | None,
    *,
    follow: bool,
    tail: int | None,
    since: float | None,
) -> None:
    out = sys.stdout.buffer
    offset = 0
    if tail is not None:
        data, offset = _tail(client, found.id, {"rank": rank, "attempt": attempt}, since, tail)
        out.write(data)
        out.flush()
        if not follow:
            return
        found.refresh()
    lives = _lives(client, found, attempt, is_tail=tail is not None)
    for life in lives or _growing(found, follow=follow):
        _copy(
            client,
            found.id,
            {"rank": rank, "attempt": life},
            out,
            is_one_of_many=lives is None and life != 1,
            offset=offset,
            since=None if tail is not None else since,
            follow=follow,
        )
        offset = 0


def _refuse_several(**given: bool) -> None:
    from swell.errors import Rejected

    named = [f"--{name}" for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise Rejected(f"{' and '.join(named)} name different tasks; use only one of them")


def _lives(client: Client, job: Job, attempt: int | None, *, is_tail: bool) -> list[int | None] | None:
    """The attempts to show; None: all of them, including future ones. A task of an array is in one attempt only."""
    if attempt is not None or is_tail:
        return [attempt]
    is_array = job.document["width_max"] and client.show(job.id)["spec"]["array"] is not None
    return [None] if is_array else None


def _growing(job: Job, *, follow: bool) -> Iterator[int]:
    """Yield one attempt after the other, as long as there may be another."""
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


def _tail(client: Client, job: int, which: dict[str, Any], since: float | None, lines: int) -> tuple[bytes, int]:
    """The last lines and the offset after them; reads backward until there are enough lines."""
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


def moment_of(since: str | None) -> float | None:
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_duration

    if since is None:
        return None
    try:
        return time.time() - parse_duration(since)
    except BadQuantity as problem:
        raise Rejected(f"--since: {problem}") from None
