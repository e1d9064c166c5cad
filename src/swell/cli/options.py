"""Options and small habits that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client import Client, Job

OUTPUTS = click.Choice(["table", "wide", "json", "yaml"])


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--state", metavar="DIR", help="State folder (or SWELL_STATE).")(command)


def wait_for_nodes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    said = "Queue it although no machine here could ever hold it.  [default: refuse it]"
    return click.option("--wait-for-nodes", is_flag=True, help=said)(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", type=OUTPUTS, default="table", show_default=True, help="How to print.")(
        command
    )


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --state and hands over a client for a server that must be running."""

    @state_option
    @functools.wraps(command)
    def call(state: str | None, **options: Any) -> Any:
        return command(client=client_for(state), **options)

    return call


def client_for(state: str | None) -> Client:
    from swell.client.client import Client
    from swell.client.find import find_server

    return Client(find_server(state))


def client_for_jobs(state: str | None) -> Client:
    """As `client_for`; a state folder's server is started when none runs."""
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.embedded import ensure_server
    from swell.client.find import find_server
    from swell.state import StateFolder

    server = find_server(state)
    if isinstance(server, StateFolder) and ensure_server(server):
        say(f"started a server for {server} (log: {server.server_log}; stop it with: swell down)")
    return Client(server)


def change_each(client: Client, refs: tuple[str, ...], change: Callable[[str], Job], said: Callable[[Job], str]) -> int:
    """Change one after the other, all of which must exist before any is touched, and say what became of each."""
    from swell.cli.printing import say

    for ref in refs:
        client.job(ref)
    for ref in refs:
        job = change(ref)
        say(f"job {job.id} ({job.name}) {said(job)}")
    return 0


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids and names, for the shell; silent when no server runs."""
    from swell.errors import SwellError

    try:
        jobs = client_for(ctx.params.get("state")).jobs(limit=200)
    except (SwellError, OSError):
        return []
    words = [str(job.id) for job in jobs] + sorted({job.name for job in jobs})
    return [word for word in words if word.startswith(incomplete)]


def job_argument(*, many: bool = False, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if many:
        return click.argument(
            "jobs", metavar="JOB...", nargs=-1, required=required, callback=_refuse_empty, shell_complete=complete_job
        )
    return click.argument("job", metavar="JOB", callback=_refuse_empty, shell_complete=complete_job)


def _refuse_empty(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """A shell variable that is not set: `swell cancel "$JOB"`."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("a job is named by its id or its name, and this is empty; `swell ps` lists them")
    return value
