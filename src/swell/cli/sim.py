"""`swell sim`"""

from __future__ import annotations

import sys

import click
from click.core import ParameterSource

from swell.cli.options import Number
from swell.model.policy import DEFAULT_POLICY, POLICY_NAMES


@click.command("sim")
@click.argument("workload", required=False, metavar="[FILE]")
@click.option("--cluster", default="4x4", show_default=True, metavar="NxG|FILE", help="N nodes with G GPUs each.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICY_NAMES),
    help=f"Policy to plan by; repeat it to compare several.  [default: {DEFAULT_POLICY}]",
)
@click.option(
    "--saving",
    type=click.Choice(["when-asked", "at-once", "epochs"]),
    default="when-asked",
    show_default=True,
    help="When jobs save their work: 2 s after they are asked, at once, or only at the end of an epoch.",
)
@click.option(
    "--speeds",
    type=click.Choice(["blank", "known"]),
    default="blank",
    show_default=True,
    help="What the planner knows of jobs: only what they report, or their speed at every width.",
)
@click.option("--restart", "restart_s", type=Number(0, 86400), default=30.0, help="Seconds.  [default: 30]")
@click.option(
    "--pace",
    "pace_s",
    type=Number(0, 3600),
    help="Plan at least N seconds after the last plan.  [default: 0; up to 60 for large workloads]",
)
@click.option("--round", "round_s", type=Number(1, 86400), help="Plan at most every N seconds.")
@click.option("--load", type=Number(0.01, 100), default=1.0, help="Speed up submissions N times.")
@click.option("--profiles", metavar="FILE", help="Speeds of a Pollux workload.  [default: ../step_times.txt]")
@click.option("--jobs", type=click.IntRange(1, 100_000), default=60, help="Jobs to generate.  [default: 60]")
@click.option("--hours", type=Number(0.01, 10_000), default=4.0, help="Submit all jobs within this time.  [default: 4]")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the generated workload.  [default: 1]")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table", help="Format of the report.")
@click.option("--plot", "picture", metavar="FILE.svg", help="Also write a plot.")
def command(workload: str | None, output: str, picture: str | None, policies: tuple[str, ...], **how: object) -> None:
    """Simulate a workload on a described cluster: what would happen to it?

    \b
    swell sim                                       60 generated jobs on 4 nodes with 4 GPUs
    swell sim --policy swell --policy fifo          the same jobs under two policies
    swell sim week.csv --cluster 16x8 -o json       a workload of your own
    swell sim --seed 7 --plot sim.svg               with a picture

    It runs in this process and needs no server. The format of workloads is in docs/sim.md.
    """
    from swell.cli.printing import say
    from swell.sim.command import SimRequest, run

    _refuse_what_has_no_effect(workload)
    wanted = SimRequest(file=workload, policies=policies or (DEFAULT_POLICY,), **how)  # type: ignore[arg-type]
    progress = _Bar()
    complaints: list[str] = []
    report = run(wanted, is_json=output == "json", picture=picture, progress=progress, complain=complaints.append)
    progress.clear()
    click.echo(report)
    for complaint in complaints:
        say(complaint)


def _refuse_what_has_no_effect(workload: str | None) -> None:
    ctx = click.get_current_context()
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for name in given:
        if workload is not None and name in ("jobs", "hours", "seed"):
            raise click.UsageError(f"--{name} is of generated jobs, and {workload} has jobs; leave one of them out")
        if workload is None and name == "profiles":
            raise click.UsageError("--profiles is of a Pollux workload; name its file, too")


class _Bar:
    """How far it is, where somebody watches."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, policy: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        filled = 30 * done // max(1, total)
        text = f"{policy:12} [{'#' * filled}{'.' * (30 - filled)}] {done} of {total} jobs"
        if text != self._shown:
            self._shown = text
            click.echo(f"\r{text}", nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo(f"\r{' ' * len(self._shown)}\r", nl=False, err=True)
