"""`swell run`"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import client_for_jobs, state_option, wait_for_nodes_option

if TYPE_CHECKING:
    from swell.client import Client, Job


EXIT_INTERRUPTED = 130  # as a shell has it for SIGINT


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--name", metavar="NAME", help="What to call it.  [default: from the command]")
@click.option("--gpus", metavar="N|MIN..MAX", help="GPUs of each task.")
@click.option("--gpu-memory", metavar="SIZE", help="A share of one GPU, as in 6GiB; others share the rest of it.")
@click.option("--exclusive", is_flag=True, help="Whole GPUs, each with at least --gpu-memory.")
@click.option(
    "--on-overrun",
    metavar="WHAT",
    help="When it uses more GPU memory than its share: warn, yield (comes back with more) or stop.  [default: warn]",
)
@click.option("--tasks", metavar="N|MIN..MAX", help="A gang: so many processes, all started together or none.")
@click.option("--array", metavar="0-99%8", help="Independent tasks, one per index, at most 8 at once.")
@click.option("--cpus", metavar="N", help="CPUs of each task, fractions allowed.  [default: 1]")
@click.option("--memory", metavar="SIZE", help="Memory of each task, as in 8GiB.  [default: not counted]")
@click.option("--priority", metavar="P", help="Higher goes first.  [default: 0]")
@click.option(
    "--time",
    metavar="TIME",
    help="Limit, as in 90s, 30m or 2h; 10 is minutes, as for Slurm. A job with one may be fitted in earlier.",
)
@click.option("--grace", metavar="TIME", help="Between SIGTERM and SIGKILL when it is stopped.  [default: 30s]")
@click.option("--epochs", metavar="N", help="How many epochs it trains; it may say so itself.")
@click.option("--hours", metavar="H", help="Your guess of its run time, until it has measured an epoch.")
@click.option(
    "--resize",
    metavar="WHEN",
    help="How a running job changes its width: at-checkpoint (where it reports them), immediate (it resumes by "
    "itself), either (the first if it reports, else the second) or never.  [default: at-checkpoint]",
)
@click.option("--retries", metavar="N", help="Start it again after a failure, so often; preemptions do not count.")
@click.option("--after", metavar="JOB[:end]", multiple=True, help="Start when that one has succeeded; :end: has ended.")
@click.option("--notify", metavar="CMD|URL|mailto:", help="Run, POST to or mail this when it has ended.")
@click.option("--notify-on", metavar="WHEN", help="end, or only error.  [default: end]")
@click.option("--tensorboard", metavar="DIR", help="TensorBoard on this folder for as long as it runs.")
@click.option("--checkpoints", metavar="DIR", help="Where it keeps its checkpoints.  [default: in the state folder]")
@click.option("--min-gpu-utilization", metavar="PERCENT", help="Stop it when none of its GPUs reaches this …")
@click.option("--utilization-window", metavar="TIME", help="… within this time, as in 30m. Give both.")
@click.option(
    "--env",
    metavar="K=V",
    multiple=True,
    help="A variable for it, beside your environment (none of which is sent to a server elsewhere).",
)
@click.option(
    "--workdir", metavar="DIR", type=click.Path(), help="Where it runs.  [default: here; in a cluster its image's]"
)
@click.option("--image", metavar="IMAGE", help="Run it in a container of this image (podman or docker).")
@click.option(
    "--mount", "mounts", metavar="SRC:DST[:ro]", multiple=True, help="What the container sees of the machine."
)
@click.option(
    "--port", "ports", metavar="HOST:CONTAINER", multiple=True, help="A port of the container, opened on the machine."
)
@click.option(
    "--torchrun",
    "launcher",
    flag_value="torchrun",
    help="Start the command with PyTorch's launcher: one rank for each GPU, of all tasks together.",
)
@click.option("--accelerate", "launcher", flag_value="accelerate", help="The same with Accelerate's launcher.")
@click.option("-d", "--detach", is_flag=True, help="Print its id and return at once.")
@wait_for_nodes_option
@state_option
@click.argument("argv", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(argv: tuple[str, ...], state: str | None, detach: bool, env: tuple[str, ...], **options: Any) -> int:
    """Run a command as a job: wait for room, show its output, exit with its code.

    \b
    swell run -- python train.py --epochs 3
    swell run --gpus 2 --time 2h -- python train.py
    swell run --gpu-memory 6GiB -- python small.py     shares a GPU with others
    swell run --tasks 2 -- python ddp.py          two ranks, started together
    swell run --array 0-99%8 -- ./case.sh         reads JOB_COMPLETION_INDEX
    swell run --gpus 1..4 --epochs 20 -- python train.py     grows and shrinks at its checkpoints
    swell run --gpus 1..4 --torchrun -- train.py             the same, a rank for each GPU

    It runs in this folder with this environment; with a server elsewhere (swell login) it has neither. Ctrl-C asks
    what to do; without a terminal it cancels. A failure of Swell itself exits with 125.
    """
    from swell.cli.printing import say
    from swell.model.quantity import duration_text, parse_time_limit

    variables = _variables(env)
    client = client_for_jobs(state)
    job = client.submit(argv, env=variables, **options)
    if detach:
        print(job.id)
        return 0
    limit = options["time"] and f", at most {duration_text(parse_time_limit(options['time']))}"
    say(f"job {job.id} ({job.name}){limit or ''}")
    signal.signal(signal.SIGTERM, _interrupt)
    return watch(client, job)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _variables(pairs: tuple[str, ...]) -> dict[str, str]:
    from swell.errors import Rejected

    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Rejected(
                f"--env {pair!r} is not NAME=VALUE; your own environment is passed on as it is, on this machine"
            )
        variables[name] = value
    return variables


def watch(client: Client, job: Job) -> int:
    """Show it until it ends; an interrupt asks the person, if there is one."""
    from swell.cli.follow import Follower
    from swell.cli.printing import say

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
            say(f"job {job.id} goes on; see it again with: swell logs -f {job.id}")
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
                f"\njob {job.id}: [d]etach and let it go on, [c]ancel it, c[o]ntinue watching? ",
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
    """The job's own; one that failed without a code of its own is 1."""
    if job.state == "succeeded":
        return 0
    return job.exit_code or 1
