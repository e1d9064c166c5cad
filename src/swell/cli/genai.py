"""`genai-manager`: the commands of genai's workload manager, run by Swell."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import (
    client_for_jobs,
    env_option,
    read_variables,
    state_option,
    wait_for_nodes_option,
    with_client,
)
from swell.cli.root import LazyCommands

if TYPE_CHECKING:
    from swell.client import Client, Job

ALLOCATED_S = 10.0  # a plan follows at once; on a busy machine it may take some seconds


class Words(LazyCommands):
    """Handles errors and exit codes as `swell` does, with this program's own commands."""

    list_commands = click.Group.list_commands
    format_commands = click.Group.format_commands

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self.commands.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            close = difflib.get_close_matches(name, self.commands, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the commands are: {', '.join(self.commands)}"
            raise click.UsageError(f"unknown command {name!r}; {hint}", ctx)
        return click.Group.resolve_command(self, ctx, args)


@click.group(cls=Words, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Deploy Kubernetes job files as processes on the GPUs of this machine.

    \b
    genai-manager deploy -f job.yaml     start the job with as many GPUs as are free, or queue it
    genai-manager scale -n job1          give it all the GPUs it can use now; without -n, the job that loses the least
    genai-manager delete -n job1         cancel and delete it

    For everything else, use `swell`: ps, why, logs, cancel.
    """


@main.command("deploy")
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="YAML file with one or more Pods, Jobs or PyTorchJobs; - reads standard input.",
)
@env_option
@wait_for_nodes_option
@state_option
def deploy(filename: str, env: tuple[str, ...], wait_for_nodes: bool, state: str | None) -> int:
    """Deploy the jobs of a file. Prints each job's name, requested GPUs, allocated GPUs and id.

    The range of GPUs is nvidia.com/gpu: requests is the minimum, limits the maximum. A job that does not fit now is
    queued. A job is refused if it could never run here, or if an active job has the same name. A job grows when
    another job frees GPUs: at its next checkpoint if it reports checkpoints, otherwise by an immediate restart (to
    change this, annotate swell.dev/resize).
    """
    from swell.cli.printing import print_table, say
    from swell.cli.submit import impossible, read_manifest, submit_files

    text, variables = read_manifest(filename), read_variables(env)
    client = client_for_jobs(state)
    found = submit_files(
        client, {filename: text}, variables, wait_for_nodes=wait_for_nodes, resize="either", takes_names=True
    )
    for problem in impossible(found.specs):
        say(problem)
    until = time.monotonic() + ALLOCATED_S
    jobs = [_planned(job, until) for job in found.jobs]
    rows = [
        [
            job.name,
            gpus_text(spec),
            str(_gpus(spec, job.document["width"])) if job.document["width"] else "-",
            str(job.id),
        ]
        for spec, job in zip(found.specs, jobs, strict=True)
    ]
    print_table(["NAME", "GPUS", "ALLOCATED", "JOB"], rows)
    for job in jobs:
        if job.state == "queued":
            say(f"job {job.id} ({job.name}) waits: {job.document['reason']['message']}")
    return 0


def _planned(job: Job, until: float) -> Job:
    """Print a job as soon as its GPUs, or the reason it waits, are known."""
    while _is_new(job) and (left_s := until - time.monotonic()) > 0:
        job.refresh(wait_s=left_s)
    return job


def _is_new(job: Job) -> bool:
    return job.state == "queued" and job.document["reason"]["code"] == "NotYetPlanned"


@main.command("scale")
@click.option("-n", "--name", metavar="NAME", help="Name of the job.  [default: the job that loses the least work]")
@with_client
def scale(client: Client, name: str | None) -> int:
    """Give a job all the GPUs it can use, now: it restarts from its last checkpoint.

    Swell does this by itself at checkpoints. The command exits with 1 if no job would gain GPUs.
    """
    is_scaled = client.scale_best(name)
    print("Scaled" if is_scaled else "Did not scale")
    return 0 if is_scaled else 1


@main.command("delete")
@click.option(
    "-n",
    "--name",
    "names",
    metavar="NAME",
    multiple=True,
    required=True,
    help="Name of the job; repeat the option for more jobs.",
)
@with_client
def delete(client: Client, names: tuple[str, ...]) -> int:
    """Cancel jobs and delete them with their logs. An object created with kubectl is deleted, too.

    Checkpoints are kept. If several jobs have the same name, name the job by id.
    """
    from swell.cli.printing import say

    found = {job.id: job for job in (client.job(name, sole=True) for name in names)}  # all, before any is touched
    running = [job.id for job in found.values() if not job.has_ended]
    if running:
        client.cancel_several(running)
    for job in found.values():
        client.delete(job.wait().id, with_object=True)
        say(f"job {job.id} ({job.name}) is deleted")
    return 0


def gpus_text(spec: dict[str, Any]) -> str:
    """The GPUs of all tasks together at the minimum and maximum width, as in '2..4'."""
    low, high = (_gpus(spec, spec[end]) for end in ("width_min", "width_max"))
    return str(low) if low == high else f"{low}..{high}"


def _gpus(spec: dict[str, Any], width: int) -> int:
    first, *others = spec["roles"]
    if spec["dimension"] == "gpus":
        return sum(role["count"] * width for role in spec["roles"] if role["gpus"])
    return int(width * first["gpus"] + sum(role["count"] * role["gpus"] for role in others))
