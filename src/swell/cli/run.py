"""`swell run`"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.files import send_files
from swell.cli.options import (
    client_for_jobs,
    once,
    read_variables,
    saying_what_is_awaited,
    state_option,
    wait_for_nodes_option,
)

if TYPE_CHECKING:
    from swell.client import Client, Job


EXIT_INTERRUPTED = 130  # as a shell has it for SIGINT
LAUNCHERS = ("torchrun", "accelerate", "mpi")
#: What is typed for an argument of `Client.submit`, where that is not its name with two dashes.
OPTIONS = {
    "mounts": "--mount",
    "ports": "--port",
    "inputs": "--input",
    "outputs": "--output",
    "uploaded": "--upload",
    "launcher": "--torchrun, --accelerate or --mpi",
}


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--name", metavar="NAME", help="Job name.  [default: from the command]")
@click.option("--gpus", metavar="N|MIN..MAX", help="GPUs per task; a range makes the job elastic.")
@click.option(
    "--gpu-memory",
    metavar="SIZE",
    help="Share one GPU: reserve this much of its memory, for example 6GiB. Other jobs use the rest.",
)
@click.option("--exclusive", is_flag=True, help="Whole GPUs, each with at least --gpu-memory of memory.")
@click.option(
    "--on-overrun",
    metavar="WHAT",
    help="What to do if the job uses more GPU memory than its share: warn, yield (requeue it with a larger "
    "share) or stop.  [default: warn]",
)
@click.option("--tasks", metavar="N|MIN..MAX", help="Number of tasks (ranks), started all together or not at all.")
@click.option(
    "--array",
    metavar="0-99%8",
    help="Array of independent tasks, one per index, at most 8 at once. Also: 1,3,5 and 0-100:10.",
)
@click.option("--cpus", metavar="N", help="CPUs per task; fractions are allowed.  [default: 1]")
@click.option("--cpu-limit", metavar="N", help="CPUs a task may use at most.  [default: as many as are free]")
@click.option("--memory", metavar="SIZE", help="Memory per task, for example 8GiB.  [default: none reserved]")
@click.option("--tag", metavar="TAG", help="Run only on machines with this tag (`swell worker --tag`).")
@click.option("--priority", metavar="P", help="Priority; higher values start first.  [default: 0]")
@click.option(
    "--time",
    metavar="TIME",
    help="Time limit, for example 90s, 30m or 2h; a plain number is minutes, as in Slurm. A job with a time "
    "limit can be backfilled.",
)
@click.option(
    "--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL when the job is stopped.  [default: 30s]"
)
@click.option("--epochs", metavar="N", help="Number of epochs. The job can also report it.")
@click.option("--hours", metavar="H", help="Estimated run time in hours; used until an epoch has been measured.")
@click.option(
    "--checkpoint-every",
    metavar="TIME",
    help="Also save inside an epoch when this long has passed since the last checkpoint, for example 10m. Needs a "
    "script that can save at any step (swell-sdk).",
)
@click.option(
    "--resize",
    metavar="WHEN",
    help="When a running job may be resized: at-checkpoint (when it reports a checkpoint), immediate (at any "
    "time; the job resumes by itself), either (whichever costs less) or "
    "never.  [default: at-checkpoint]",
)
@click.option(
    "--own-curve",
    is_flag=True,
    help="Learn the speed at each width from this job alone, not from jobs with the same name and command, and tell "
    "other jobs nothing.",
)
@click.option(
    "--retries",
    metavar="N",
    help="Retry up to N times after a failure, not counting preemptions; for an array, N times per index.",
)
@click.option(
    "--after",
    metavar="JOB[:end]",
    multiple=True,
    help="Start after JOB has succeeded; with :end, after it has ended in any way.",
)
@click.option(
    "--notify",
    metavar="CMD|URL|mailto:",
    multiple=True,
    callback=once,
    help="When the job has ended, run this command, POST to this URL or mail this address.",
)
@click.option(
    "--notify-on",
    metavar="WHEN",
    help="When to notify: end (always) or error (only if it failed or was cancelled).  [default: end]",
)
@click.option("--tensorboard", metavar="DIR", help="Run TensorBoard on this log folder while the job runs.")
@click.option("--checkpoints", metavar="DIR", help="Folder for checkpoints.  [default: in the state folder]")
@click.option(
    "--min-gpu-utilization",
    metavar="PERCENT",
    help="Stop the job if no GPU of it reaches this utilization within --utilization-window.",
)
@click.option(
    "--utilization-window",
    metavar="TIME",
    help="Time for --min-gpu-utilization, for example 30m. Use both options together.",
)
@click.option(
    "--env",
    metavar="K=V",
    multiple=True,
    help="Environment variable, in addition to your environment (which is not sent to a remote server).",
)
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(),
    help="Working directory.  [default: this folder; in a cluster, the image's]",
)
@click.option(
    "--upload",
    is_flag=True,
    help="Send the working directory to the server; tasks run in a copy of it. .gitignore and .swellignore are "
    "respected. On the server's own machine, --workdir alone sends nothing, even if the job may run on another "
    "worker.  [default: with --input and --output, and for a remote server if --workdir is relative]",
)
@click.option(
    "--input",
    "inputs",
    metavar="PATH|URL[=TO]",
    multiple=True,
    help="File or folder to send, or URL that each machine fetches, for example https://host/a.csv=data/a.csv.",
)
@click.option(
    "--output",
    "outputs",
    metavar="PATTERN",
    multiple=True,
    help="Files to send back when the job ends, as in .gitignore: results/ or *.pt. `swell fetch` gets them; other "
    "files that the job writes into its copy of the folder are deleted.",
)
@click.option("--image", metavar="IMAGE", help="Run the job in a container of this image (podman or docker).")
@click.option(
    "--mount", "mounts", metavar="SRC:DST[:ro]", multiple=True, help="Mount a folder of the machine into the container."
)
@click.option(
    "--port", "ports", metavar="HOST:CONTAINER", multiple=True, help="Publish a port of the container on the machine."
)
@click.option("--shm", metavar="SIZE", help="Size of the container's /dev/shm.  [default: the machine's]")
@click.option(
    "--torchrun",
    is_flag=True,
    help="Start the command with torchrun: one rank per GPU, across all tasks.",
)
@click.option(
    "--accelerate",
    is_flag=True,
    help="Start the command with Accelerate's launcher: one rank per GPU, across all tasks.",
)
@click.option(
    "--mpi",
    is_flag=True,
    help="Run the command (mpirun) in the first task; its ranks start in all tasks, on all machines.",
)
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and return immediately.")
@wait_for_nodes_option
@state_option
@click.argument("argv", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    argv: tuple[str, ...],
    state: str | None,
    detach: bool,
    env: tuple[str, ...],
    name: str | None,
    wait_for_nodes: bool,
    upload: bool,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    **options: Any,
) -> int:
    """Run a command as a job: wait for free resources, print its output, exit with its exit code.

    \b
    swell run -- python train.py --epochs 3
    swell run --gpus 2 --time 2h -- python train.py
    swell run --gpu-memory 6GiB -- python small.py     shares a GPU with other jobs
    swell run --tasks 2 -- python ddp.py          two ranks, started together
    swell run --array 0-99%8 -- ./case.sh         reads JOB_COMPLETION_INDEX
    swell run --gpus 1..4 --epochs 20 -- python train.py     grows and shrinks at checkpoints
    swell run --gpus 1..4 --torchrun -- train.py             the same, one rank per GPU
    swell run --tasks 2 --cpus 8 --mpi -- mpirun ./solve     16 ranks, also on two machines
    swell run --upload --output results/ -- python train.py  in a copy of this folder, on any machine

    The job runs in the current folder with your environment; a remote server (swell login) gets no environment,
    and it gets this folder only with --upload or --workdir . Ctrl-C asks whether to detach or to cancel; without a
    terminal, it cancels the job. If Swell itself fails, the exit code is 125.
    """
    from swell.cli.printing import say
    from swell.client.find import typed
    from swell.client.needs import refused_as
    from swell.model.quantity import duration_text, parse_time_limit

    launcher = _launcher(options)
    needs = {**options, "env": read_variables(env), "launcher": launcher, "outputs": outputs}
    client = client_for_jobs(state)
    needs |= send_files(client, options["workdir"], inputs, outputs, upload=upload, has_image=bool(options["image"]))
    job_document = _document(argv, name, needs)
    foreseen = foresee(client, job_document)
    with refused_as(option_of), saying_what_is_awaited(client):
        job, notes = client.submit_document(job_document, wait_for_nodes=wait_for_nodes)
    for note in notes:
        say(f"--{note}" if note.startswith("env ") else note)
    for trouble in foreseen:
        say(f"job {job.id} ({job.name}): {trouble}; it must exist when the job starts")
    if detach:
        print(job.id)
        return 0
    limit = options["time"] and f", time limit {duration_text(parse_time_limit(options['time']))}"
    say(f"job {job.id} ({job.name}){limit or ''}")
    signal.signal(signal.SIGTERM, _interrupt)
    code = watch(client, job)
    if outputs:
        say(f"to get its outputs, run: {typed(f'fetch {job.id}', client.state)}")
    return code


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _launcher(options: dict[str, Any]) -> str | None:
    from swell.errors import Rejected

    asked = [name for name in LAUNCHERS if options.pop(name)]
    if len(asked) > 1:
        raise Rejected(f"--{asked[0]} and --{asked[1]} are both given; use only one of them")
    return asked[0] if asked else None


def _document(argv: tuple[str, ...], name: str | None, needs: Any) -> dict[str, Any]:
    from swell.client.needs import refused_as, render_job

    with refused_as(option_of):
        return render_job(argv, name, needs)


def option_of(argument: str) -> str:
    """The command-line option for an argument of `Client.submit`."""
    return OPTIONS.get(argument) or f"--{argument.replace('_', '-')}"


def foresee(client: Client, document: dict[str, Any]) -> list[str]:
    """Why a swell/v1 job would fail on this machine as it is now; empty if no problem is known."""
    from swell.client.foresee import missing, refuse_one_word, runs_here

    if not runs_here(client.state):
        return []
    spec = document["spec"]
    if any(spec.get(field) for field in ("uploaded", "inputs", "outputs")):  # it runs in a folder of its own
        return []
    if not spec.get("image"):
        refuse_one_word(spec["command"], os.environ.get("PATH"))
    return list(missing(spec, Path.cwd(), os.environ))


def watch(client: Client, job: Job) -> int:
    """Show the job until it ends; Ctrl-C asks the user what to do, if there is a terminal."""
    from swell.cli.follow import Follower
    from swell.cli.printing import say
    from swell.client.find import typed

    follower = Follower(client, job)
    is_cancelled = False
    while True:
        try:
            follower.until_ended()
            return EXIT_INTERRUPTED if is_cancelled else exit_code(job)
        except KeyboardInterrupt:
            if is_cancelled:  # asked twice: out of patience; the cancellation goes on
                return EXIT_INTERRUPTED
            answer = _ask(job) if sys.stdin.isatty() and sys.stderr.isatty() else "cancel"
        if answer == "detach":
            say(f"job {job.id} keeps running; to see it again, run: {typed(f'logs -f {job.id}', client.state)}")
            return 0
        if answer == "cancel":
            say(f"cancelling job {job.id}")
            job.cancel()
            is_cancelled = True
        else:
            say(f"watching job {job.id} again")


def _ask(job: Job) -> str:
    answers = {"d": "detach", "c": "cancel", "o": "continue", "": "continue"}
    while True:
        try:
            print(
                f"\njob {job.id}: [d]etach (the job keeps running), [c]ancel it, c[o]ntinue watching? ",
                end="",
                file=sys.stderr,
            )
            sys.stderr.flush()
            word = sys.stdin.readline()
        except KeyboardInterrupt:  # asked twice: out of patience, not of work
            return "detach"
        if word == "":
            return "detach"
        if word.strip().lower()[:1] in answers:
            return answers[word.strip().lower()[:1]]


def exit_code(job: Job) -> int:
    """The job's exit code; 1 if it failed without one."""
    if job.state == "succeeded":
        return 0
    return job.exit_code or 1
