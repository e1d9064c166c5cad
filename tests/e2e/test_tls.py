"""A server that speaks TLS itself: its fingerprint is printed, pinned by a login, and jobs report all the same."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest

from engines.kubernetes.certificates import self_signed
from server import PATIENCE_S, SWELL, Result, Server
from swell.client.remote import fetch_fingerprint
from swell.machine.certificate import Certificate

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.2"  # every address of 127/8 is this machine's; nothing but --listen serves this one
REPORTS = """
import os, swell_sdk
run = swell_sdk.attach()
for epoch in run.epochs(2):
    run.metrics(loss=0.5)
print("told", os.environ["SWELL_URL"], os.environ.get("SWELL_URL_FINGERPRINT"))
"""


@dataclass(frozen=True)
class Laptop:
    """Somebody who has a home folder and a token, and no state folder."""

    home: Path
    server: Server
    url: str

    @property
    def variables(self) -> dict[str, str]:
        return {"SWELL_STATE": "", "SWELL_SOCKET": "", "HOME": str(self.home), "XDG_CONFIG_HOME": ""}

    def swell(self, *words: str) -> Result:
        return self.server.swell(*words, cwd=self.home, env=self.variables)

    @property
    def is_logged_in(self) -> bool:
        return (self.home / ".config/swell/server.json").exists()


def free_port() -> int:
    with socket.create_server((ELSEWHERE, 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    url = f"https://{ELSEWHERE}:{free_port()}"
    home = tmp_path / "home"
    home.mkdir()
    with Server(tmp_path, "--listen", url.removeprefix("https://"), "--advertise", url) as server:
        token = server.swell("token", "create", "laptop", "--scope", "submit")
        assert token.code == 0, token
        (home / "token").write_text(token.stdout)
        yield Laptop(home, server, url)


def fingerprint(server: Server) -> str:
    """As `swell up -d` prints it."""
    assert server.down().code == 0
    done = server.swell("up", "-d")
    assert done.code == 0, done
    lines = done.stderr.splitlines()
    at = next(number for number, line in enumerate(lines) if "the SHA-256 fingerprint of its certificate is" in line)
    return lines[at + 1].removeprefix("swell:").strip()


def test_a_login_pins_the_fingerprint_that_the_server_printed_and_trusts_nobody_else(laptop):
    shown = fingerprint(laptop.server)
    assert fingerprint(laptop.server) == shown, "another one after a restart is what an attack looks like"
    without = laptop.swell("login", laptop.url, "--token-file", "token")
    assert (without.code, laptop.is_logged_in) == (2, False)
    assert without.stderr == (
        f"swell: the certificate of {laptop.url} is not trusted: self-signed certificate; give the fingerprint "
        f"that `swell up` printed on the server: swell login {laptop.url} --fingerprint SHA256, or the CA that "
        "signed it: --ca FILE\n"
    )
    wrong = ":".join(["AB"] * 32)
    refused = laptop.swell("login", laptop.url, "--token-file", "token", "--fingerprint", wrong)
    assert (refused.code, laptop.is_logged_in) == (2, False)
    assert f"its fingerprint is {shown}, not {wrong}" in refused.stderr
    done = laptop.swell("login", laptop.url, "--token-file", "token", "--fingerprint", shown.lower().replace(":", ""))
    assert done.code == 0, done
    assert json.loads((laptop.home / ".config/swell/server.json").read_text())["fingerprint"]
    assert laptop.swell("run", "--", "echo", "over TLS").stdout == "over TLS\n"


def test_at_a_terminal_the_fingerprint_is_shown_and_asked_for(laptop):
    shown = fingerprint(laptop.server)
    for answer, code in (("n", 2), ("y", 0)):
        asked = pexpect.spawn(
            SWELL,
            ["login", laptop.url, "--token-file", "token"],
            env={**os.environ, **laptop.server.environment(), **laptop.variables},
            cwd=str(laptop.home),
            timeout=PATIENCE_S,
            dimensions=(24, 300),
        )
        asked.expect_exact(shown)
        asked.expect_exact("Trust this certificate from now on?")
        asked.sendline(answer)
        asked.expect(pexpect.EOF)
        asked.close()
        assert (asked.exitstatus, laptop.is_logged_in) == (code, answer == "y")
    assert laptop.swell("ps").code == 0


def test_jobs_on_this_machine_report_over_loopback_and_need_to_trust_nobody(laptop):
    script = laptop.home / "train.py"
    script.write_text(REPORTS)
    job = laptop.server.start("--", sys.executable, str(script))
    assert laptop.server.until(job, "succeeded")["metrics"] == {"loss": 0.5}
    told = laptop.server.until_output(job, b"told").split()
    assert told[1].startswith(b"http://127.0.0.1:")
    assert told[2] == b"None"


def test_where_tls_is_spoken_plain_http_is_not_answered_and_a_token_is_needed_as_everywhere(laptop):
    where = laptop.url.removeprefix("https://")
    trust = ssl.create_default_context(cafile=laptop.server.root / "tls-cert.pem")
    statuses = []
    for headers in ({}, {"Authorization": "Bearer " + (laptop.home / "token").read_text().strip()}):
        asked = http.client.HTTPSConnection(where, timeout=PATIENCE_S, context=trust)
        asked.request("GET", "/api/v1/jobs", headers=headers)
        statuses.append(asked.getresponse().status)
        asked.close()
    assert statuses == [401, 200]
    plain = http.client.HTTPConnection(where, timeout=PATIENCE_S)
    plain.request("GET", "/healthz")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()


def test_a_certificate_that_the_operator_names_is_shown_and_its_authority_is_enough(tmp_path):
    pair = self_signed(tmp_path, "named")
    port = free_port()
    words = ("--listen", f"127.0.0.1:{port}", "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key))
    with Server(tmp_path, *words) as server:
        home = tmp_path / "home"
        home.mkdir()
        (home / "token").write_text(server.state.token.read_text())
        laptop = Laptop(home, server, f"https://127.0.0.1:{port}")
        done = laptop.swell("login", laptop.url, "--token-file", "token", "--ca", str(pair.certificate))
        assert done.code == 0, done
        assert laptop.swell("ps").code == 0
        assert not (server.root / "tls-key.pem").exists()
        renewed = self_signed(tmp_path, "renewed")
        renewed.certificate.replace(pair.certificate)  # for a moment it has no key
        renewed.key.replace(pair.key)
        until_shown(laptop.url, Certificate(pair.certificate, pair.key, is_own=False).fingerprint)
        assert laptop.swell("ps").code == 0


def until_shown(url: str, fingerprint: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while (shown := fetch_fingerprint(url)) != fingerprint:
        assert time.monotonic() < until, shown
        time.sleep(0.2)


def test_a_long_answer_arrives_whole(laptop):
    """asyncio's TLS paused at a mark of 0 and never went on: every answer was cut off after ten seconds."""
    trust = ssl.create_default_context(cafile=laptop.server.root / "tls-cert.pem")
    where = laptop.url.removeprefix("https://")
    headers = {"Authorization": "Bearer " + (laptop.home / "token").read_text().strip()}
    job = laptop.server.start("--", sys.executable, "-c", "import sys; sys.stdout.write('x' * 3_000_000)")
    laptop.server.until(job, "succeeded")
    asked = http.client.HTTPSConnection(where, timeout=PATIENCE_S, context=trust)
    read = b""
    for _ in range(100):
        asked.request("GET", f"/api/v1/jobs/{job}/logs?offset={len(read)}", headers=headers)
        piece = asked.getresponse().read()
        read += piece
        if not piece:
            break
    assert len(read) == 3_000_000
    asked.close()
