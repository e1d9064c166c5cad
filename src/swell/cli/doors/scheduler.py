"""`scheduler-state`, `scheduler-cancel-job`, `scheduler-get-logs`: the commands for jobs that `run-scheduler`
submitted"""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, state_option, with_client
from swell.cli.root import Failures

if TYPE_CHECKING:
    from swell.client import Client

ASKED_MAX = 200  # jobs; each is a question to the server
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
UUID = re.compile(r"([0-9a-f]{8})-([0-9]+)")
NLAST = (
    "Only the last N submitted jobs, including ended ones.  [default: active jobs, and jobs that ended within a day]"
)


@click.command("scheduler-state", cls=Failures, context_settings=SETTINGS)
@click.option("--all_users", is_flag=True, help="All users' jobs.  [default: yours]")
@click.option("--nlast", type=click.IntRange(1), metavar="N", help=NLAST)
@click.option(
    "--extended",
    is_flag=True,
    help="More columns: image, script, batch size, user, machines, exit code, resizes, lost GPU-seconds.",
)
@with_client
def state(client: Client, all_users: bool, nlast: int | None, extended: bool) -> int:
    """List running and waiting jobs, and why they wait."""
    return _show(client, all_users=all_users, nlast=nlast, extended=extended)


@click.command("scheduler-situation", cls=Failures, context_settings=SETTINGS)
@click.option("--all", "all_users", is_flag=True, help="All users' jobs.  [default: yours]")
@click.option("--nlast", type=click.IntRange(1), metavar="N", help=NLAST)
@with_client
def situation(client: Client, all_users: bool, nlast: int | None) -> int:
    """Former name of scheduler-state."""
    return _show(client, all_users=all_users, nlast=nlast, extended=False)


@click.command("scheduler-cancel-job", cls=Failures, context_settings=SETTINGS)
@job_argument()
@state_option
@click.pass_context
def cancel_job(ctx: click.Context, job: str, state: str | None) -> int:
    """Cancel a job by id, name or JOB_UUID."""
    from swell.cli.cancel import cancel

    code: int = ctx.invoke(cancel, jobs=(_plain(job, state),), state=state)
    return code


@click.command("scheduler-get-logs", cls=Failures, context_settings=SETTINGS)
@job_argument()
@state_option
@click.pass_context
def get_logs(ctx: click.Context, job: str, state: str | None) -> int:
    """Print the output of a job, by id, name or JOB_UUID."""
    from swell.cli.logs import command

    code: int = ctx.invoke(command, job=_plain(job, state), state=state)
    return code


def _show(client: Client, *, all_users: bool, nlast: int | None, extended: bool) -> int:
    from swell.cli.printing import print_table
    from swell.cli.ps import short_rows

    user = None if all_users else getpass.getuser()
    found = client.jobs(all=nlast is not None, user=user, all_users=all_users)
    kept = {job.id for job in sorted(found, key=lambda job: job.id)[-nlast:]} if nlast else {job.id for job in found}
    jobs = [job.document for job in found if job.id in kept]
    if not jobs:
        print("no jobs; to submit one, run: run-scheduler JOB_NAME --script_path FILE")
        return 0
    header, rows = _extended_rows(client, jobs) if extended else short_rows(jobs, of_all=all_users)
    print_table(header, rows, states=header.index("STATE"))
    return 0


def _extended_rows(client: Client, jobs: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    from swell.cli.ps import wide_rows

    header, rows = wide_rows(jobs)
    asked = [_asked(client, job) for job in jobs[:ASKED_MAX]] + [["-"] * 3] * (len(jobs) - ASKED_MAX)
    wide = [[*row[:-1], *more, row[-1]] for row, more in zip(rows, asked, strict=True)]
    return [*header[:-1], "IMAGE", "SCRIPT", "BATCH", header[-1]], wide


def _asked(client: Client, job: dict[str, Any]) -> list[str]:
    """Image, script and batch size; hidden for other users' jobs."""
    from swell.errors import NotFound

    try:
        spec = client.show(job["id"])["spec"]
    except NotFound:
        return ["-"] * 3
    image = "-" if spec["container"] is None else str(spec["container"]["image"])
    command = spec["roles"][0]["command"]
    return [image, str(command[1] if command[:1] == ["python"] and len(command) > 1 else command[0]), _batch(spec)]


def _batch(spec: dict[str, Any]) -> str:
    return str({**spec["env"], **spec["roles"][0]["env"]}.get("BATCH_SIZE", "-"))


def _plain(job: str, state: str | None) -> str:
    """Parse a JOB_UUID: the installation's id and the job's id."""
    from swell.cli.options import client_for
    from swell.errors import NotFound

    match = UUID.fullmatch(job)
    if match is None:
        return job
    if not str(client_for(state).server()["store"]).startswith(match[1]):
        raise NotFound(f"job {job} belongs to another installation; scheduler-state lists the jobs of this one")
    return match[2]
