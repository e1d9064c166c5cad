"""`swell login`"""

from __future__ import annotations

from pathlib import Path

import click


@click.command("login")
@click.option("--token-file", metavar="FILE", help="Has your token; read again when it was refused.")
@click.option("--token-command", metavar="WORDS", help="Prints your token; run when one is needed, kept nowhere.")
@click.option("--ca", metavar="FILE", help="Who vouches for the server, in PEM.  [default: whom this machine trusts]")
@click.option("--insecure-http", is_flag=True, help="Send the token over http, where everybody on the way reads it.")
@click.argument("url")
def command(url: str, token_file: str | None, token_command: str | None, ca: str | None, insecure_http: bool) -> int:
    """Use a server elsewhere, as one in a cluster, from now on.

    \b
    swell login https://swell.example.org --token-command "kubectl create token anna -n ml --duration 8h"
    swell login http://localhost:8080 --token-file ~/token     # kubectl -n swell port-forward svc/swell 8080

    The address and the token are tried first. Both are then in ~/.config/swell/server.json, the token itself is not.
    Without --token-file and --token-command each command reads SWELL_TOKEN_FILE, or SWELL_API_TOKEN.
    """
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.login import Login, write_login
    from swell.errors import Rejected, SwellError

    if token_file is not None and token_command is not None:
        raise Rejected("a token comes from --token-file or from --token-command, and both are given; leave one out")
    login = Login(
        url=url,
        token_file=_absolute(token_file),
        token_command=token_command,
        ca=_absolute(ca),
        insecure_http=insecure_http,
    )
    found = Client(login.remote()).server()
    if not isinstance(found, dict) or not {"version", "user"} <= found.keys():
        raise SwellError(f"{url} answers, and is no Swell server of this version; log in to the address of one")
    write_login(login)
    say(f"commands now ask {url} (Swell {found['version']}), where you are {found['user']}; swell logout forgets it")
    _say_what_comes_first()
    return 0


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
