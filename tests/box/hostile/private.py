"""A private server has one user; on its port anybody of the machine can knock. What does its owner feel?"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from box.hostile.stage import HERE, Felt, felt
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
    with tempfile.TemporaryDirectory(prefix="swell-private-") as folder, Server(Path(folder)) as server:
        return under(server, name, seconds)


def under(server: Server, name: str, seconds: float) -> Felt:
    request, holds, threads = (PRIVATE_ATTACKS | ONLY_MEASURED)[name]
    address = str(server.state.read_json(server.state.server_file)["url"]).removeprefix("http://")
    host, _, port = address.partition(":")
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
        return _ask(address, server.state.token.read_text().strip(), seconds)
    finally:
        attacker.stdin.close()
        print("attacker:", attacker.stdout.read().decode().splitlines())
        attacker.wait(60)


NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []}


def _ask(address: str, token: str, seconds: float) -> Felt:
    done = subprocess.run(
        [SYSTEM_PYTHON, str(HERE / "victim.py"), address, token, str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 160,
    )
    return felt(done)
