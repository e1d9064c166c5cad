"""`swell wait`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client

EXIT_TIMEOUT = 124  # as timeout(1) has it


@click.command("wait")
@click.option("--timeout", metavar="TIME", help="Give up after this time and exit with 124.")
@job_argument(many=True)
@with_client
def command(client: Client, jobs: tuple[str, ...], timeout: str | None) -> int:
    """Wait until jobs have ended. Exits with the job's exit code; for several jobs, with the first that is not 0."""
    import time

    from swell.cli.printing import say, say_end
    from swell.cli.run import exit_code
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity, parse_seconds

    try:
        until = None if timeout is None else time.monotonic() + parse_seconds(timeout)
    except BadQuantity as problem:
        raise Rejected(f"--timeout: {problem}") from None
    found = [client.job(job) for job in jobs]
    for job in found:
        job.wait(timeout_s=None if until is None else max(0.0, until - time.monotonic()))
        if not job.has_ended:
            say(f"job {job.id} ({job.name}) is still {job.state} after {timeout}")
            return EXIT_TIMEOUT
        say_end(job)
    return next((code for code in map(exit_code, found) if code), 0)
