"""`swell login` and `swell logout`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client.login import Login
    from swell.client.remote import Untrusted


@click.command("login")
@click.option("--token-file", metavar="FILE", help="File with your token; read again after a token was refused.")
@click.option(
    "--token-command",
    metavar="WORDS",
    help="Command that prints your token; run when a token is needed. The token is not stored.",
)
@click.option(
    "--ca", metavar="FILE", help="CA certificates for the server, in PEM.  [default: the CAs this machine trusts]"
)
@click.option(
    "--fingerprint",
    metavar="SHA256",
    help="SHA-256 fingerprint of the server's certificate, as `swell up` printed it there.",
)
@click.option(
    "--insecure-http", is_flag=True, help="Allow plain http, where everyone on the network path can read the token."
)
@click.argument("url")
def login(
    url: str,
    token_file: str | None,
    token_command: str | None,
    ca: str | None,
    fingerprint: str | None,
    insecure_http: bool,
) -> int:
    """Use a server on another machine or in a cluster from now on.

    \b
    swell login https://swell.example.org --token-command "kubectl create token anna -n ml --duration 8h"
    swell login https://box.lab:8443 --token-file ~/token      # from `swell token create`, on the box
    swell login http://localhost:8080 --token-file ~/token     # kubectl -n swell port-forward svc/swell 8080

    The command first checks the address and the token. It then stores the address and where the token comes from in
    ~/.config/swell/server.json, but not the token itself. Without --token-file and --token-command, each command
    reads SWELL_TOKEN_FILE or SWELL_API_TOKEN. If no trusted CA signed the server's certificate, it is recognized by
    its fingerprint: compare that with the one `swell up` printed.
    """
    from swell.cli.printing import say
    from swell.client.login import Login, write_login
    from swell.client.remote import Untrusted
    from swell.errors import Rejected

    if token_file is not None and token_command is not None:
        raise Rejected("--token-file and --token-command are both given; use only one of them")
    if ca is not None and fingerprint is not None:
        raise Rejected("--ca and --fingerprint are both given; use only one of them")
    _check_ca(url, ca)
    login = Login(
        url=url,
        token_file=_absolute(token_file),
        token_command=token_command,
        ca=_absolute(ca),
        insecure_http=insecure_http,
        fingerprint=fingerprint,
    )
    try:
        found = _try(login)
    except Untrusted as problem:
        login = _after_asking(login, problem)
        found = _try(login)
    write_login(login)
    say(
        f"commands now use {url} (Swell {found['version']}) as user {found['user']}; to stop using it, run: "
        "swell logout"
    )
    _say_what_comes_first()
    return 0


def _check_ca(url: str, ca: str | None) -> None:
    from swell.errors import Rejected

    if ca is None:
        return
    if not url.lower().startswith("https:"):
        raise Rejected(f"--ca needs an https:// address, and {url} is not one; leave --ca out, or write https://")
    if not Path(ca).expanduser().is_file():
        raise Rejected(f"--ca {ca}: no such file; name a PEM file with the CA certificates for {url}")


def _try(login: Login) -> dict[str, Any]:
    from swell.client.client import Client
    from swell.errors import SwellError

    found = Client(login.remote()).server()
    if not isinstance(found, dict) or not {"version", "user"} <= found.keys():
        raise SwellError(f"{login.url} answers, but not as a Swell server of this version; check the address")
    return found


def _after_asking(login: Login, problem: Untrusted) -> Login:
    """Ask whether to trust an unknown certificate, as ssh does with a host key; only at a terminal."""
    from dataclasses import replace

    from swell.cli.printing import say
    from swell.client.remote import fetch_fingerprint

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise problem
    shown = fetch_fingerprint(login.remote().url)
    say(f"the certificate of {login.url} is not signed by a CA that this machine trusts. Its SHA-256 fingerprint is")
    say(f"  {shown}")
    if not click.confirm(
        "Did `swell up` print the same fingerprint there? Trust this certificate from now on?", err=True
    ):
        raise problem
    return replace(login, fingerprint=shown)


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


def _say_what_comes_first() -> None:
    """Tell the user if another setting takes precedence over this login."""
    from swell.cli.printing import say
    from swell.client.find import choose
    from swell.errors import SwellError
    from swell.machine.state_folder import StateFolder

    try:
        chosen = choose()
    except SwellError as problem:
        say(f"not in this shell: {problem}")
        return
    if isinstance(chosen.server, StateFolder) or chosen.why.startswith("SWELL_"):
        say(f"not in this shell: {chosen.server} is used instead, because {chosen.why}")


@click.command("logout")
def logout() -> int:
    """Stop using the server of `swell login`. Jobs keep running there, and tokens stay valid until they expire."""
    from swell.cli.printing import say
    from swell.client.login import forget_login, login_file

    say(
        "logged out; commands no longer use a remote server"
        if forget_login()
        else f"not logged in: {login_file()} does not exist"
    )
    return 0
