"""Can the server elsewhere be reached, and who are we there?"""

from __future__ import annotations

import shutil

from swell import __version__
from swell.client.connection import ServerConnection, path
from swell.client.remote import Remote
from swell.doctor.machine import Finding, note, ok, problem
from swell.doctor.service import apart, cluster_findings
from swell.errors import SwellError


def examine_elsewhere(remote: Remote) -> list[Finding]:
    connection = ServerConnection(remote)
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
        *cluster_findings(answer),
        *apart(told),
        _kubectl(),
    ]


def _version(answer: dict[str, str]) -> Finding:
    if answer["version"] == __version__:
        return ok("server", f"version {answer['version']}")
    text = f"version {answer['version']} runs there, but this is {__version__}"
    return note("server", text, "if a command is not understood, install the server's version here")


def _kubectl() -> Finding:
    found = shutil.which("kubectl")
    if found is None:
        return note("kubectl", "kubectl is not on your PATH", "install kubectl to use swell exec with pods")
    return ok("kubectl", found)
