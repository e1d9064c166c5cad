"""Tokens of a box server's users: over TCP they say who it is, and the job runs as them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from box.machine import Machine, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def box(audit: Path) -> Iterator[Machine]:
    with Machine(audit={"file": str(audit)}) as machine:
        yield machine


def test_a_users_token_is_that_user_over_tcp_until_it_is_revoked_and_the_audit_tells(box, audit):
    anna, ben, cleo = box.people
    made = anna.swell("token", "create", "laptop", "--scope", "submit")
    assert made.code == 0, made
    host, port = box.address
    afar = {"SWELL_SERVER": f"http://{host}:{port}", "SWELL_API_TOKEN": made.stdout.strip(), "SWELL_SOCKET": ""}
    ran = anna.swell("run", "--", "id", "-un", env=afar)
    assert ran.stdout == f"{anna.name}\n", ran
    assert ben.swell("run", "--", "id", "-un", env=afar).stdout == f"{anna.name}\n", "it is a token: keep it"
    assert anna.swell("token", "create", "rules", "--scope", "admin").code == 2
    assert ben.swell("token", "revoke", "laptop").code == 2
    assert anna.swell("token", "revoke", "laptop").code == 0
    refused = anna.swell("ps", env=afar)
    assert refused.code == 2
    assert "it has been revoked" in refused.stderr
    job = anna.start("--", "true")
    assert cleo.swell("show", str(job)).code == 0

    def told() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in map(json.loads, audit.read_text().splitlines()):
            found.setdefault(line["kind"], []).append(line["actor"])
        return found

    wait_for(lambda: cleo.name in told().get("Read", []), "the line of what cleo read")
    assert told()["TokenCreated"] == [anna.name]
    assert told()["TokenRevoked"] == [anna.name]
    assert told()["Submitted"] == [anna.name] * 3
    assert "Refused" in told()
    assert made.stdout.strip().rpartition(".")[2] not in audit.read_text()
    assert anna.run("cat", str(audit)).code != 0
