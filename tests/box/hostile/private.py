"""A private server has one user; on its port anybody of the machine can knock. What does its owner feel?"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from box.hostile.stage import HERE, Felt, address_of, asking, feel_beside
from box.machine import SYSTEM_PYTHON
from server import Server

KNOCK = b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n"
#: name → what each connection sends, how many are held, how many threads come again and again
PRIVATE_ATTACKS: dict[str, tuple[bytes, int, int]] = {
    "4,000 half-open connections without a token": (b"", 4000, 0),
    "connections that come again and again without a token": (b"", 4000, 8),
}
#: Told in the table, and promised nothing of: whoever sends so many requests at once is refused one after the other.
ONLY_MEASURED = {"4,000 requests without a token at once": (KNOCK, 4000, 0)}


def owner_feels(name: str, seconds: float) -> Felt:
    with tempfile.TemporaryDirectory(prefix="swell-private-") as folder, two_servers(Path(folder)) as servers:
        return under(*servers, name, seconds)


@contextlib.contextmanager
def two_servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    """One that is knocked at, and beside it one that is not."""
    for one in ("attacked", "beside"):
        (folder / one).mkdir()
    with Server(folder / "attacked") as server, Server(folder / "beside") as bystander:
        yield server, bystander


def under(server: Server, bystander: Server, name: str, seconds: float) -> Felt:
    request, holds, threads = (PRIVATE_ATTACKS | ONLY_MEASURED)[name]
    host, _, port = address_of(server).partition(":")
    asked = {"address": [host, int(port)], "request": request.decode(), "holds": holds, "threads": threads, "stops": ""}
    sent = json.dumps(asked).encode()
    attacker = subprocess.Popen(
        ["prlimit", "--nofile=8000", "--", SYSTEM_PYTHON, "-c", (HERE / "attacker.py").read_text(), str(len(sent))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        **NOBODY,
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    try:
        attacker.stdin.write(sent)
        attacker.stdin.flush()
        return feel_beside(asking(server, seconds), bystander, seconds)
    finally:
        attacker.stdin.close()
        print("attacker:", attacker.stdout.read().decode().splitlines())
        attacker.wait(60)


NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []}
