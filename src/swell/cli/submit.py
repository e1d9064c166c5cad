"""`swell submit`"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.files import send
from swell.cli.options import (
    client_for_jobs,
    env_option,
    read_variables,
    saying_what_is_awaited,
    state_option,
    wait_for_nodes_option,
)

if TYPE_CHECKING:
    from swell.client import Job
    from swell.client.client import Client, Submitted

ARGUMENTS = "swell.submit.arguments"  #: of the batch script, among what click keeps
OVERRIDE = 'swell submit --sbatch "--gres=gpu:2 --time=1:00" job.sh'
BYTES_MAX = 1024 * 1024  # the server reads no more; said here before 50 MB are sent


class SubmitCommand(click.Command):
    """What follows the name of a batch script is the script's, as for sbatch."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = next((place for place, word in enumerate(args) if self._is_script(ctx, args[:place], word)), None)
        own = args if place is None else args[: place + 1]
        ctx.meta[ARGUMENTS] = () if place is None else tuple(args[place + 1 :])
        try:
            return super().parse_args(ctx, own)
        except click.NoSuchOption as problem:
            if place is None:
                raise
            said = f"{problem.format_message()} To override what is in the script: {OVERRIDE}"
            raise click.UsageError(said, problem.ctx) from None

    def _is_script(self, ctx: click.Context, before: list[str], word: str) -> bool:
        """Is it one, and not the value of an option before it?"""
        try:
            with Path(word).open("rb") as file:
                if file.read(2) != b"#!":
                    return False
            self.make_parser(ctx).parse_args(list(before))
        except (OSError, ValueError):
            return False
        except click.NoSuchOption:
            return True
        except click.UsageError:
            return False
        return True


@click.command("submit", cls=SubmitCommand)
@click.option(
    "-f",
    "--file",
    "files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="YAML manifest, or a batch script of Slurm; - reads standard input. The same as FILE without -f.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the manifests and print the jobs as swell/v1 manifests, without submitting them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    help="With --dry-run: json prints every field of the server's document.  [default: yaml]",
)
@click.option(
    "--upload",
    metavar="DIR",
    type=click.Path(),
    help="Send this folder to the server; the tasks of all jobs run in a copy of it.",
)
@click.option("--wait", is_flag=True, help="Wait for all jobs; exit with the first exit code that is not 0.")
@click.option(
    "--build", is_flag=True, help="Build the image that an AIchor manifest's builder section describes, and run in it."
)
@click.option("--suffix", metavar="TEXT", default="", help="Add this to the name of every manifest, as in: --suffix -2")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="On a cluster: delete objects that have the same names and have ended.",
)
@click.option(
    "--sbatch", metavar="OPTIONS", default="", help='Override #SBATCH lines, as in: --sbatch "--gres=gpu:2 --time=1:00"'
)
@env_option
@wait_for_nodes_option
@state_option
@click.argument("named", metavar="[FILE]...", nargs=-1, type=click.Path())
def command(
    files: tuple[str, ...],
    named: tuple[str, ...],
    dry_run: bool,
    output: str | None,
    upload: str | None,
    wait: bool,
    build: bool,
    suffix: str,
    replaces: bool,
    sbatch: str,
    env: tuple[str, ...],
    wait_for_nodes: bool,
    state: str | None,
) -> int:
    """Submit jobs from manifests and print their ids.

    \b
    apiVersion: swell/v1
    kind: Job
    metadata: {name: train}
    spec:
      command: [python, train.py]
      gpus: 2            # also: tasks, array, cpus, memory, priority, time, grace, env, workdir
      time: 2h
    """
    if not files and not named:
        raise click.UsageError("name a manifest file, for example: swell submit job.yaml")
    if output is not None and not dry_run:
        raise click.UsageError("-o is of --dry-run, which submits nothing; without it, ids are printed")
    arguments = click.get_current_context().meta[ARGUMENTS]
    _refuse_twice((*files, *named))
    _say_arguments((*files, *named), arguments)
    texts, variables = {name: read_manifest(name) for name in (*files, *named)}, read_variables(env)
    client = client_for_jobs(state)
    uploaded = "" if upload is None else send(client, Path(upload))
    how = {"dry_run": dry_run, "wait_for_nodes": wait_for_nodes, "in_images": build, "uploaded": uploaded}
    how |= {"suffix": suffix, "replaces": replaces, "arguments": arguments, "sbatch": sbatch}
    if build:
        _build_what_can_run(client, texts, variables, **how)
    found = submit_files(client, texts, variables, **how)
    if dry_run:
        scripts = {name for name, text in texts.items() if text.startswith("#!")}
        _print_specs(found.specs, output or "yaml", scripts, arguments)
    _say_impossible(found.specs, refuses=not wait_for_nodes)
    for job in found.jobs:
        print(job.id)
    return _wait_for(found.jobs) if wait and not dry_run else 0


