"""`swell login`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from swell.client.login import Login
    from swell.client.remote import Untrusted


@click.command("login")
@click.option("--token-file", metavar="FILE", help="Has your token; read again when it was refused.")
@click.option("--token-command", metavar="WORDS", help="Prints your token; run when one is needed, kept nowhere.")
@click.option("--ca", metavar="FILE", help="Who vouches for the server, in PEM.  [default: whom this machine trusts]")
@click.option("--fingerprint", metavar="SHA256", help="Of its certificate, as `swell up` printed it there.")
@click.option("--insecure-http", is_flag=True, help="Send the token over http, where everybody on the way reads it.")
@click.argument("url")
def command(
    url: str,
    token_file: str | None,
    token_command: str | None,
    ca: str | None,
    fingerprint: str | None,
    insecure_http: bool,
) -> int:
    """Use a server elsewhere, as one in a cluster, from now on.

    \b
    swell login https://swell.example.org --token-command "kubectl create token anna -n ml --duration 8h"
    swell login https://box.lab:8443 --token-file ~/token      # from `swell token create`, on the box
    swell login http://localhost:8080 --token-file ~/token     # kubectl -n swell port-forward svc/swell 8080

    The address and the token are tried first. Both are then in ~/.config/swell/server.json, the token itself is not.
    Without --token-file and --token-command each command reads SWELL_TOKEN_FILE, or SWELL_API_TOKEN. A server for whose
    certificate nobody vouches is known again by its fingerprint: compare it with what `swell up` printed.
    """
    from swell.cli.printing import say
    from swell.client.login import Login, write_login
    from swell.client.remote import Untrusted
    from swell.errors import Rejected

    if token_file is not None and token_command is not None:
        raise Rejected("a token comes from --token-file or from --token-command, and both are given; leave one out")
    if ca is not None and fingerprint is not None:
        raise Rejected("a server is known by --ca or by --fingerprint, and both are given; leave one out")
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
    say(f"commands now ask {url} (Swell {found['version']}), where you are {found['user']}; swell logout forgets it")
    _say_what_comes_first()
    return 0


def _try(login: Login) -> dict[str, Any]:
    from swell.client.client import Client
    from swell.errors import SwellError

    found = Client(login.remote()).server()
    if not isinstance(found, dict) or not {"version", "user"} <= found.keys():
        raise SwellError(f"{login.url} answers, and is no Swell server of this version; log in to the address of one")
    return found


def _after_asking(login: Login, problem: Untrusted) -> Login:
    """As ssh does with a host that it does not know; nobody at a terminal, nobody to ask."""
    from dataclasses import replace

    from swell.cli.printing import say
    from swell.client.remote import fetch_fingerprint

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise problem
    shown = fetch_fingerprint(login.remote().url)
    say(f"nobody vouches for the certificate of {login.url}. Its SHA-256 fingerprint is")
    say(f"  {shown}")
    if not click.confirm("Is that what `swell up` printed there? Trust it from now on?", err=True):
        raise problem
    return replace(login, fingerprint=shown)


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


def _say_what_comes_first() -> None:
    """A login that something else hides is no mistake, but nobody should wonder."""
    from swell.cli.printing import say
    from swell.client.find import choose
    from swell.errors import SwellError
    from swell.state import StateFolder

    try:
        chosen = choose()
    except SwellError as problem:
        say(f"not in this shell: {problem}")
        return
    if isinstance(chosen.server, StateFolder) or chosen.why.startswith("SWELL_"):
        say(f"not in this shell: {chosen.server} comes first, because {chosen.why}")
