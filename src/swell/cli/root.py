"""Which commands exist, and which module implements each?"""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from swell import __version__

#: name → (module, what it is called there, one line for the listing). Written here so that listing imports none.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("up", "up", "Start the server."),
    "down": ("up", "down", "Stop the server; running jobs keep running."),
    "run": ("run", "command", "Run a command as a job and show its output."),
    "submit": ("submit", "command", "Submit jobs from files."),
    "ps": ("ps", "command", "List jobs."),
    "show": ("show", "show", "Show everything about one job."),
    "why": ("show", "why", "Explain why a job is not running."),
    "logs": ("logs", "command", "Print the output of a job."),
    "fetch": ("fetch", "command", "Fetch the output files of a job."),
    "events": ("events", "command", "List events: what happened, and who did it."),
    "wait": ("wait", "command", "Wait for jobs to end."),
    "cancel": ("cancel", "cancel", "Cancel jobs."),
    "scale": ("change", "scale", "Change the width of a job."),
    "hold": ("change", "hold", "Hold jobs until they are released."),
    "release": ("change", "release", "Release held jobs."),
    "requeue": ("change", "requeue", "Queue jobs again; they resume from their last checkpoint."),
    "delete": ("cancel", "delete", "Delete ended jobs and their logs."),
    "render": ("render", "command", "Print jobs as Kubernetes objects or sbatch scripts."),
    "schema": ("schema", "schema", "Print the JSON Schema of a kind of job file."),
    "explain": ("schema", "explain", "Explain the fields of a job file."),
    "exec": ("exec", "command", "Run a command next to a running job, or in its container."),
    "what-if": ("what_if", "command", "Ask when jobs would start; nothing is submitted."),
    "nodes": ("nodes", "command", "List nodes and GPUs, and the jobs on them."),
    "usage": ("usage", "command", "Show GPU-hours by user and day."),
    "history": ("history", "command", "Export what jobs did, for `swell sim`."),
    "login": ("login", "login", "Log in to a server on another machine or in a cluster."),
    "logout": ("login", "logout", "Log out of that server."),
    "token": ("tokens", "command", "Manage tokens for programs that act as you."),
    "worker": ("worker", "command", "Run a worker: offer this machine to a server on another machine."),
    "pool": ("pool", "command", "Start workers in Slurm or a cloud when jobs wait for them."),
    "service": ("service", "command", "Manage one server for all users of this machine."),
    "doctor": ("doctor", "command", "Check this machine and the server."),
    "door": ("door", "command", "Serve the HTTP APIs of other systems."),
    "sim": ("sim", "command", "Simulate a workload on a described cluster."),
    "experiment": ("experiment", "command", "Measure schedulers side by side."),
    "debug": ("debug", "command", "Record a plan and all that it was made from; make it again."),
    "demo": ("demo", "command", "See Swell at work in under a minute."),
    "completion": ("completion", "command", "Print a completion script for bash, zsh or fish."),
}
#: What users of Slurm and others type first → what does it here.
ELSEWHERE = {
    "squeue": "`swell ps`",
    "sbatch": "`swell submit FILE`, which reads batch scripts, or `swell run -d -- COMMAND`",
    "srun": "`swell run -- COMMAND`",
    "salloc": "`swell run -- COMMAND`",
    "scancel": "`swell cancel JOB`",
    "sinfo": "`swell nodes`",
    "scontrol": "`swell show JOB`, or hold, release, requeue and scale",
    "sacct": "`swell ps -a`, or `swell usage` for hours",
    "status": "`swell ps`, or `swell show JOB` for one job",
    "list": "`swell ps`",
    "kill": "`swell cancel JOB`",
    "stop": "`swell cancel JOB`, or `swell down` for the server",
    "start": "`swell run -- COMMAND`, or `swell up` for the server",
}
EXIT_WITH_JOBS_CODE = {"run", "wait", "exec"}  # there, a failure of Swell itself is 125


class Abbreviated(click.Command):
    """A long option may be cut off where its beginning is that of no other one, as in programs made with argparse.

    Only for commands that take the command lines of such a program: elsewhere a new option would break scripts.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        while True:
            try:
                return super().parse_args(ctx, list(args))
            except click.NoSuchOption as error:
                args = self._written_out(ctx, args, error)

    def _written_out(self, ctx: click.Context, args: list[str], error: click.NoSuchOption) -> list[str]:
        short = error.option_name
        names = {name for param in self.get_params(ctx) for name in param.opts if name.startswith("--")}
        meant = [name for name in sorted(names) if name.startswith(short)] if len(short) > 2 else []
        if not meant:
            raise error
        if len(meant) > 1:
            raise click.UsageError(f"{short} could be {' or '.join(meant)}; write one of them out", ctx) from error
        where = next(n for n, word in enumerate(args) if word.split("=", 1)[0] == short)
        return [*args[:where], meant[0] + args[where].removeprefix(short), *args[where + 1 :]]


class Failures(click.Command):
    """A command group that turns every failure into one line and an exit code."""

    def code_of_failure(self, words: Sequence[str] | None) -> int | None:
        """The exit code for a failure of Swell itself; None: 2 for a usage error, otherwise 1."""
        return None

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run the command; turn every failure into one line and an exit code. A bug still shows its traceback."""
        from swell.errors import Rejected, SwellError

        own = self.code_of_failure(kwargs.get("args"))
        for stream in (sys.stdout, sys.stderr):  # a name or a command may hold bytes that are no UTF-8
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except click.exceptions.Abort:
            sys.exit(130)
        except click.ClickException as error:
            error.show()
            sys.exit(own or error.exit_code)
        except SwellError as error:
            _say(error)
            sys.exit(own or (2 if isinstance(error, Rejected) else 1))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(141)
        except OSError as error:
            _say(error)
            sys.exit(own or 1)
        sys.exit(code if isinstance(code, int) else 0)


class LazyCommands(Failures, click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(f"swell.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            if name in ELSEWHERE:
                raise click.UsageError(f"unknown command {name!r}; in Swell, use {ELSEWHERE[name]}", ctx)
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the commands are: {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def code_of_failure(self, words: Sequence[str] | None) -> int | None:
        return 125 if _command_name(words) in EXIT_WITH_JOBS_CODE else None


def _say(error: Exception) -> None:
    from swell.cli.printing import say

    say(str(error))


def _command_name(words: Sequence[str] | None) -> str:
    given = sys.argv[1:] if words is None else words
    return next((word for word in given if not word.startswith("-")), "")


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands use the first of these servers: --state DIR; SWELL_SERVER, SWELL_STATE or SWELL_SOCKET; "
    "`swell login`; the server of this machine; ~/.local/state/swell. `swell doctor` shows which one, and why. "
    "JOB is a job's id or name.",
)
@click.version_option(__version__, "--version", message="swell %(version)s")
def swell() -> None:
    """Run training and HPC jobs on the GPUs you have.

    \b
    swell run -- python train.py              run it as a job, show its output
    swell run --gpus 2 -d -- python train.py  run it on two GPUs, in the background
    swell ps                                  list running and waiting jobs
    swell why JOB                             why a job waits, or how it ended
    """
