"""`swell experiment`"""

from __future__ import annotations

import sys
from typing import Any

import click

from swell.errors import Rejected
from swell.model.quantity import number_of


@click.group("experiment")
def command() -> None:
    """Measure schedulers side by side: which one suits these jobs on this cluster?

    \b
    swell experiment list                              workloads and contenders that are included
    swell experiment run --config-name clogging        in the simulator
    swell experiment run -f experiment.yaml            as the file says
    swell experiment report results/clogging           write the report again
    swell experiment compare results/old results/new   two experiments side by side
    swell experiment trace results/clogging gang-3     one gang, step by step

    The format of experiment files is in docs/experiments.md.
    """


@command.command("run")
@click.option("-f", "file", metavar="FILE", help="Experiment file (docs/experiments.md).")
@click.option("--config-name", metavar="NAME", help="Included workload; see `swell experiment list`.")
@click.option("--cluster", type=click.Choice(["simulator", "kubernetes"]), help="Where to run.  [default: simulator]")
@click.option("--context", metavar="NAME", help="Context of your kubeconfig; implies --cluster kubernetes.")
@click.option("--kubeconfig", metavar="FILE", help="Your kubeconfig; implies --cluster kubernetes.")
@click.option("--programs", metavar="DIR", help="Folder with the programs of coscheduling and Kueue.")
@click.option(
    "--contender", "contenders", multiple=True, metavar="NAME", help="Contender; repeatable.  [default: default, swell]"
)
@click.option("--coscheduling", is_flag=True, help="The same as --contender coscheduling.")
@click.option("--kueue", is_flag=True, help="The same as --contender kueue.")
@click.option("--fluence", is_flag=True, help="The same as --contender fluence.")
@click.option("--batches", type=click.IntRange(1, 100), help="How often each contender is measured.")
@click.option("--iters", type=click.IntRange(1, 10_000), help="Gangs of each shape that are submitted in one batch.")
@click.option("--shuffle/--no-shuffle", default=None, help="Draw the order of gangs in each batch.  [default: shuffle]")
@click.option("--seed", type=click.IntRange(0), help="Seed of the gangs and of all orders.  [default: 1]")
@click.option("--outdir", metavar="DIR", help="Folder for the results.  [default: results/NAME]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a run on a Kubernetes cluster.")
def run(*, coscheduling: bool, kueue: bool, fluence: bool, programs: str | None, yes: bool, **asked: Any) -> None:
    """Measure every contender on the same jobs, alone, on a clean cluster.

    \b
    swell experiment run --config-name clogging
    swell experiment run --config-name lammps-mixed --batches 3 --iters 5
    swell experiment run -f experiment.yaml --outdir results/monday

    An interrupted experiment continues with the same command; a finished run is never measured twice.
    """
    from pathlib import Path

    from swell.experiments.command import ExperimentRequest, announce, folder_of, left_of, read_request
    from swell.experiments.command import run as measure

    if fluence and coscheduling:
        raise Rejected("--fluence and --coscheduling both own the PodGroup kind; measure them in two experiments")
    flags = {"coscheduling": coscheduling, "kueue": kueue, "fluence": fluence}
    more = tuple(name for name, is_wanted in flags.items() if is_wanted)
    contenders = asked.pop("contenders") or (("default", "swell") if more else ())
    request = ExperimentRequest(**asked, contenders=(*contenders, *(name for name in more if name not in contenders)))
    experiment = read_request(request)
    path = folder_of(request, experiment)
    click.echo(announce(experiment, path), err=True)
    if experiment.cluster.kind == "kubernetes" and not yes:
        _confirm()
    bar = _RunBar()
    try:
        report = measure(experiment, path, bar, None if programs is None else Path(programs).expanduser())
    except KeyboardInterrupt:
        bar.clear()
        click.echo(
            f"interrupted with {number_of(left_of(experiment, path), 'run')} left: the same command continues", err=True
        )
        raise
    bar.clear()
    click.echo(report)


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise Rejected("this would create jobs on a Kubernetes cluster; add -y to run without being asked")
    click.confirm("This creates jobs on a Kubernetes cluster and deletes them. Continue?", abort=True, err=True)


@command.command("report")
@click.argument("folder", metavar="DIR")
@click.option("--out", metavar="DIR", help="Where to write it.  [default: DIR/report]")
def report(folder: str, out: str | None) -> None:
    """Write the report of an experiment again: one page, plots, and every job as CSV."""
    from swell.experiments.command import report as write

    click.echo(write(folder, out))


@command.command("compare")
@click.argument("before", metavar="DIR")
@click.argument("after", metavar="DIR")
def compare(before: str, after: str) -> None:
    """Show two experiments side by side, contender by contender."""
    from pathlib import Path

    from swell.experiments.compare import compare as compared

    click.echo(compared(Path(before), Path(after)))


@command.command("trace")
@click.argument("folder", metavar="DIR")
@click.argument("gang", metavar="GANG")
@click.option("--contender", metavar="NAME", help="Only this one.  [default: all]")
@click.option("--run", "repeat", type=click.IntRange(1), default=1, show_default=True, help="Number of the run.")
def trace(folder: str, gang: str, contender: str | None, repeat: int) -> None:
    """Show one gang step by step: what was asked, bound, started, and whether that was what was asked."""
    from pathlib import Path

    from swell.experiments.trace import trace as traced

    click.echo(traced(Path(folder), gang, contender, repeat))


@command.command("list")
def listing() -> None:
    """List the workloads and contenders that are included."""
    from swell.experiments.command import listing as listed

    click.echo(listed())


class _RunBar:
    """How far it is: a bar on a terminal, a line for each run elsewhere."""

    def __init__(self) -> None:
        self._shown = ""
        self._number = 0

    def __call__(self, lap: Any, done: int, total: int) -> None:
        head = f"run {lap.number} of {lap.of}: {lap.contender.name}"
        if not sys.stderr.isatty():
            if lap.number != self._number:
                self._number = lap.number
                click.echo(head, err=True)
            return
        filled = 30 * done // max(1, total)
        text = f"{head:34} [{'#' * filled}{'.' * (30 - filled)}] {done} of {total} gangs"
        if text != self._shown:
            self.clear()
            self._shown = text
            click.echo(f"\r{text}", nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo(f"\r{' ' * len(self._shown)}\r", nl=False, err=True)
            self._shown = ""
