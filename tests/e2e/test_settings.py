"""What `swell up` was told is remembered once a server has started with it, and never before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from server import PATIENCE_S, SWELL, Result, Server

pytestmark = pytest.mark.slow

NOT_HERE = "10.99.99.99:8443"  # no address of this machine


def typed(folder: Path, *words: str) -> Result:
    """As somebody with a home of their own and nothing else."""
    environment = {name: text for name, text in os.environ.items() if name not in ("KUBECONFIG", "XDG_STATE_HOME")}
    environment |= {"SWELL_STATE": str(folder / "state"), "HOME": str(folder)}
    done = subprocess.run([SWELL, *words], capture_output=True, text=True, env=environment, cwd=folder, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


WRONG = {
    "there is no kubeconfig": ("--engine", "kubernetes", "--context", "nope"),
    "port 8443 cannot be used": ("--listen", NOT_HERE),
    "/nope/cert.pem cannot be read": ("--listen", "FREE", "--tls-cert", "/nope/cert.pem", "--tls-key", "/nope/key.pem"),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_start_that_failed_is_forgotten_and_the_next_one_works(tmp_path: Path, why: str):
    """Incident: `swell up -d --engine kubernetes --context nope` failed, and from then on every `swell up -d`,
    `swell run` and `connect()` failed with 'there is no kubeconfig'; a certificate for an address that this machine
    does not have stayed, and where the certificate was wrong a worker went on without a server."""
    words = [f"127.0.0.2:{free_port()}" if word == "FREE" else word for word in WRONG[why]]
    failed = typed(tmp_path, "up", "-d", *words)
    assert failed.code == 1
    assert failed.stderr.startswith(f"swell: the server did not start: {why}")
    assert failed.stderr.endswith("; these options are not stored\n")
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left & {"config.json", "tls-cert.pem", "tls-key.pem"} == set()
    assert typed(tmp_path, "down").stderr == f"swell: no server is running for {tmp_path / 'state'}\n"
    with Server(tmp_path) as server:
        assert server.swell("run", "--", "true").code == 0


def test_remembered_settings_that_keep_a_server_from_starting_are_named_with_what_changes_them(tmp_path: Path):
    """Incident: the error of `swell run` named a kubeconfig, and nobody knew that an earlier `swell up` was why."""
    state = tmp_path / "state"
    state.mkdir()
    config = f'{{"cluster": {{"context": "gone"}}, "listen": "{NOT_HERE}"}}'
    (state / "config.json").write_text(config)
    failed = typed(tmp_path, "run", "--", "true")
    told = (
        f"{state}/config.json has --engine kubernetes --context gone --listen {NOT_HERE} from an earlier start; "
        "to start "
        "without these options, run: swell up -d --engine workers --listen none"
    )
    cannot = "port 8443 cannot be used: Cannot assign requested address; choose another address with --listen"
    assert (failed.code, failed.stderr) == (125, f"swell: the server did not start: {cannot}; {told}\n")
    examined = typed(tmp_path, "doctor")
    assert examined.code == 1
    assert f"no server is running for this state folder, and the last one did not start: {cannot}\n" in examined.stdout
    assert f"→ {told}\n" in examined.stdout
    assert (state / "config.json").read_text() == config  # who repairs the address has the rest as it was

    assert typed(tmp_path, "up", "-d", "--engine", "workers", "--listen", "none").code == 0
    assert typed(tmp_path, "down").stderr == f"swell: stopped the server of {state}\n"


def test_other_options_for_a_server_that_runs_are_refused_with_what_to_type(tmp_path: Path):
    """Incident: `swell up -d --gpus 8` beside a server with four said that one runs, and not that eight do not."""
    with Server(tmp_path, gpus=4) as server:
        mistaken = server.swell("up", "-d", "--gpus", "x")
        assert (mistaken.code, mistaken.stderr) == (
            2,
            "swell: --gpus: 'x' is not a number of GPUs; write a number such as 2, or auto\n",
        )
        pid = server.state.lock_holder("server")
        runs = f"swell: a server for {server.root} is already running (process {pid})"
        same = server.swell("up", "-d", "--gpus", "4")
        assert (same.code, same.stderr) == (
            2,
            f"{runs}; use it, stop it with `swell down`, or choose another folder with --state\n",
        )
        other = server.swell("up", "-d", "--gpus", "8")
        assert other.code == 2
        assert other.stderr == (
            f"{runs} with other options; to change them, run `swell down` and "
            "then this command again (running jobs keep running), or choose another folder with --state\n"
        )
        assert server.state.read_json(server.state.config)["gpus"] == 4


def test_the_way_to_stop_a_server_names_its_folder_where_a_bare_command_would_stop_another(tmp_path: Path):
    """Incident: with SWELL_STATE=A, `swell run --state B` printed 'to stop it, run: swell down', which stops A."""
    other = tmp_path / "another folder"
    with Server(tmp_path) as server:
        started = server.swell("run", "--state", str(other), "--", "true")
        try:
            hint = f"to stop it, run: swell down --state '{other}'"
            log = other / "server.log"
            assert started.stderr.splitlines()[0] == f"swell: started a server for {other} (log: {log}; {hint})"
        finally:
            stopped = server.swell("down", "--state", str(other))
        assert stopped.stderr == f"swell: stopped the server of {other}\n"
        asked = server.swell("ps", "--state", str(other))
        assert asked.stderr == (
            f"swell: no server is running for {other}; start one with `swell up -d --state '{other}'`, "
            "or name another folder with --state\n"
        )
        assert server.is_up


def test_a_server_in_the_foreground_remembers_once_it_has_started_too(tmp_path: Path):
    with Server(tmp_path) as server:
        assert server.down().code == 0
        words = [SWELL, "up", "--cpus", "3"]
        log = (tmp_path / "log").open("wb")
        process = subprocess.Popen(words, stderr=log, env=server.environment(), start_new_session=True)
        client = server.client()
        client.patiently(client.server, PATIENCE_S)
        assert server.state.read_json(server.state.config)["cpus_milli"] == 3000
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        return int(listener.getsockname()[1])
