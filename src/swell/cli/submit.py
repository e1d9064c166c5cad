"""`swell submit`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import client_for_jobs, state_option, wait_for_nodes_option

if TYPE_CHECKING:
    from swell.client.client import Client

BYTES_MAX = 1024 * 1024  # the server reads no more; said here before 50 MB are sent


@click.command("submit")
@click.option(
    "-f",
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    required=True,
    help="YAML; - is standard input.",
)
@click.option("--dry-run", is_flag=True, help="Check it and print what would be asked for.")
@click.option("--wait", is_flag=True, help="Wait for all of them; exit with the first code that is not 0.")
@wait_for_nodes_option
@state_option
def command(files: tuple[str, ...], dry_run: bool, wait: bool, wait_for_nodes: bool, state: str | None) -> int:
    """Submit jobs from manifests. Prints the id of each.

    \b
    apiVersion: swell/v1
    kind: Job
    metadata: {name: train}
    spec:
      command: [python, train.py]
      gpus: 2            # also: tasks, array, cpus, memory, priority, time, grace, env, workdir
      time: 2h
    """
    from swell.cli.printing import print_document, say, say_end
    from swell.cli.run import exit_code
    from swell.errors import Rejected

    texts = {name: read_manifest(name) for name in files}
    client = client_for_jobs(state)
    jobs = []
    problems = []
    for name, text in texts.items():
        specs = check_manifest(client, name, text)
        problems += impossible(name, specs)
        if dry_run:
            for spec in specs:
                print_document({**spec, "env": sorted(spec["env"])}, "yaml")
    if problems and not wait_for_nodes:
        raise Rejected(f"{problems[0]}; or queue it all the same with --wait-for-nodes")
    for problem in problems:
        say(problem)
    if dry_run:
        return 0
    for text in texts.values():
        jobs += client.submit_manifest(text, wait_for_nodes=wait_for_nodes)
    for job in jobs:
        print(job.id)
    if not wait:
        return 0
    if not jobs:
        raise Rejected("nothing was submitted")
    for job in jobs:
        say_end(job.wait())
    codes = [exit_code(job) for job in jobs]
    return next((code for code in codes if code), 0)


def impossible(name: str, specs: list[dict[str, Any]]) -> list[str]:
    """What a file asks for that no machine here could ever hold."""
    return [
        f"{name}: job {spec['name']!r} could never run here: {spec['cannot_run_here']}"
        for spec in specs
        if spec.get("cannot_run_here")  # a server of before does not say
    ]


def check_manifest(client: Client, name: str, text: str) -> list[dict[str, Any]]:
    """What it would ask for. What it asks for without effect is said."""
    from swell.cli.printing import say
    from swell.errors import SwellError

    try:
        specs = client.check_manifest(text)
    except SwellError as problem:
        raise type(problem)(f"{name}: {problem}") from None
    for note in (note for spec in specs for note in spec.get("notes", ())):  # a server of before has none
        say(f"{name}: {note}")
    return specs


def read_manifest(name: str) -> str:
    from swell.errors import Rejected, TooLarge

    if name == "-":
        text = sys.stdin.buffer.read(BYTES_MAX + 1)
    else:
        try:
            size = Path(name).stat().st_size
            text = Path(name).read_bytes() if size <= BYTES_MAX else b" " * (BYTES_MAX + 1)
        except OSError as error:
            raise Rejected(f"{name}: {error.strerror}; name a manifest that can be read") from error
    if len(text) > BYTES_MAX:
        raise TooLarge(f"{name} is larger than {BYTES_MAX} bytes, the most a manifest may have; split it")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{name} is not UTF-8 text (byte {error.start}); a manifest is YAML") from None
