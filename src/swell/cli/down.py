"""`swell down`"""

from __future__ import annotations

import click

from swell.cli.options import state_option


@click.command("down")
@click.option("--cancel", is_flag=True, help="Cancel all jobs first, of everybody, and wait for them to end.")
@state_option
def command(cancel: bool, state: str | None) -> int:
    """Stop the server and its worker. Running jobs go on and are taken up by the next `swell up`."""
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.embedded import is_running, stop_server
    from swell.client.find import find_server
    from swell.client.job import ENDED
    from swell.errors import Conflict
    from swell.state import StateFolder

    folder = find_server(state)
    if not isinstance(folder, StateFolder):
        raise Conflict(
            f"{folder} is not yours to stop: others use it; `swell logout` forgets it, and --state names a server here"
        )
    running = 0
    if is_running(folder):
        client = Client(folder)
        if cancel:
            for job in client.cancel_all(all_users=True):
                job.wait()
        else:
            jobs: dict[str, int] = client.server()["jobs"]
            running = sum(count for state, count in jobs.items() if state not in (*ENDED, "queued", "held"))
    if not stop_server(folder):
        say(f"nothing runs for {folder}")
        return 0
    said = f"; {running} running job(s) go on, the next `swell up` takes them up" if running else ""
    say(f"stopped the server of {folder}{said}")
    return 0
