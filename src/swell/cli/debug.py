"""`swell debug`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swell.cli.options import with_client
from swell.model.policy import POLICY_NAMES
from swell.model.quantity import number_of

if TYPE_CHECKING:
    from swell.client import Client


@click.group("debug")
def command() -> None:
    """Record what the planner decided and from what, and decide it again.

    \b
    swell debug snapshot > plan.json          all that the last plan was made from, and that plan
    swell debug replay plan.json              is the same plan made again?
    swell debug replay plan.json --policy fifo
    """


@command.command("snapshot")
@with_client
def snapshot(client: Client) -> int:
    """Print all that the server's last plan was made from, and that plan, as JSON; for administrators.

    It has the sizes, priorities, users and progress of all jobs that have not ended, and the nodes; no commands,
    folders or environments.
    """
    print(json.dumps(client.plan_snapshot()))
    return 0


@command.command("replay")
@click.argument("file", type=click.Path(), metavar="FILE")
@click.option("--policy", type=click.Choice(POLICY_NAMES), help="Plan by this policy.  [default: as recorded]")
def replay(file: str, policy: str | None) -> int:
    """Make the plan of a recorded snapshot again, in this process. Exits with 1 if it is not the recorded one."""
    from swell.cli.printing import say, visible
    from swell.sim.replay import replay as make_again

    found = make_again(Path(file), policy)
    for line in found.lines:
        print(visible(line))
    for line in found.differences:
        say(visible(line))
    same = "not the recorded plan" if found.differences else "the same plan as recorded"
    say(f"{number_of(found.jobs, 'job')} on {number_of(found.nodes, 'node')} under {found.policy}: {same}")
    return 1 if found.differences else 0
