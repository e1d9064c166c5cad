"""`swell login` and what follows from it: against the real API, with tokens of a cluster's users."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api.service import USER, WAIT_S, Service
from api.test_members import UNKNOWN, Cluster, objects_of
from swell.api.members import Members
from swell.cli import options
from swell.cli.root import swell
from swell.client import Client, connect
from swell.client.login import login_file
from swell.manifests import Manifest
from swell.model.identity import Identity


def call(*words: str) -> Result:
    return CliRunner().invoke(swell, words)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    members = Members(Cluster(), objects_of, owner="ann", admin_group="swell-admin")
    made = Service(tmp_path_factory.mktemp("elsewhere"), members=members)
    made.worker.sync()
    yield made
    made.close()


@pytest.fixture
def url(service: Service) -> str:
    return f"http://{service.host}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SWELL_SERVER", "SWELL_STATE", "SWELL_TOKEN_FILE", "SWELL_API_TOKEN", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWELL_SOCKET", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "annas").write_text("annas\n")
    return tmp_path


def test_who_logs_in_is_told_where_and_as_whom_and_later_commands_go_there(url, home):
    for _ in range(2):
        done = call("login", url, "--token-file", "annas")
        assert (done.exit_code, done.output) == (
            0,
            f"swell: commands now use {url} (Swell 0.1.0) as user anna; to stop using it, run: swell logout\n",
        )
    file = login_file()
    assert json.loads(file.read_text()) == {"url": url, "token_file": str(home / "annas")}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert call("nodes").output.splitlines()[1].startswith("box ")
    assert connect().server()["user"] == "anna"
    assert call("logout").output == "swell: logged out; commands no longer use a remote server\n"
    assert call("logout").output == f"swell: not logged in: {file} does not exist\n"
    assert "no server is running for" in call("ps").output
    assert not (home / ".local").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--token-file", "nobodys"], 2, "swell: {0} refuses the token in {1}/nobodys: " + UNKNOWN.partition(";")[0]),
        (["--token-file", "no-file"], 2, "swell: the token file {1}/no-file cannot be read: No such file or directory"),
        (["--token-command", "false"], 1, "swell: the token command `false` failed with 1: it printed no message; fix"),
        (["--token-file", "a", "--token-command", "b"], 2, "swell: --token-file and --token-command are both given; "),
        (
            ["--token-file", "annas", "--ca", "/nope"],
            2,
            "swell: --ca needs an https:// address, and {0} is not one",
        ),
        (
            [],
            2,
            "swell: {0} needs a token, and none is configured; set SWELL_TOKEN_FILE or SWELL_API_TOKEN, or log in with",
        ),
    ],
)
def test_a_login_that_does_not_work_is_not_kept(url, home, words, code, said):
    (home / "nobodys").write_text("nobodys")
    done = call("login", url, *words)
    assert done.exit_code == code
    assert done.output.startswith(said.format(url, home))
    assert not login_file().exists()


def test_who_vouches_for_a_server_must_be_there(home):
    """Incident: `swell login … --ca /nope` succeeded, and nothing vouched for the server."""
    done = call("login", "https://127.0.0.1:1", "--token-file", "annas", "--ca", "/nope")
    said = "--ca /nope: no such file; name a PEM file with the CA certificates for https://127.0.0.1:1"
    assert (done.exit_code, done.output) == (2, f"swell: {said}\n")
    assert not login_file().exists()


def test_a_name_that_the_server_does_not_answer_to_is_said_with_those_it_does(service):
    """0.0.0.0 reaches this machine, and is none of the server's names."""
    done = call("login", f"http://0.0.0.0:{service.port}", "--token-file", "annas", "--insecure-http")
    assert done.exit_code == 2
    assert done.output == (
        f"swell: this server does not answer to the Host '0.0.0.0:{service.port}'; use one of: {service.host}, "
        f"localhost:{service.port}\n"
    )
    assert not login_file().exists()


def test_a_token_crosses_no_network_in_the_clear_unless_that_was_said_at_the_login(service):
    done = call("login", f"http://0.0.0.0:{service.port}", "--token-file", "annas")
    assert done.exit_code == 2
    assert "would send your token unencrypted over the network" in done.output


def test_the_shell_may_name_server_and_token_without_a_login(url, home, monkeypatch):
    monkeypatch.setenv("SWELL_SERVER", url)
    monkeypatch.setenv("SWELL_API_TOKEN", "bens")
    assert connect().server()["user"] == "system:serviceaccount:ml:ben"
    done = call("login", url, "--token-file", "annas")
    assert done.output.splitlines()[1] == (
        f"swell: not in this shell: the server {url} is used instead, because SWELL_SERVER names it"
    )


def test_a_login_without_a_token_takes_the_shells(url, monkeypatch):
    monkeypatch.setenv("SWELL_API_TOKEN", "bens")
    assert call("login", url).exit_code == 0
    assert json.loads(login_file().read_text()) == {"url": url}
    monkeypatch.delenv("SWELL_API_TOKEN")
    assert "needs a token, and none is configured" in call("ps").output


