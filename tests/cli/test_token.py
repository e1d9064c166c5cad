"""`swell token`, and a login with what it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api.service import USER, Service
from swell.cli.root import swell


def call(*words: str) -> Result:
    return CliRunner().invoke(swell, words)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Service) -> Path:
    """Logged in as the server's owner."""
    for name in ("SWELL_STATE", "SWELL_TOKEN_FILE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWELL_SOCKET", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SWELL_SERVER", f"http://{service.host}")
    monkeypatch.setenv("SWELL_API_TOKEN", USER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("tokens"))
    made.worker.sync()
    yield made
    made.close()


def test_a_token_is_printed_once_and_a_login_works_with_it_until_it_is_revoked(home, service, monkeypatch):
    made = call("token", "create", "ci", "--scope", "submit", "--lasts", "12h")
    assert made.exit_code == 0
    assert re.fullmatch(r"swt\.\S+\n", made.stdout)
    assert made.stderr.splitlines()[1] == "swell: it is not shown again; keep it where only you can read it"
    (home / "token").write_text(made.stdout)
    monkeypatch.delenv("SWELL_SERVER")
    monkeypatch.delenv("SWELL_API_TOKEN")
    url = f"http://{service.host}"
    done = call("login", url, "--token-file", "token")
    assert done.output == f"swell: commands now ask {url} (Swell 0.1.0), where you are ann; swell logout forgets it\n"
    assert call("run", "-d", "--gpus", "99", "--wait-for-nodes", "--name", "far", "--", "true").exit_code == 0
    assert call("ps").output.splitlines()[1].split()[1] == "far"
    shown = call("token").output
    assert shown.splitlines()[0].split() == ["ID", "NAME", "USER", "SCOPE", "UNTIL"]
    assert shown.splitlines()[1].split()[1:4] == ["ci", "ann", "submit"]
    assert made.stdout.strip().rpartition(".")[2] not in shown
    refused = call("token", "revoke", "ci")
    assert (refused.exit_code, refused.stderr.partition(";")[0]) == (
        2,
        "swell: the token 'ci' has the scope submit, and this needs admin",
    )
    monkeypatch.setenv("SWELL_SERVER", url)
    monkeypatch.setenv("SWELL_API_TOKEN", USER)
    assert call("token", "revoke", "ci").output == "swell: token ci is revoked\n"
    assert call("token", "list").output == "there is no token; make one with: swell token create NAME\n"
    monkeypatch.delenv("SWELL_SERVER")
    monkeypatch.delenv("SWELL_API_TOKEN")
    assert call("ps").output == (
        f"swell: {url} refuses the token in {home}/token: this token is none of this server's, or it has been revoked; "
        "make another where you need none: swell token create NAME\n"
    )


def test_door_addresses_are_listed_and_revoked(home):
    made = call("door", "address", "genai", "--lasts", "1h")
    address = made.stdout.strip()
    [listed] = json.loads(call("door", "addresses", "-o", "json").output)
    assert (listed["door"], listed["user"]) == ("genai", "ann")
    assert f"/d/swd.{listed['id']}." in address
    assert call("door", "addresses").output.splitlines()[1].split()[:3] == [listed["id"], "genai", "ann"]
    assert call("door", "revoke", listed["id"]).output == f"swell: address {listed['id']} is revoked\n"
    assert call("door", "addresses").output == "there is no address; make one with: swell door address genai\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x y"], "name: String should match pattern"),
        (["x", "--lasts", "soon"], "--lasts: "),
        (["x", "--lasts", "400d"], "lasts_s: Input should be less than or equal to"),
    ],
)
def test_what_cannot_be_meant_makes_no_token(home, words, said):
    done = call("token", "create", *words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
