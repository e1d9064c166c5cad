"""`run-scheduler`: the words of kubeprofiler's scheduler, said to Swell."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import state_option
from swell.cli.root import Failures

if TYPE_CHECKING:
    from swell.client import Client

SWITCHES = ("--is_single_gpu", "--disable_gpu_sharing")
NODES_S = 10.0  # a server that has just started does not know its machine yet
LOOK_AGAIN_S = 0.05
SCRIPT_BYTES_MAX = 1024 * 1024  # of a script; its imports are at the top
LIBRARIES = (b"kubernetesdlprofile", b"kubeprofiler", b"swell_sdk")
FOLDER = click.Path(file_okay=False, resolve_path=True)


class Switch(click.ParamType[bool]):
    """Yes or no, in whichever word."""

    name = "switch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        from swell.foreign.run_scheduler import read_switch

        found = value if isinstance(value, bool) else read_switch(value)
        if found is None:
            self.fail(f"{value!r} is neither yes nor no; write true or false (or yes, no, on, off, 1, 0)", param, ctx)
        return found


class WithSwitches(Failures):
    """A switch may stand alone or be followed by a word for yes or no."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from swell.foreign.run_scheduler import read_switch

        words: list[str] = []
        for word in args:
            is_value = read_switch(word) is not None and bool(words) and words[-1] in SWITCHES
            words[-1:] = [f"{words[-1]}={word}"] if is_value else [*words[-1:], word]
        return super().parse_args(ctx, [f"{word}=true" if word in SWITCHES else word for word in words])


@click.command(
    "run-scheduler",
    cls=WithSwitches,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.argument("job_name", metavar="JOB_NAME")
@click.option("--image_name", metavar="IMAGE", help="Container image.  [default: a plain process on this machine]")
@click.option(
    "--script_path", metavar="FILE", required=True, help="What `python` runs; /custom/… is the custom folder."
)
@click.option("--custom_dir", type=FOLDER, help="Your code: /custom in a container, else SWELL_CUSTOM_DIR.")
@click.option(
    "--snapshots_dir", type=FOLDER, help="For checkpoints: /snapshots in a container, else SWELL_SNAPSHOTS_DIR."
)
@click.option("--batch_size", type=click.IntRange(1), help="The script reads it as BATCH_SIZE.")
@click.option("--training_set_size", type=click.IntRange(1), help="The script reads it as TRAINING_SET_SIZE.")
@click.option("--max_epochs", type=click.IntRange(1), help="The script reads it as EPOCHS_TO_BE_DONE.")
@click.option("--is_single_gpu", type=Switch(), default=False, help="On one GPU only.  [default: as many as pay off]")
@click.option("--disable_gpu_sharing", type=Switch(), default=False, help="Share the GPU with nobody.")
@click.option("--estimated_memory", type=click.IntRange(1), metavar="MIB", help="GPU memory it needs, by your guess.")
@click.option(
    "--port_mapping", metavar="NODE:CONTAINER[,…]", help="Ports of this machine that lead into the container."
)
@click.option("--est_nhours", type=float, metavar="H", help="Hours it will run, by your guess; more than 1.")
@state_option
def main(state: str | None, **words: Any) -> int:
    """Submit a training script. Prints the job's id.

    \b
    run-scheduler resnet --script_path train.py --custom_dir ~/code --max_epochs 10 --est_nhours 3
    scheduler-state                    what runs and what waits
    scheduler-get-logs ID              its output
    scheduler-cancel-job ID            end it

    It grows and shrinks with the room there is, at the end of an epoch, if it uses kubernetesdlprofile.
    """
    from swell.cli.options import client_for_jobs
    from swell.cli.printing import say
    from swell.errors import Conflict
    from swell.foreign.library import library_folder
    from swell.foreign.run_scheduler import render_manifest, shares_a_gpu

    job = read_words(words)
    library = library_folder()
    pythonpath = os.environ.get("PYTHONPATH", "")
    render_manifest(job, gpus_per_node=1)  # what cannot be meant is refused before a server is started
    client = client_for_jobs(state)
    if client.is_elsewhere:
        raise Conflict(
            f"run-scheduler runs scripts that lie on this machine, and jobs go to {client.state}; "
            "make an image with the script in it and use swell run --image, or name a server here with --state"
        )
    if library is None:
        say("swell-sdk is not installed here: the job runs with the kubernetesdlprofile it finds (pip install ./sdk)")
    manifest = render_manifest(job, gpus_per_node=_widest(client), library=library, pythonpath=pythonpath)
    [accepted] = client.submit_manifest(manifest)
    if shares_a_gpu(job) and not job.is_single_gpu:
        say(
            f"it shares one GPU: {job.estimated_memory_mib} MiB of it, and {job.script_path} does not use "
            "kubernetesdlprofile, so it cannot be scaled; --disable_gpu_sharing gives it whole GPUs"
        )
    print(accepted.id)
    return 0


def read_words(words: dict[str, Any]) -> Any:
    """~/datasets is /data for those who have it."""
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


def _reports(script: str, custom_dir: str | None) -> bool:
    """Does the script use the library that reports its epochs? One that cannot be read here is not known to."""
    from swell.foreign.run_scheduler import local_script

    try:
        with Path(local_script(script, custom_dir)).open("rb") as file:
            text = file.read(SCRIPT_BYTES_MAX)
    except OSError:
        return False
    return any(name in text for name in LIBRARIES)


def _widest(client: Client) -> int:
    """The most GPUs that one machine has."""
    until = time.monotonic() + NODES_S
    while not (nodes := client.nodes()) and time.monotonic() < until:
        time.sleep(LOOK_AGAIN_S)
    return max((len(node["gpus"]) for node in nodes), default=0)