def test_nothing_of_this_machine_is_sent_with_a_job(service, url, home, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    assert call("login", url, "--token-file", "annas").exit_code == 0
    done = call("run", "-d", "--wait-for-nodes", "--gpus", "99", "--env", "A=b", "--", "true")
    record = service.store.job(int(done.output))
    assert (record.spec.workdir, record.spec.umask, record.spec.env) == ("/", 0o022, (("A", "b"),))
    assert service.store.environment(record.environment) == {}
    assert record.owner == "anna"
    assert call("cancel", str(record.id)).exit_code == 0
    assert not (home / ".local").exists()  # no server was started here


def test_a_server_elsewhere_is_not_ours_to_stop_nor_to_start_another_beside(service, url, home):
    call("login", url, "--token-file", "annas")
    down = call("down", "--cancel")
    assert down.exit_code == 2
    assert down.output == (
        f"swell: the server {url} is a remote server that this command cannot stop; `swell logout` stops using "
        "it, and --state names a server on this machine\n"
    )
    up = call("up", "-d")
    assert up.exit_code == 2
    assert up.output == (
        f"swell: commands use the server {url} because you logged in to it (to stop using it, run: swell "
        "logout), and would not "
        "find a server started here; name a state folder here and in each command, for example "
        "--state ~/.local/state/swell\n"
    )
    assert not service.stopped.is_set()
    assert not (home / ".local").exists()


def test_a_task_that_is_no_pod_is_entered_on_its_own_machine(service, url):
    call("login", url, "--token-file", "annas")
    job = int(call("run", "-d", "--", "sleep", "5").output)
    service.worker.begin(job, b"")
    done = call("exec", str(job), "--", "true")
    assert done.exit_code == 125
    assert done.output == (
        f"swell: job {job} of the server {url} runs on box; log in to that machine and run this command there\n"
    )
    service.worker.end(job, 0)


def test_scripts_of_this_machine_are_not_sent_elsewhere(url, home):
    from swell.cli.doors.run_scheduler import main

    (home / "train.py").touch()
    call("login", url, "--token-file", "annas")
    done = CliRunner().invoke(main, ["resnet", "--script_path", "train.py", "--max_epochs", "1", "--est_nhours", "2"])
    assert done.exit_code == 2
    assert f"run-scheduler runs scripts on this machine, but jobs go to the server {url}" in done.output


def test_the_doctor_says_which_server_is_asked_and_why_and_who_one_is_there(url, home):
    call("login", url, "--token-file", "annas")
    found = {one["topic"]: (one["level"], one["text"]) for one in json.loads(call("doctor", "-o", "json").output)}
    assert found.pop("kubectl")
    assert found == {
        "asked": ("ok", f"the server {url}, because you logged in to it (to stop using it, run: swell logout)"),
        "server": ("ok", "version 0.1.0"),
        "user": ("ok", f"anna, by the token in {home}/annas"),
        "server's clock": ("ok", "agrees with this machine's"),
    }
    (home / "annas").write_text("nobodys")
    done = call("doctor", "-o", "json")
    [_, server] = json.loads(done.output)
    assert (done.exit_code, server["level"], server["next"]) == (
        1,
        "problem",
        f"write a new token to it, for example: kubectl create token NAME -n NAMESPACE > {home}/annas",
    )


def test_an_administrators_token_works_as_a_users(url, home):
    (home / "admins").write_text(USER)
    assert call("login", url, "--token-file", "admins").exit_code == 0
    assert isinstance(connect(), Client)
    assert connect().server()["user"] == "ann"


def test_completion_is_silent_when_the_server_is_not_there(monkeypatch):
    from swell.cli.options import complete_job

    monkeypatch.setenv("SWELL_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("SWELL_API_TOKEN", "x")
    import click

    command = swell.get_command(click.Context(swell), "show")
    assert command is not None
    assert complete_job(click.Context(command), command.params[0], "") == []


# -- a slow cluster ----------------------------------------------------------------------------------------------------


SILENT = "create pods: the API server did not answer in time"


class SlowCluster(Cluster):
    """Its API server answers nothing until somebody asks the server what it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.said = SILENT
        self.is_asked = threading.Event()

    def try_out(
        self, manifests: Sequence[Manifest], *, identity: Identity | None = None, replaces: bool = False
    ) -> None:
        assert self.is_asked.wait(WAIT_S)

    def trouble(self) -> str | None:
        self.is_asked.set()
        return super().trouble()


def test_who_submits_to_a_cluster_that_does_not_answer_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`swell submit` said nothing for 65 s while the API server was paused."""
    monkeypatch.setattr(options, "SILENT_S_MAX", 0.1)
    service = Service(tmp_path / "slow", cluster=SlowCluster())
    service.worker.sync()
    monkeypatch.setenv("SWELL_SERVER", f"http://{service.host}")
    monkeypatch.setenv("SWELL_API_TOKEN", USER)
    try:
        done = call("run", "-d", "--image", "busybox", "--", "true")
    finally:
        service.close()
    said = f"swell: the server has not answered for 0.1 s, still waiting; {SILENT}"
    assert (done.exit_code, done.output.splitlines()) == (0, [said, "1"])
