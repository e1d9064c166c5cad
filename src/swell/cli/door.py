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
    """Doors for the clients of other systems: genai, kubeprofiler. Without a word: list what is open.

    \b
    swell door address genai                  an address that needs no header, for you
    swell door addresses                      which were made; swell door revoke ID takes one back
    swell door open genai --port 5000         a plain port on this machine, for everybody on it
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
        print("no door is open; open one with: swell door open genai --port 5000")
    else:
        rows = [[str(door["port"]), door["name"], door["owner"], door["problem"] or door["url"]] for door in doors]
        print_table(["PORT", "DOOR", "IN THE NAME OF", "ADDRESS"], rows)
    return 0


@command.command("open")
@click.argument("name", metavar="DOOR")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="On loopback; 0: any that is free.")
@click.option(
    "--as",
    "user",
    metavar="USER",
    help="In whose name it acts, never root's; only root may name another.  [default: yours]",
)
@with_client
def open_door(client: Client, name: str, port: int, user: str | None) -> int:
    """Serve a door on a port of its own, without any token. Admins only.

    Everybody on this machine can use it, in that user's name. It is open again after a restart, until you close it.
    """
    from swell.cli.printing import say

    door = client.open_door(name, port, user=user)
    say(f"door {door['name']} is open; everybody on this machine can act in the name of {door['owner']} there")
    if door["warning"]:
        say(door["warning"])
    print(door["url"])
    return 0


@command.command("close")
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="As `swell door` lists it.")
@with_client
def close_door(client: Client, port: int) -> int:
    """Close a port."""
    from swell.cli.printing import say

    client.close_door(port)
    say(f"port {port} is closed")
    return 0


@command.command("address")
@click.argument("name", metavar="DOOR")
@click.option("--lasts", metavar="TIME", default="30d", show_default=True, help="As in 12h or 30d; at most 366d.")
@with_client
def address(client: Client, name: str, lasts: str) -> int:
    """Print an address that needs no header, for clients that cannot send one.

    Whoever has it can use that door in your name until it expires, or you revoke it (swell door revoke ID).
    """
    from swell.cli.printing import say
    from swell.cli.up import read_duration

    made = client.door_address(name, lasts_s=read_duration(lasts, "--lasts"))
    say(f"address {made['id']} of door {name} is good until {made['expires_at']}, and is not shown again")
    print(made["address"])
    return 0


@command.command("addresses")
@click.option("--all-users", is_flag=True, help="Everybody's; for administrators.")
@output_option
@with_client
def addresses(client: Client, all_users: bool, output: str) -> int:
    """List the addresses that were made, without what makes them work."""
    from swell.cli.printing import print_document, print_table, until

    found = client.door_addresses(all_users=all_users)
    if output in ("json", "yaml"):
        print_document(found, output)
    elif not found:
        print("there is no address; make one with: swell door address genai")
    else:
        rows = [[one["id"], one["door"], one["user"], until(one)] for one in found]
        print_table(["ID", "DOOR", "IN THE NAME OF", "UNTIL"], rows)
    return 0


@command.command("revoke")
@click.argument("address", metavar="ID")
@with_client
def revoke(client: Client, address: str) -> int:
    """Take an address back: whoever uses it finds nothing there from now on."""
    from swell.cli.printing import say

    client.revoke_door_address(address)
    say(f"address {address} is revoked")
    return 0