def _say_arguments(named: Sequence[str], arguments: Sequence[str]) -> None:
    """An option or a file behind a script may be meant for us."""
    from swell.cli.printing import say
    from swell.errors import Rejected

    if arguments and len(named) > 1:
        raise Rejected(f"{named[-1]} has arguments, which only one script can; submit the other files on their own")
    ours = {"--wait", "--dry-run", "--upload", "--env", "--replace", "--suffix", "--state", "--sbatch", "-o", "-f"}
    if any(word.partition("=")[0] in ours or Path(word).is_file() for word in arguments):
        say(
            f"{named[-1]}: what follows its name is given to the script: {' '.join(arguments)}; options of "
            "swell submit stand before the script, and several scripts are named with -f"
        )


def _build_what_can_run(client: Client, texts: dict[str, str], env: dict[str, str], **how: Any) -> None:
    """What the server refuses is not built, and of what it takes it says how: nobody else reads the manifests."""
    from swell.cli.build import build_images
    from swell.errors import Rejected

    if client.is_elsewhere:
        raise Rejected(
            "--build builds the image on this machine, and the server runs jobs on others; build it there, or push it "
            "to a registry and name it with image in a job file"
        )
    if how["dry_run"]:
        return
    with naming(texts):
        found = client.submit_files(texts, env=env, **{**how, "dry_run": True})
    _say_impossible(found.specs, refuses=not how["wait_for_nodes"], says=False)
    build_images(found.specs)


def _say_impossible(specs: Sequence[dict[str, Any]], *, refuses: bool, says: bool = True) -> None:
    from swell.cli.printing import say
    from swell.errors import TO_QUEUE_IT, Rejected

    problems = impossible(specs)
    if problems and refuses:
        raise Rejected(f"{problems[0]}{TO_QUEUE_IT}")
    for problem in problems if says else ():
        say(problem)


def _print_specs(
    specs: Sequence[dict[str, Any]], output: str, scripts: Collection[str], arguments: Sequence[str]
) -> None:
    """Of a batch script its name stands for what is written around it."""
    from swell.cli.printing import print_document

    for number, spec in enumerate(specs):
        if output == "json":
            print_document({**spec, "env": sorted(spec["env"])}, output)
            continue
        print("---\n" if number else "", end="")
        if spec["file"] in scripts:
            written = spec["written"]
            spec = {**spec, "written": {**written, "spec": {**written["spec"], "command": [spec["file"], *arguments]}}}
        print(_annotated(spec), end="")


LINE_MAX = 2**20  # no text is broken into lines: a comment follows the first


def _annotated(spec: dict[str, Any]) -> str:
    """The job as Swell understood it; a comment on each field says where its value comes from."""
    import yaml

    written, origins = spec["written"], spec["origins"]
    head = {name: value for name, value in written.items() if name != "spec"}
    lines = [*yaml.safe_dump(head, sort_keys=False, allow_unicode=True).splitlines(), "spec:"]
    for name, value in written["spec"].items():
        if name == "roles":
            lines += _annotated_roles(value, origins)
            continue
        first, *rest = _field_lines(name, value)
        lines += [f"  {first}  # {_source(name, origins)}", *(f"  {one}" for one in rest)]
    why = spec.get("cannot_run_here")
    lines.append("# It can run here." if why is None else "# It can never run here.")
    return "\n".join(lines) + "\n"


