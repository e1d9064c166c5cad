"""`swell render`"""

from __future__ import annotations

import click

from swell.cli.options import client_for_jobs, env_option, read_variables, state_option

TARGETS = ("kubernetes", "jobset", "sbatch", "native")


@click.command("render")
@click.option(
    "-f", "--file", "files", metavar="FILE", type=click.Path(), multiple=True, help="A manifest; - is standard input."
)
@click.option("--to", type=click.Choice(TARGETS), default="native", show_default=True, help="What to write.")
@env_option
@state_option
@click.argument("named", metavar="[FILE]...", nargs=-1, type=click.Path())
def command(files: tuple[str, ...], named: tuple[str, ...], to: str, env: tuple[str, ...], state: str | None) -> int:
    """Print the jobs of manifests in another notation. Nothing is submitted.

    What the target cannot express is printed to standard error, one line for each.

    \b
    swell render --to jobset job.yaml
    swell render --to sbatch job.yaml > job.sh
    """
    from swell.cli.printing import say
    from swell.cli.submit import naming, read_manifest

    if not files and not named:
        raise click.UsageError("name a manifest file, for example: swell render --to jobset job.yaml")
    texts = {name: read_manifest(name) for name in (*files, *named)}
    client, variables = client_for_jobs(state), read_variables(env)
    with naming(texts):
        found = client.render_files(texts, to, env=variables)
    is_yaml = to != "sbatch"
    for number, one in enumerate(found):
        print("---\n" if number and is_yaml else "", end="")
        print(one["text"], end="")
        for loss in one["losses"]:
            say(f"{one['file']}: job {one['name']!r}: {loss}")
    return 0
