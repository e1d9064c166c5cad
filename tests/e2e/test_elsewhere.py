"""The command line and a server elsewhere: TLS in front of it, a token of one's own, nothing else of it at hand."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.kubernetes.certificates import Pair, self_signed
from server import PATIENCE_S, Gate, Result, Server
from swell.machine.state_folder import write_private
from tls import Front

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.2"  # every address of 127/8 is this machine's; nothing but --listen serves this one


@dataclass(frozen=True)
class Laptop:
    """Somebody who has a home folder, the server's certificate and a token, and no state folder."""

    home: Path
    front: Front
    server: Server
    pair: Pair

    @property
    def variables(self) -> dict[str, str]:
        return {"SWELL_STATE": "", "SWELL_SOCKET": "", "HOME": str(self.home), "MY_SECRET": "of the laptop"}

    def swell(self, *words: str, stdin: str | None = None) -> Result:
        return self.server.swell(*words, stdin=stdin, cwd=self.home, env=self.variables)

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        return self.server.spawn(*words, cwd=self.home, env=self.variables)

    def login(self) -> Result:
        words = ("--token-command", f"cat {self.server.state.token}", "--ca", str(self.pair.certificate))
        return self.swell("login", self.front.url, *words)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    pair = self_signed(tmp_path, "ours")
    front = Front(pair)
    with socket.create_server((ELSEWHERE, 0)) as listener:
        port = int(listener.getsockname()[1])
    front.behind = (ELSEWHERE, port)
    home = tmp_path / "home"
    home.mkdir()
    with Server(tmp_path, "--listen", f"{ELSEWHERE}:{port}", "--advertise", front.url) as server:
        yield Laptop(home, front, server, pair)
    front.close()


def test_everything_that_goes_over_http_works_from_elsewhere(laptop: Laptop):
    done = laptop.login()
    assert (done.code, done.stderr[: len(f"swell: commands now use {laptop.front.url} (Swell 0.1.0)")]) == (
        0,
        f"swell: commands now use {laptop.front.url} (Swell 0.1.0)",
    )
    ran = laptop.swell("run", "--env", "A=b", "--", "sh", "-c", "pwd; echo $A-$MY_SECRET-; exit 3")
    assert (ran.code, ran.stdout) == (3, "/\nb--\n")

    manifest = "apiVersion: swell/v1\nkind: Job\nmetadata: {name: wide}\nspec: {command: [sleep, '600'], gpus: 99}\n"
    job = laptop.swell("submit", "--wait-for-nodes", "-f", "-", stdin=manifest).stdout.strip()
    assert "wide" in {row["name"] for row in laptop.swell("ps", "-o", "json").json}
    assert laptop.swell("why", job).stdout.startswith(f"job {job} (wide) is queued: CannotRunHere")
    assert laptop.swell("show", job, "-o", "json").json["spec"]["workdir"] == "/"
    for word in ("hold", "release"):
        assert laptop.swell(word, job).code == 0, word
    assert laptop.swell("cancel", job).code == 0
    assert laptop.swell("wait", job).code == 1
    assert laptop.swell("delete", job).code == 0
    assert laptop.swell("logs", "-f", "1").stdout == "/\nb--\n"
    assert laptop.swell("requeue", "1").code == 0
    assert laptop.swell("wait", "1").code == 3
    assert "Submitted" in laptop.swell("events", "1").stdout
    assert laptop.swell("scale", "1", "2").code == 2  # it has ended; the server's own word
    assert laptop.swell("nodes", "-o", "json").json[0]["name"] == socket.gethostname()
    assert laptop.swell("usage").code == 0
    assert laptop.swell("down").code == 2
    assert laptop.server.is_up
    assert not (laptop.home / ".local").exists()


def test_who_follows_a_job_goes_on_when_the_server_comes_back_with_another_token(laptop: Laptop, tmp_path: Path):
    """As in a cluster: the pod is replaced, and the token has expired meanwhile."""
    assert laptop.login().code == 0
    gate = Gate(tmp_path / "gate")
    following = laptop.spawn("run", "--", "sh", "-c", f"echo begin; read line < {gate}; echo end")
    assert following.stdout is not None
    assert following.stdout.readline() == b"begin\n"
    assert laptop.server.down().code == 0
    write_private(laptop.server.state.token, "another-token-than-before\n")
    laptop.server.up()
    gate.open()
    out, problems = following.communicate(timeout=PATIENCE_S)
    assert (following.returncode, out) == (0, b"end\n"), problems
    gate.close()


def test_a_server_that_nobody_vouches_for_is_not_logged_in_to(laptop: Laptop):
    done = laptop.swell("login", laptop.front.url, "--token-file", str(laptop.server.state.token))
    assert done.code == 2
    assert done.stderr == (
        f"swell: the certificate of {laptop.front.url} is not trusted: self-signed certificate; "
        f"give the fingerprint that `swell up` printed on the server: swell login {laptop.front.url} --fingerprint "
        "SHA256, or the CA that signed it: --ca FILE\n"
    )
    assert not (laptop.home / ".config").exists()


def test_a_private_server_is_still_there_for_who_names_its_folder(laptop: Laptop):
    assert laptop.login().code == 0
    folder = str(laptop.server.root)
    assert laptop.swell("run", "--state", folder, "--", "sh", "-c", "echo $MY_SECRET").stdout == "of the laptop\n"
    found = laptop.swell("doctor", "-o", "json", "--state", folder).json
    assert found[0]["text"] == f"the server of {folder}, because --state names it"