def _annotated_roles(roles: Sequence[dict[str, Any]], origins: Mapping[str, int]) -> list[str]:
    lines = [f"  roles:  # {_source('roles', origins)}"]
    for number, role in enumerate(roles):
        for place, (name, value) in enumerate(role.items()):
            first, *rest = _field_lines(name, value)
            source = _source(f"roles[{number}].{name}", origins)
            lines += [f"  {'- ' if place == 0 else '  '}{first}  # {source}", *(f"    {one}" for one in rest)]
    return lines


def _field_lines(name: str, value: Any) -> list[str]:
    import yaml

    is_odd = isinstance(value, str) and not value.isprintable()
    style = '"' if is_odd else None  # on one line, with its line breaks as escapes
    return str(yaml.safe_dump({name: value}, sort_keys=False, width=LINE_MAX, default_style=style)).splitlines()


def _source(field: str, origins: Mapping[str, int]) -> str:
    line = origins.get(field)
    return f"line {line}" if line else "your folder" if field == "workdir" else "default"


def _wait_for(jobs: Sequence[Job]) -> int:
    from swell.cli.printing import say_end
    from swell.cli.run import exit_code
    from swell.errors import Rejected

    if not jobs:
        raise Rejected("nothing was submitted")
    for job in jobs:
        say_end(job.wait())
    codes = [exit_code(job) for job in jobs]
    return next((code for code in codes if code), 0)


def _refuse_twice(files: tuple[str, ...]) -> None:
    """Refuse a file that is named twice, under any path: its jobs would run twice."""
    from swell.errors import Rejected

    known: dict[object, str] = {}
    for name in files:
        file = name if name == "-" else os.path.realpath(name)
        if file in known:
            same = "" if known[file] == name else f" (as {known[file]} and {name})"
            raise Rejected(
                f"-f names {known[file]} twice{same}; name each file once, or submit it a second time with its "
                "own command"
            )
        known[file] = name


def impossible(specs: Sequence[dict[str, Any]]) -> list[str]:
    """The jobs that no node could ever hold, with their files."""
    return [
        f"{spec['file']}: job {spec['name']!r} can never run here: {spec['cannot_run_here']}"
        for spec in specs
        if spec.get("cannot_run_here")  # a server of before does not say
    ]


def submit_files(client: Client, texts: dict[str, str], env: dict[str, str], **how: Any) -> Submitted:
    """In one request. Prints notes on fields that have no effect."""
    from swell.cli.printing import say

    with naming(texts), saying_what_is_awaited(client):
        found = client.submit_files(texts, env=env, commit=_commit_for(texts), **how)
    for spec in found.specs:
        for note in spec.get("notes", ()):  # a server of before has none
            say(f"{spec['file']}: {note}")
    return found


def _commit_for(texts: Mapping[str, str]) -> dict[str, str] | None:
    """AIchor manifests alone tell their tasks of a commit, so git is asked for nobody else."""
    from swell.cli.commit import find_commit
    from swell.model.kind import AICHOR

    return find_commit([name for name, text in texts.items() if AICHOR[0].name in text])


@contextmanager
def naming(texts: Mapping[str, str]) -> Iterator[None]:
    """A refusal names the file. Of several files the server says which."""
    from swell.errors import SwellError

    try:
        yield
    except SwellError as problem:
        if len(texts) > 1 or next(iter(texts.values())).startswith("#!"):
            raise  # the server says which
        raise type(problem)(f"{next(iter(texts))}: {problem}") from None


def read_manifest(name: str) -> str:
    from swell.errors import Rejected, TooLarge

    if name == "-":
        text = sys.stdin.buffer.read(BYTES_MAX + 1)
    else:
        try:
            size = Path(name).stat().st_size
            text = Path(name).read_bytes() if size <= BYTES_MAX else b" " * (BYTES_MAX + 1)
        except OSError as error:
            raise Rejected(f"{name}: {error.strerror}; name a readable manifest") from error
    if len(text) > BYTES_MAX:
        raise TooLarge(f"{name} is larger than {BYTES_MAX} bytes, the maximum for a manifest; split it")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{name} is not UTF-8 text (byte {error.start}); a manifest is YAML") from None
