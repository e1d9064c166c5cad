"""Can the server elsewhere be reached, and who are we there?"""

from __future__ import annotations

import shutil

from swell import __version__
from swell.client.connection import Connection, path
from swell.client.remote import Remote
from swell.doctor.finding import Finding, note, ok, problem
from swell.doctor.service import apart, taken_in
from swell.errors import SwellError


def examine_elsewhere(remote: Remote) -> list[Finding]:
    connection = Connection(remote)
    try:
        answer = connection.json("GET", path("server"))
        told = connection.raw("GET", path("health")).headers["Date"]
    except SwellError as error:
        what, _, following = str(error).rpartition("; ")
        return [problem("server", what or str(error), following)]
    finally:
        connection.close()
    return [
        _version(answer),
        ok("user", f"{answer.get('user', '')}, by the token {remote.token.source}"),
        *taken_in(answer),
        *apart(told),
        _kubectl(),
    ]


def _version(answer: dict[str, str]) -> Finding:
    if answer["version"] == __version__:
        return ok("server", f"version {answer['version']}")
    text = f"version {answer['version']} runs there, and this is {__version__}"
    return note("server", text, "install that version here, too, if something is not understood")


def _kubectl() -> Finding:
    found = shutil.which("kubectl")
    if found is None:
        return note("kubectl", "there is none on your PATH", "install it to enter pods with swell exec")
    return ok("kubectl", found)
