"""`run-scheduler`: the words of kubeprofiler's scheduler, said to Swell."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import Number, state_option
from swell.cli.root import Abbreviated, Failures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swell.client import Client
    from swell.foreign.run_scheduler import Scheduled

SWITCHES = ("--is_single_gpu", "--disable_gpu_sharing")
NODES_S = 10.0  # a server that has just started does not know its machine yet
LOOK_AGAIN_S = 0.05
HOURS_MAX = 100 * 365 * 24  # a hundred years
SCRIPT_BYTES_MAX = 1024 * 1024  # of a script; its imports are at the top
LIBRARIES = (b"kubernetesdlprofile", b"kubeprofiler", b"swell_sdk")
NEITHER = "{!r} is not a boolean; write true or false (or yes, no, on, off, 1, 0)"
FOLDER = click.Path(file_okay=False, resolve_path=True)


class Switch(click.ParamType[bool]):
    """Reads a boolean, in any of the usual words."""

    name = "switch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        from swell.foreign.run_scheduler import read_switch

        found = value if isinstance(value, bool) else read_switch(value)
        if found is None:
            self.fail(NEITHER.format(value), param, ctx)
        return found


class WithSwitches(Failures):
    """A switch may stand alone or be followed by a boolean."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from swell.foreign.run_scheduler import read_switch

        words: list[str] = []
        for word in args:
            is_value = read_switch(word) is not None and bool(words) and words[-1] in SWITCHES
            words[-1:] = [f"{words[-1]}={word}"] if is_value else [*words[-1:], word]
        try:
            return super().parse_args(ctx, [f"{word}=true" if word in SWITCHES else word for word in words])
        except click.UsageError as error:
            _refuse_odd_switch(words, error)
            raise


class SchedulerCommand(Abbreviated, WithSwitches):
    """As kubeprofiler's program, which argparse read."""


def _refuse_odd_switch(words: list[str], error: click.UsageError) -> None:
    """Explain an extra argument: the word after a switch that is not a boolean."""
    pairs = [(switch, word) for switch, word in pairwise(words) if switch in SWITCHES]
    odd = next((pair for pair in pairs if not pair[1].startswith("-")), None)
    if odd is not None and error.message.startswith("Got unexpected extra argument"):
        raise click.UsageError(f"{odd[0]}: {NEITHER.format(odd[1])}", error.ctx) from None


