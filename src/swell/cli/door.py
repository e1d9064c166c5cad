"""`swell door`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from swell.cli.options import output_option, state_option, with_client

if TYPE_CHECKING:
    from swell.client import Client


@click.group("door", invoke_without_command=True)
@state_option
@click.pass_context
def command(ctx: click.Context, state: str | None) -> int | None:
    """Serve the HTTP APIs of other systems (genai, kubeprofiler) to their clients. Without a subcommand, list open
    doors.

    \b
    swell door address genai                  print a URL that needs no header
    swell door addresses                      list URLs; swell door revoke ID revokes one
    swell door open genai --port 5000         open a local port to everyone on this machine
    curl http://127.0.0.1:5000/get_all_jobs
    """
    if ctx.invoked_subcommand is None:
        code: int = ctx.invoke(listing, state=state)
        return code
    ctx.default_map = {name: {"state": state} for name in command.commands}  # `--state` may stand before the word
    return None


@command.command("list")
@output_option
@with_client
def listing(client: Client, output: str = "table") -> int:
    """List the ports that are open."""
    from swell.cli.printing import print_document, print_table

    doors = client.doors()
    if output in ("json", "yaml"):
        print_document(doors, output)
    elif not doors:
        print("no door is open; to open one, run: swell door open genai --port 5000")
    else:
        rows = [[str(door["port"]), door["name"], door["owner"], door["problem"] or door["url"]] for door in doors]
        print_table(["PORT", "DOOR", "ACTS AS", "ADDRESS"], rows)
    return 0


@command.command("open")
@click.argument("name", metavar="DOOR")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port on loopback; 0 chooses a free one.")
@click.option(
    "--as",
    "user",
    metavar="USER",
    help="User that requests act as, never root. Only root can name another user.  [default: you]",
)
@with_client
def open_door(client: Client, name: str, port: int, user: str | None) -> int:
    """Serve a door on its own port, without a token. Administrators only.

    Everyone on this machine can use it as that user. It stays open across restarts until you close it.
    """
    from swell.cli.printing import say

    door = client.open_door(name, port, user=user)
    say(f"door {door['name']} is open; everyone on this machine can use it as user {door['owner']}")
    if door["warning"]:
        say(door["warning"])
    print(door["url"])
    return 0


@command.command("close")
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="A port that `swell door` lists.")
@with_client
def close_door(client: Client, port: int) -> int:
    """Close a port."""
    from swell.cli.printing import say

    client.close_door(port)
    say(f"port {port} is closed")
    return 0


@command.command("address")
@click.argument("name", metavar="DOOR")
@click.option(
    "--lasts",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="How long the address is valid, for example 12h or 30d; at most 366d.",
)
@with_client
def address(client: Client, name: str, lasts: str) -> int:
    """Print a URL that works without a header, for clients that cannot send one.

    Whoever has the URL can use the door as you until it expires or you revoke it (swell door revoke ID).
    """
    from swell.cli.printing import say
    from swell.cli.settings import read_duration

    made = client.door_address(name, lasts_s=read_duration(lasts, "--lasts"))
    say(f"address {made['id']} of door {name} is valid until {made['expires_at']}; it is not shown again")
    print(made["address"])
    return 0


@command.command("addresses")
@click.option("--all-users", is_flag=True, help="All users' addresses. Administrators only.")
@output_option
@with_client
def addresses(client: Client, all_users: bool, output: str) -> int:
    """List the addresses without their secrets."""
    from swell.cli.printing import print_document, print_table, until

    found = client.door_addresses(all_users=all_users)
    if output in ("json", "yaml"):
        print_document(found, output)
    elif not found:
        print("no addresses; to make one, run: swell door address genai")
    else:
        rows = [[one["id"], one["door"], one["user"], until(one)] for one in found]
        print_table(["ID", "DOOR", "ACTS AS", "UNTIL"], rows)
    return 0


@command.command("revoke")
@click.argument("address", metavar="ID")
@with_client
def revoke(client: Client, address: str) -> int:
    """Revoke an address: requests to it get "not found" from now on."""
    from swell.cli.printing import say

    client.revoke_door_address(address)
    say(f"address {address} is revoked")
    return 0
