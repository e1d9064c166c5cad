"""`swell token`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import output_option, state_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.group("token", invoke_without_command=True)
@state_option
@click.pass_context
def command(ctx: click.Context, state: str | None) -> int | None:
    """Tokens with which programs, or you from elsewhere, use this server in your name. Without a word: list yours.

    \b
    swell token create ci --scope submit --lasts 30d > ~/swell-token
    swell login https://box.lab:8443 --token-file ~/swell-token        on another machine
    swell token revoke ci                                              refused from now on
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
    type=click.Choice(["read", "submit", "admin"]),
    default="read",
    show_default=True,
    help="read: look at your jobs. submit: and submit, change, cancel them. admin: all that an administrator may.",
)
@click.option("--lasts", metavar="TIME", default="90d", show_default=True, help="As in 12h or 30d; at most 366d.")
@with_client
def create(client: Client, name: str, scope: str, lasts: str) -> int:
    """Make a token and print it, this once: only its hash is kept."""
    from swell.cli.printing import say
    from swell.cli.up import read_duration

    made = client.create_token(name, scope=scope, lasts_s=read_duration(lasts, "--lasts"))
    say(f"token {made['name']} of {made['user']} (scope {made['scope']}) is good until {made['expires_at']}")
    say("it is not shown again; keep it where only you can read it")
    print(made["token"])
    return 0


@command.command("list")
@click.option("--all-users", is_flag=True, help="Everybody's; for administrators.")
@output_option
@with_client
def listing(client: Client, all_users: bool = False, output: str = "table") -> int:
    """List tokens, without their secrets."""
    from swell.cli.printing import print_document, print_table, until

    tokens = client.tokens(all_users=all_users)
    if output in ("json", "yaml"):
        print_document(tokens, output)
    elif not tokens:
        print("there is no token; make one with: swell token create NAME")
    else:
        rows = [[*(token[name] for name in ("id", "name", "user", "scope")), until(token)] for token in tokens]
        print_table(["ID", "NAME", "USER", "SCOPE", "UNTIL"], rows)
    return 0


@command.command("revoke")
@click.argument("token", metavar="NAME|ID")
@with_client
def revoke(client: Client, token: str) -> int:
    """Refuse a token from now on. An administrator may name everybody's by id."""
    from swell.cli.printing import say

    client.revoke_token(token)
    say(f"token {token} is revoked")
    return 0


@command.command("rotate-job-secret")
@with_client
def rotate_job_secret(client: Client) -> int:
    """Make the tokens of jobs with a new secret from now on, as when the old one may have leaked. Admins only.

    Running jobs go on with what they were told until they end; then the old secret is forgotten.
    """
    from swell.cli.printing import say

    running = client.rotate_job_secret()
    say(f"jobs that start from now on get tokens of a new secret; {running} that run keep theirs until they end")
    return 0