@click.command(
    "run-scheduler",
    cls=SchedulerCommand,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("job_name", metavar="JOB_NAME")
@click.option("--image_name", metavar="IMAGE", help="Container image.  [default: a plain process on this machine]")
@click.option(
    "--script_path", metavar="FILE", required=True, help="Script that `python` runs; /custom/… means the custom folder."
)
@click.option(
    "--custom_dir", type=FOLDER, help="Folder with your code: /custom in a container, otherwise SWELL_CUSTOM_DIR."
)
@click.option(
    "--snapshots_dir",
    type=FOLDER,
    help="Folder for checkpoints: /snapshots in a container, otherwise SWELL_SNAPSHOTS_DIR.",
)
@click.option("--batch_size", type=click.IntRange(1), help="Batch size; the script reads BATCH_SIZE.")
@click.option(
    "--training_set_size", type=click.IntRange(1), help="Training set size; the script reads TRAINING_SET_SIZE."
)
@click.option("--max_epochs", type=click.IntRange(1), help="Epochs to train; the script reads EPOCHS_TO_BE_DONE.")
@click.option(
    "--is_single_gpu",
    type=Switch(),
    help="Use one GPU only.  [default: as many as help, if the script uses kubernetesdlprofile]",
)
@click.option("--disable_gpu_sharing", type=Switch(), default=False, help="Do not share the GPU with other jobs.")
@click.option(
    "--estimated_memory", type=click.IntRange(1), metavar="MIB", help="Estimated GPU memory that the job needs."
)
@click.option(
    "--port_mapping", metavar="NODE:CONTAINER[,…]", help="Ports of this machine to publish into the container."
)
@click.option("--est_nhours", type=Number(0, HOURS_MAX), metavar="H", help="Estimated run time in hours; more than 1.")
@state_option
def main(state: str | None, **words: Any) -> int:
    """Submit a training script and print the job's id.

    \b
    run-scheduler resnet --script_path train.py --custom_dir ~/code --max_epochs 10 --est_nhours 3
    scheduler-state                    what runs and what waits
    scheduler-get-logs ID              its output
    scheduler-cancel-job ID            end it

    A script that uses kubernetesdlprofile grows and shrinks with the free GPUs, at the end of an epoch.
    """
    from swell.cli.options import client_for_jobs
    from swell.cli.printing import say
    from swell.cli.run import foresee
    from swell.errors import Conflict
    from swell.foreign.run_scheduler import has_one_gpu, render_manifest, shares_a_gpu
    from swell.machine.library import library_folder

    job = read_words(words)
    library = library_folder()
    pythonpath = os.environ.get("PYTHONPATH", "")
    render_manifest(job, gpus_per_node=1)  # what cannot be meant is refused before a server is started
    client = client_for_jobs(state)
    if client.is_elsewhere:
        raise Conflict(
            f"run-scheduler runs scripts on this machine, but jobs go to {client.state}; build an image that "
            "contains the script and use swell run --image, or name a server on this machine with --state"
        )
    if library is None:
        say("swell-sdk is not installed here: the job uses the kubernetesdlprofile that it finds (pip install ./sdk)")
    manifest = render_manifest(job, gpus_per_node=_widest(client), library=library, pythonpath=pythonpath)
    for trouble in (*foresee(client, manifest), *_no_script(job)):
        say(f"{trouble}; it must exist when the job starts")
    [accepted] = client.submit_manifest(manifest, via="run-scheduler")
    is_rigid = f"{job.script_path} does not use kubernetesdlprofile, so the job cannot be resized"
    if shares_a_gpu(job) and not job.is_single_gpu:
        say(
            f"the job shares one GPU and gets {job.estimated_memory_mib} MiB of it, because {is_rigid}; "
            "--disable_gpu_sharing gives the job a whole GPU"
        )
    elif has_one_gpu(job) and not job.is_single_gpu:
        say(f"the job gets one GPU, because {is_rigid}; --is_single_gpu no gives it all free GPUs for its whole run")
    print(accepted.id)
    return 0


def read_words(words: dict[str, Any]) -> Any:
    """Mount ~/datasets as /data if the user has that folder."""
    from swell.foreign.run_scheduler import Scheduled

    datasets = Path.home() / "datasets"
    if words["snapshots_dir"] is not None:
        Path(words["snapshots_dir"]).mkdir(parents=True, exist_ok=True)
    return Scheduled(
        name=words["job_name"],
        script_path=words["script_path"],
        image=words["image_name"],
        custom_dir=words["custom_dir"],
        snapshots_dir=words["snapshots_dir"],
        data_dir=str(datasets) if datasets.is_dir() else None,
        batch_size=words["batch_size"],
        training_set_size=words["training_set_size"],
        max_epochs=words["max_epochs"],
        is_single_gpu=words["is_single_gpu"],
        disable_gpu_sharing=words["disable_gpu_sharing"],
        estimated_memory_mib=words["estimated_memory"],
        port_mapping=words["port_mapping"],
        est_nhours=words["est_nhours"],
        reports=_reports(words["script_path"], words["custom_dir"]),
    )


def _reports(script: str, custom_dir: str | None) -> bool | None:
    """Does the script use the library that reports its epochs? None if it cannot be read here."""
    from swell.foreign.run_scheduler import local_script

    try:
        with Path(local_script(script, custom_dir)).open("rb") as file:
            text = file.read(SCRIPT_BYTES_MAX)
    except OSError:
        return None
    return any(name in text for name in LIBRARIES)


def _no_script(job: Scheduled) -> Iterator[str]:
    """Check that the script exists, unless it is in an image."""
    from swell.foreign.run_scheduler import local_script

    if job.custom_dir is not None and not Path(job.custom_dir).is_dir():
        yield f"--custom_dir: folder {job.custom_dir} does not exist"
    elif job.image is None and not Path(local_script(job.script_path, job.custom_dir)).exists():
        yield f"--script_path: script {local_script(job.script_path, job.custom_dir)} does not exist"


def _widest(client: Client) -> int:
    """The most GPUs that one machine has."""
    until = time.monotonic() + NODES_S
    while not (nodes := client.nodes()) and time.monotonic() < until:
        time.sleep(LOOK_AGAIN_S)
    return max((len(node["gpus"]) for node in nodes), default=0)
