"""`genai-manager`: the words of genai's workload manager, said to Swell."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import client_for_jobs, state_option, wait_for_nodes_option, with_client
from swell.cli.root import LazyCommands

if TYPE_CHECKING:
    from swell.client import Client, Job

ALLOTTED_S = 10.0  # a plan follows at once; on a busy machine it may take some seconds


class Words(LazyCommands):
    """Failures and exit codes as in `swell`, but the commands are this program's own."""

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
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return click.Group.resolve_command(self, ctx, args)


@click.group(cls=Words, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Deploy Kubernetes job files on the GPUs of this machine, as processes.

    \b
    genai-manager deploy -f job.yaml     start it as wide as there is room for, or queue it
    genai-manager scale -n job1          give it all it can use, at once; without -n the one that loses least
    genai-manager delete -n job1         end it and forget it

    Everything else is `swell`: ps, why, logs, cancel.
    """


@main.command("deploy")
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="YAML: Pod, Job or PyTorchJob, several in one file if you like; - is standard input.",
)
@wait_for_nodes_option
@state_option
def deploy(filename: str, wait_for_nodes: bool, state: str | None) -> int:
    """Deploy the jobs of a file. Prints the name, the GPUs asked for and allotted, and the id of each.

    The range of GPUs is nvidia.com/gpu: requests is the least, limits the most. A job that does not fit now is
    queued; one that could never run here is refused. It grows when another gives room back: at its next checkpoint
    if it reports them, otherwise at once, and goes on by itself (annotate swell.dev/resize to have it otherwise).
    """
    from swell.cli.printing import print_table, say
    from swell.cli.submit import check_manifest, impossible, read_manifest
    from swell.errors import Rejected

    text = read_manifest(filename)
    client = client_for_jobs(state)
    specs = check_manifest(client, filename, text)
    problems = impossible(filename, specs)
    if problems and not wait_for_nodes:
        raise Rejected(f"{problems[0]}; or queue it all the same with --wait-for-nodes")
    jobs = [_planned(job) for job in client.submit_manifest(text, wait_for_nodes=wait_for_nodes, resize="either")]
    rows = [
        [
            job.name,
            gpus_text(spec),
            str(_gpus(spec, job.document["width"])) if job.document["width"] else "-",
            str(job.id),
        ]
        for spec, job in zip(specs, jobs, strict=True)
    ]
    print_table(["NAME", "GPUS", "ALLOTTED", "JOB"], rows)
    for job in jobs:
        if job.state == "queued":
            say(f"job {job.id} ({job.name}) waits: {job.document['reason']['message']}")
    return 0


def _planned(job: Job) -> Job:
    """As soon as it is known what it gets, or why it waits."""
    until = time.monotonic() + ALLOTTED_S
    while _is_new(job) and (left_s := until - time.monotonic()) > 0:
        job.refresh(wait_s=left_s)
    return job


def _is_new(job: Job) -> bool:
    return job.state == "queued" and job.document["reason"]["code"] == "NotYetPlanned"


@main.command("scale")
@click.option("-n", "--name", metavar="NAME", help="Which job.  [default: the one that loses least by it]")
@with_client
def scale(client: Client, name: str | None) -> int:
    """Give a job all the GPUs it can use now, at once: it is stopped and goes on from its last checkpoint.

    At its checkpoints Swell does that by itself. Exits with 1 when nobody gains by it.
    """
    is_scaled = client.scale_best(name)
    print("Scaled" if is_scaled else "Did not scale")
    return 0 if is_scaled else 1


@main.command("delete")
@click.option(
    "-n", "--name", "names", metavar="NAME", multiple=True, required=True, help="Which job; repeat it for more."
)
@with_client
def delete(client: Client, names: tuple[str, ...]) -> int:
    """End jobs if they run, and forget them with their logs; an object that came by kubectl is deleted, too.

    Checkpoints stay where they are.
    """
    from swell.cli.printing import say

    found = {job.id: job for job in map(client.job, names)}  # all must exist before any is touched
    running = [job.id for job in found.values() if not job.has_ended]
    if running:
        client.cancel_several(running)
    for job in found.values():
        client.delete(job.wait().id, with_object=True)
        say(f"job {job.id} ({job.name}) is deleted")
    return 0


def gpus_text(spec: dict[str, Any]) -> str:
    """'2..4': of all its tasks together, at its least and its largest width."""
    low, high = (_gpus(spec, spec[end]) for end in ("width_min", "width_max"))
    return str(low) if low == high else f"{low}..{high}"


def _gpus(spec: dict[str, Any], width: int) -> int:
    first, *others = spec["roles"]
    if spec["dimension"] == "gpus":
        return sum(role["count"] * width for role in spec["roles"] if role["gpus"])
    return int(width * first["gpus"] + sum(role["count"] * role["gpus"] for role in others))
