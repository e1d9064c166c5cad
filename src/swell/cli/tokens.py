"""`swell token`"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import output_option, state_option, with_client

if TYPE_CHECKING:
    from swell.client import Client

STDOUT = 1


@click.group("token", invoke_without_command=True)
@state_option
@click.pass_context
def command(ctx: click.Context, state: str | None) -> int | None:
    """Manage tokens that let programs, or you on another machine, use this server as you. Without a subcommand, list
    yours.

    \b
    swell token create ci --scope submit --lasts 30d --token-file ~/swell-token
    swell login https://box.lab:8443 --token-file ~/swell-token        on another machine
    swell token revoke ci                                              the token is refused from now on
    """
    if ctx.invoked_subcommand is None:
        code: int = ctx.invoke(listing, state=state)
        return code
    ctx.default_map = {name: {"state": state} for name in command.commands}  # `--state` may stand before the word
    return None


@command.command("create")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "submit", "admin", "worker", "pool"]),
    default="read",
    show_default=True,
    help="read: see your jobs. submit: also submit, change and cancel them. admin: everything an administrator may do. "
    "worker: run `swell worker` on another machine. pool: run `swell pool start`, which starts workers.",
)
@click.option(
    "--lasts",
    metavar="TIME",
    default="90d",
    show_default=True,
    help="How long the token is valid, for example 12h or 30d; at most 366d.",
)
@click.option("--group", metavar="GROUP", default="", help="With the scope worker: only jobs of this group run there.")
@click.option("--token-file", metavar="FILE", help="Write it to FILE, which only you can read; nothing is printed.")
@with_client
def create(client: Client, name: str, scope: str, lasts: str, group: str, token_file: str | None) -> int:
    """Make a token and print it once; only its hash is stored."""
    from swell.cli.printing import say
    from swell.cli.settings import read_duration
    from swell.machine.state_folder import exposure

    made = client.create_token(name, scope=scope, group=group, lasts_s=read_duration(lasts, "--lasts"))
    if token_file is not None:
        _keep(client, made, Path(token_file).expanduser().absolute())
    say(f"token {made['name']} of {made['user']} (scope {made['scope']}) is valid until {made['expires_at']}")
    if token_file is not None:
        return 0
    say("it is not shown again; store it where only you can read it")
    if found := exposure(STDOUT):
        say(f"the file that it is redirected to: {found}; chmod 600 it, or use --token-file FILE instead of > FILE")
    print(made["token"])
    return 0


def _keep(client: Client, made: dict[str, Any], path: Path) -> None:
    """A token that nobody can read is revoked again. A file that is there may hold another token, and is kept."""
    from swell.errors import Rejected

    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{made['token']}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        client.revoke_token(made["id"])
        if not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)
        raise Rejected(f"{path} cannot be written ({error.strerror}); no token was made; name another file") from error


@command.command("list")
@click.option("--all-users", is_flag=True, help="All users' tokens. Administrators only.")
@output_option
@with_client
def listing(client: Client, all_users: bool = False, output: str = "table") -> int:
    """List tokens, without their secrets."""
    from swell.cli.printing import print_document, print_table, until

    tokens = client.tokens(all_users=all_users)
    if output in ("json", "yaml"):
        print_document(tokens, output)
    elif not tokens:
        print("no tokens; to make one, run: swell token create NAME")
    else:
        rows = [[*(token[name] for name in ("id", "name", "user", "scope")), until(token)] for token in tokens]
        print_table(["ID", "NAME", "USER", "SCOPE", "UNTIL"], rows)
    return 0


@command.command("revoke")
@click.argument("token", metavar="NAME|ID")
@with_client
def revoke(client: Client, token: str) -> int:
    """Revoke a token. An administrator can revoke any user's token by id."""
    from swell.cli.printing import say

    client.revoke_token(token)
    say(f"token {token} is revoked")
    return 0


@command.command("rotate-job-secret")
@with_client
def rotate_job_secret(client: Client) -> int:
    """Sign the tokens of jobs with a new secret, for example because the old one may have leaked. Administrators only.

    Running jobs keep their tokens until they end; then the old secret is deleted.
    """
    from swell.cli.printing import say

    running = client.rotate_job_secret()
    say(
        f"jobs that start from now on get tokens signed with a new secret; {running} running job(s) keep theirs "
        "until they end"
    )
    return 0
