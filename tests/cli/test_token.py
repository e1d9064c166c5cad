"""`swell token`, and a login with what it prints."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
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
    assert made.stderr.splitlines()[1] == "swell: it is not shown again; store it where only you can read it"
    (home / "token").write_text(made.stdout)
    monkeypatch.delenv("SWELL_SERVER")
    monkeypatch.delenv("SWELL_API_TOKEN")
    url = f"http://{service.host}"
    done = call("login", url, "--token-file", "token")
    assert (
        done.output == f"swell: commands now use {url} (Swell 0.1.0) as user ann; to stop using it, run: swell logout\n"
    )
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
    assert call("token", "list").output == "no tokens; to make one, run: swell token create NAME\n"
    monkeypatch.delenv("SWELL_SERVER")
    monkeypatch.delenv("SWELL_API_TOKEN")
    assert call("ps").output == (
        f"swell: {url} refuses the token in {home}/token: this token does not belong to this server, or it has "
        "been revoked; "
        "on the server's machine, make another: swell token create NAME\n"
    )


def test_a_token_goes_into_a_file_that_only_its_owner_can_read(home):
    made = call("token", "create", "filed", "--token-file", "token")
    assert (made.exit_code, made.stdout) == (0, "")
    assert re.fullmatch(r"swt\.\S+\n", (home / "token").read_text())
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert call("token", "revoke", "filed").exit_code == 0


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_that_is_there_already_is_kept(home, is_link):
    """It may hold the only copy of another token."""
    (home / "kept").write_text("an older one")
    if is_link:
        (home / "token").symlink_to("kept")
    made = call("token", "create", "second", "--token-file", "token" if is_link else "kept")
    assert (made.exit_code, "(File exists); no token was made; name another file" in made.stderr) == (2, True)
    assert (home / "kept").read_text() == "an older one"
    assert "second" not in call("token", "list").output


def test_a_token_that_cannot_be_written_down_is_not_left_behind(home):
    made = call("token", "create", "lost", "--token-file", "nowhere/token")
    said = f"swell: {home}/nowhere/token cannot be written (No such file or directory); no token was made; name another"
    assert (made.exit_code, made.stderr) == (2, f"{said} file\n")
    assert "lost" not in call("token", "list").output


@pytest.mark.parametrize(("umask", "is_told"), [(0o022, True), (0o077, False)])
def test_a_token_that_is_redirected_into_a_file_that_others_can_read_is_warned_of(home, umask, is_told):
    words = [str(Path(sys.executable).with_name("swell")), "token", "create", f"umask-{umask}"]
    with open(home / "redirected", "wb", opener=lambda path, flags: os.open(path, flags, 0o666 & ~umask)) as file:
        done = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    warning = (
        "swell: the file that it is redirected to: other users of this machine may read it (mode 0644); chmod 600 it, "
        "or use --token-file FILE instead of > FILE"
    )
    assert (done.returncode, warning in done.stderr.splitlines()) == (0, is_told), done.stderr


def test_door_addresses_are_listed_and_revoked(home):
    made = call("door", "address", "genai", "--lasts", "1h")
    address = made.stdout.strip()
    [listed] = json.loads(call("door", "addresses", "-o", "json").output)
    assert (listed["door"], listed["user"]) == ("genai", "ann")
    assert f"/d/swd.{listed['id']}." in address
    assert call("door", "addresses").output.splitlines()[1].split()[:3] == [listed["id"], "genai", "ann"]
    assert call("door", "revoke", listed["id"]).output == f"swell: address {listed['id']} is revoked\n"
    assert call("door", "addresses").output == "no addresses; to make one, run: swell door address genai\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x y"], "name must be 1 to 63 letters, digits, '.', '_' or '-', of which the first is a letter"),
        (["x", "--lasts", "soon"], "--lasts: "),
        (["x", "--lasts", "400d"], "lasts must be at most 366d, but is 400d"),
    ],
)
def test_what_cannot_be_meant_makes_no_token(home, words, said):
    done = call("token", "create", *words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
