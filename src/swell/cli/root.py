"""Which commands are there, and where does each live?"""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from swell import __version__

#: name → (module, one line for the listing). Written here so that listing them imports none of them.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start the server."),
    "down": ("down", "Stop the server; running jobs go on."),
    "run": ("run", "Run a command as a job and show its output."),
    "submit": ("submit", "Submit jobs from files."),
    "ps": ("ps", "List jobs."),
    "show": ("show", "Everything about one job."),
    "why": ("why", "Why a job is not running."),
    "logs": ("logs", "A job's output."),
    "events": ("events", "What happened, and who did it."),
    "wait": ("wait", "Wait for jobs to end."),
    "cancel": ("cancel", "End jobs."),
    "scale": ("scale", "Give a job another width."),
    "hold": ("hold", "Let jobs wait until they are released."),
    "release": ("release", "Let held jobs go on."),
    "requeue": ("requeue", "Start jobs again, from their last checkpoint."),
    "delete": ("delete", "Forget ended jobs and their logs."),
    "exec": ("exec", "Run a command beside a running job, or in its container."),
    "nodes": ("nodes", "Machines, GPUs and who holds them."),
    "usage": ("usage", "GPU-hours by user and day."),
    "login": ("login", "Use a server elsewhere from now on."),
    "logout": ("logout", "Forget that server."),
    "token": ("tokens", "Tokens that act in your name."),
    "service": ("service", "One server for everybody on this machine."),
    "doctor": ("doctor", "What is there, and what would not work."),
    "door": ("door", "Doors for the clients of other systems."),
    "demo": ("demo", "See it work, in under a minute."),
    "completion": ("completion", "Shell completion for bash, zsh or fish."),
}
EXIT_WITH_JOBS_CODE = {"run", "wait", "exec"}  # there, a failure of Swell itself is 125


class Failures(click.Command):
    """How a command of ours ends when something went wrong."""

    def code_of_failure(self, words: Sequence[str] | None) -> int | None:
        """Of Swell itself; None: 2 for what cannot be meant, otherwise 1."""
        return None

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Every failure becomes one line and an exit code; a bug still shows its traceback."""
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
            _with_options(error).show()
            sys.exit(own or error.exit_code)
        except SwellError as error:
            print(f"swell: {error}", file=sys.stderr)
            sys.exit(own or (2 if isinstance(error, Rejected) else 1))
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(141)
        except OSError as error:
            print(f"swell: {error}", file=sys.stderr)
            sys.exit(own or 1)
        sys.exit(code if isinstance(code, int) else 0)


class LazyCommands(Failures, click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"swell.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def code_of_failure(self, words: Sequence[str] | None) -> int | None:
        return 125 if _command_name(words) in EXIT_WITH_JOBS_CODE else None


def _with_options(error: click.ClickException) -> click.ClickException:
    """Where click knows no option that is nearly spelt so, all of them are listed."""
    if not isinstance(error, click.NoSuchOption) or error.possibilities or error.ctx is None:
        return error
    options = [param for param in error.ctx.command.params if isinstance(param, click.Option)]
    names = ", ".join(max(option.opts, key=len) for option in options)
    return click.UsageError(f"{error.message} There are: {names}", error.ctx)


def _command_name(words: Sequence[str] | None) -> str:
    given = sys.argv[1:] if words is None else words
    return next((word for word in given if not word.startswith("-")), "")


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The server that is asked: --state DIR; SWELL_SERVER, SWELL_STATE or SWELL_SOCKET; `swell login`; this "
    "machine's; that of ~/.local/state/swell. `swell doctor` says which, and why. Job: an id or a name.",
)
@click.version_option(__version__, "--version", message="swell %(version)s")
def swell() -> None:
    """Run training and HPC jobs on the GPUs you have.

    \b
    swell run -- python train.py              run it when there is room, show its output
    swell run --gpus 2 -d -- python train.py  the same on two GPUs, in the background
    swell ps                                  what runs and what waits
    swell why JOB                             why it waits, or how it ended
    """
