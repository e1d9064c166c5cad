"""`swell fetch`"""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli.options import client_for, job_argument, state_option
from swell.model.quantity import number_of


@click.command("fetch")
@click.option("--to", metavar="DIR", default=".", show_default="this folder", help="Folder to write the files to.")
@click.option("--attempt", metavar="N", type=int, help="Attempt to fetch from.  [default: the latest]")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-l", "--list", "only_list", is_flag=True, help="Only list what there is.")
@state_option
@job_argument()
def command(job: str, to: str, attempt: int | None, force: bool, only_list: bool, state: str | None) -> int:
    """Fetch the output files of a job: what its `outputs` (swell run --output) name.

    \b
    swell fetch 12                       into the current folder
    swell fetch --to results train       of the newest job called train
    swell fetch --list 12                what there is, by attempt and machine

    The files are sent to the server when an attempt ends on a machine. If several machines have sent files, each has a
    folder with its name. Nothing is written if one of the files exists, unless --force is given.
    """
    from swell.cli.files import MB, SendProgress
    from swell.cli.printing import say
    from swell.client.transfer import fetch_outputs, list_outputs
    from swell.errors import NotFound

    client = client_for(state)
    found = list_outputs(client.connection, job, attempt)
    if not found:
        raise NotFound(
            f"job {job} has sent no output files; they are sent when an attempt ends, if the job was submitted with "
            "outputs (swell run --output PATTERN)"
        )
    if only_list:
        for one in found:
            held = number_of(one["files"], "file")
            print(f"attempt {one['attempt']}  {one['node']}  {held}  {one['bytes'] / MB:.1f} MB")
        return 0
    shown = SendProgress()
    try:
        files = fetch_outputs(client.connection, found, Path(to), replaces=force, progress=shown)
    finally:
        shown.close()
    say(f"{number_of(files, 'file')} of job {job}, attempt {found[0]['attempt']}, now in {Path(to).resolve()}")
    return 0
