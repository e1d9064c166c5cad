"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client import Client, Job

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what a shell and Kubernetes take
SILENT_S_MAX = 2.0  # whoever submits hears by then what is waited for
ASKING = "it asks the API server of its cluster whether that accepts the objects"
OUTPUTS = click.Choice(["table", "wide", "json", "yaml"])


class Number(click.ParamType[float]):
    """A number within bounds; click's own float takes nan, and compares it with no bound."""

    name = "number"

    def __init__(self, low: float, high: float) -> None:
        self._low = low
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from swell.model.quantity import BadQuantity, parse_number

        try:
            return parse_number(value, low=self._low, high=self._high)
        except BadQuantity as problem:
            self.fail(str(problem), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


def once(_: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """Of an option that could be thought to add up: the last one alone would count."""
    if len(value) > 1:
        raise click.BadParameter(f"it is given {len(value)} times, and only one counts; give it once", param=param)
    return value[0] if value else None


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--state", metavar="DIR", help="State folder (or SWELL_STATE).")(command)


def wait_for_nodes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    said = "Queue the job even if no node is large enough for it.  [default: refuse it]"
    return click.option("--wait-for-nodes", is_flag=True, help=said)(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", type=OUTPUTS, default="table", show_default=True, help="Output format.")(
        command
    )


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --state to a command, and pass it a client of a running server."""

    @state_option
    @functools.wraps(command)
    def call(state: str | None, **options: Any) -> Any:
        return command(client=client_for(state), **options)

    return call


def client_for(state: str | None) -> Client:
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.find import find_server

    return Client(find_server(state), on_away=say)


def client_for_jobs(state: str | None) -> Client:
    """As `client_for`, but start the server of a state folder if none is running."""
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.embedded import ensure_server
    from swell.client.find import find_server, typed
    from swell.machine.state_folder import StateFolder

    server = find_server(state)
    if isinstance(server, StateFolder) and ensure_server(server):
        say(f"started a server for {server} (log: {server.server_log}; to stop it, run: {typed('down', server)})")
    return Client(server, on_away=say)


env_option = click.option(
    "--env",
    metavar="NAME=VALUE",
    multiple=True,
    help="Environment variable for the jobs, in addition to your environment; also the value of a Secret that a "
    "file refers to.",
)


def read_variables(pairs: tuple[str, ...]) -> dict[str, str]:
    from swell.errors import Rejected

    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Rejected(
                f"--env {pair!r} is not NAME=VALUE; on this machine, jobs inherit your environment without --env"
            )
        if not VARIABLE.fullmatch(name):
            raise Rejected(
                f"--env {pair!r}: {name!r} is not a variable name; use letters, digits and _, and no digit first"
            )
        variables[name] = value
    return variables


def change_each(client: Client, refs: tuple[str, ...], change: Callable[[str], Job], said: Callable[[Job], str]) -> int:
    """Change jobs one after the other, and print the result of each. All of them must exist before any is changed."""
    from swell.cli.printing import say

    for ref in refs:
        client.job(ref)
    for ref in refs:
        job = change(ref)
        say(f"job {job.id} ({job.name}) {said(job)}")
    return 0


def say_if_nobody(client: Client, user: str | None, what: str) -> None:
    """After an empty answer, warn that the user name may be misspelled; a cluster's users are not known here."""
    import pwd

    from swell.cli.printing import say
    from swell.client.foresee import runs_here

    if user is None:
        return
    try:
        pwd.getpwnam(user)
        is_known = True
    except KeyError:
        is_known = not runs_here(client.state)
    said = f"{user} {what}" if is_known else f"{user} {what}, and this machine has no user with that name"
    say(said)


@contextmanager
def saying_what_is_awaited(client: Client) -> Iterator[None]:
    """Of a submission: a server on a cluster shows the objects to the API server, which may be slow or away."""
    timer = threading.Timer(SILENT_S_MAX, _say_what_is_awaited, [client])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(SILENT_S_MAX)  # nothing is said after the answer


def _say_what_is_awaited(client: Client) -> None:
    """On a connection of its own: the client's is in use."""
    from swell.cli.printing import say
    from swell.client.connection import ServerConnection, path
    from swell.errors import SwellError

    connection = ServerConnection(client.state)
    try:
        cluster = connection.json("GET", path("server")).get("cluster")  # a server of before does not say
    except (SwellError, OSError):
        cluster = None
    finally:
        connection.close()
    cause = "" if cluster is None else f"; {cluster['trouble'] or ASKING}"
    say(f"the server has not answered for {SILENT_S_MAX:g} s, still waiting{cause}")


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Ids and names for shell completion; empty when no server is running."""
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
    """Refuse an empty JOB, as from an unset shell variable: `swell cancel "$JOB"`."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("JOB is empty; give a job's id or name (`swell ps` lists them)")
    return value
