"""`genai-manager`: the words of genai's workload manager, said to Swell."""

from __future__ import annotations

import difflib
from typing import Any

import click

from swell.cli.options import state_option
from swell.cli.root import LazyCommands


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
@state_option
def deploy(filename: str, state: str | None) -> int:
    """Deploy the jobs of a file. Prints the name, the GPUs and the id of each.

    The range of GPUs is nvidia.com/gpu: requests is the least, limits the most. A job that does not fit now is
    queued; `swell why JOB` says what it waits for.
    """
    from swell.cli.printing import print_table, say
    from swell.cli.submit import read_manifest
    from swell.client.client import Client
    from swell.client.embedded import ensure_server
    from swell.errors import SwellError
    from swell.state import StateFolder

    text = read_manifest(filename)
    folder = StateFolder.locate(state)
    if ensure_server(folder):
        say(f"started a server for {folder} (log: {folder.server_log}; stop it with: swell down)")
    client = Client(folder)
    try:
        specs = client.check_manifest(text)
    except SwellError as problem:
        raise type(problem)(f"{filename}: {problem}") from None
    jobs = client.submit_manifest(text)
    rows = [[job.name, gpus_text(spec), str(job.id)] for spec, job in zip(specs, jobs, strict=True)]
    print_table(["NAME", "GPUS", "JOB"], rows)
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
