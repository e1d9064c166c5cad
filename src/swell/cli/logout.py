"""`swell logout`"""

from __future__ import annotations

import click


@click.command("logout")
def command() -> int:
    """Forget the server that `swell login` named. Jobs go on there, and tokens stay good as long as they are."""
    from swell.cli.printing import say
    from swell.client.login import forget_login, login_file

    say("commands ask no server elsewhere any more" if forget_login() else f"nobody logged in: no {login_file()}")
    return 0
