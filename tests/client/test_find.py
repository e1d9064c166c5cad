"""Which server is asked: what was said with the command, then for the shell, then once; then what is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swell.client.find import choose
from swell.client.login import Login, forget_login, login_file, read_login, write_login
from swell.client.remote import Remote
from swell.errors import Rejected
from swell.machine.state_folder import StateFolder

VARIABLES = ("SWELL_SERVER", "SWELL_STATE", "SWELL_SOCKET", "SWELL_TOKEN_FILE", "SWELL_API_TOKEN", "XDG_STATE_HOME")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWELL_SOCKET", "")  # none, also where this machine has a box server
    monkeypatch.setenv("SWELL_API_TOKEN", "the-shells")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


SERVER, STATE, SOCKET = ("SWELL_SERVER", "https://a.test"), ("SWELL_STATE", "/state"), ("SWELL_SOCKET", "/box.sock")
LOGIN = "you logged in to it (to stop using it, run: swell logout)"


@pytest.mark.parametrize(
    ("option", "variables", "logged_in", "server", "why"),
    [
        ("/said", (SERVER, STATE, SOCKET), True, "/said", "--state names it"),
        (None, (SERVER,), True, "the server https://a.test", "SWELL_SERVER names it"),
        (None, (SERVER, SOCKET), True, "the server https://a.test", "SWELL_SERVER names it"),
        (None, (STATE, SOCKET), True, "/state", "SWELL_STATE names it"),
        (None, (SOCKET,), True, "this machine (/box.sock)", "SWELL_SOCKET names it"),
        (None, (), True, "the server https://b.test", LOGIN),
        (None, (), False, "{home}/.local/state/swell", "no other server is named"),
        (
            None,
            (("SWELL_SERVER", ""), ("SWELL_STATE", "")),
            False,
            "{home}/.local/state/swell",
            "no other server is named",
        ),
    ],
)
def test_what_was_said_last_comes_first(home, monkeypatch, option, variables, logged_in, server, why):
    for name, value in variables:
        monkeypatch.setenv(name, value)
    if logged_in:
        write_login(Login("https://b.test", token_command="true"))
    chosen = choose(option)
    assert (str(chosen.server), chosen.why) == (server.format(home=home), why)


def test_a_login_comes_before_a_box_server_that_is_merely_there(monkeypatch, tmp_path):
    monkeypatch.delenv("SWELL_SOCKET")
    (tmp_path / "unit").touch()
    monkeypatch.setattr("swell.machine.sockets.BOX_UNIT", tmp_path / "unit")
    assert choose().why == "it serves all users of this machine"
    write_login(Login("https://b.test"))
    assert choose().why == LOGIN


def test_two_servers_for_one_shell_are_refused(monkeypatch):
    monkeypatch.setenv(*SERVER)
    monkeypatch.setenv(*STATE)
    with pytest.raises(Rejected) as caught:
        choose()
    assert str(caught.value) == (
        "SWELL_SERVER names https://a.test and SWELL_STATE the folder /state, but a command uses one server; "
        "unset one of them, or add --state DIR"
    )


@pytest.mark.parametrize(
    ("variables", "token"),
    [
        ({"SWELL_TOKEN_FILE": "file", "SWELL_API_TOKEN": "text"}, "from-file"),
        ({"SWELL_API_TOKEN": "text"}, "text"),
    ],
)
def test_the_token_of_a_server_that_the_shell_names_is_the_shells(home, monkeypatch, variables, token):
    (home / "file").write_text("from-file\n")
    monkeypatch.chdir(home)
    for name, value in {"SWELL_SERVER": "https://a.test", **variables}.items():
        monkeypatch.setenv(name, value)
    server = choose().server
    assert isinstance(server, Remote)
    assert server.identity() == token


def test_a_server_without_a_token_is_refused_with_what_to_set(monkeypatch):
    monkeypatch.setenv(*SERVER)
    monkeypatch.delenv("SWELL_API_TOKEN")
    with pytest.raises(
        Rejected,
        match=r"https://a\.test needs a token, and none is configured; set "
        r"SWELL_TOKEN_FILE or ",
    ):
        choose()


def test_a_login_is_kept_as_it_was_said_and_in_a_file_of_ones_own(home):
    said = Login("https://b.test", token_command="kubectl create token anna", ca="/ca.pem", insecure_http=True)
    for _ in range(2):  # the second finds the first
        write_login(said)
        assert read_login() == said
    path = login_file()
    assert path == home / "config/swell/server.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [file.name for file in path.parent.iterdir()] == ["server.json"]
    assert (forget_login(), forget_login(), read_login()) == (True, False, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "it names no server"),
        ('{"url": 5}', "it names no server"),
        ('{"url": "https://a", "token": "x"}', "it has a field other than url, token_file, token_command, ca, "),
        ('{"url": "https://a", "ca": 5}', "a field in it is not text"),
    ],
)
def test_a_login_that_cannot_be_read_is_no_login_to_somewhere_else(text, why):
    write_login(Login("https://b.test"))
    login_file().write_text(text)
    with pytest.raises(Rejected) as caught:
        choose()
    said = str(caught.value)
    assert said.startswith(f"the login in {login_file()} cannot be used: {why}")
    assert said.endswith("; `swell login` rewrites it, `swell logout` removes it")


def test_a_login_that_others_may_write_to_is_refused_because_it_can_name_a_command():
    write_login(Login("https://b.test"))
    login_file().chmod(0o620)
    with pytest.raises(Rejected, match="other users can write to it, and it can name a command to run"):
        choose()


def test_a_login_over_http_that_was_not_meant_so_is_refused():
    write_login(Login("https://b.test"))
    document = json.loads(login_file().read_text())
    assert document == {"url": "https://b.test"}
    login_file().write_text(json.dumps({"url": "http://b.test"}))
    with pytest.raises(Rejected, match=r"http://b\.test would send your token unencrypted over the network"):
        choose()
    login_file().write_text(json.dumps({"url": "http://b.test", "insecure_http": True}))
    assert str(choose().server) == "the server http://b.test"


def test_a_state_folder_is_a_state_folder(home):
    assert isinstance(choose(str(home)).server, StateFolder)
