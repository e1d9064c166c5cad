"""Bad input: a message that says what was asked, what is true and what to do; and nothing has changed."""

from __future__ import annotations

import http.client
import os

import pytest

from server import Server

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_changes")]

NOBODY = 65534
HEAD = "apiVersion: swell/v1\nkind: Job\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpsu", "2"], "No such option '--gpsu'. (Did you mean one of: '--cpus', '--gpus', '--input'?)"),
        (["--gpus", "4..2"], "swell: --gpus: '4..2': the maximum 2 is below the minimum 4; write 2..4"),
        (["--tasks", "3..1"], "swell: --tasks: '3..1': the maximum 1 is below the minimum 3; write 1..3"),
        (
            ["--gpus", "1..2", "--tasks", "2"],
            "swell: --gpus 1..2 with --tasks 2: a job is elastic in one dimension",
        ),
        (["--array", "9-0"], "swell: --array: array '9-0': the last index 0 is below the first 9; write 0-9"),
        (["--array", "0-9%0"], "swell: --array: array '0-9%0': after % comes how many may run at once, 1 or more"),
        (
            ["--array", "0-99999999"],
            "swell: --array: array '0-99999999' has 100000000 tasks; at most 1000000: split it",
        ),
        (["--memory", "lots"], "swell: --memory: 'lots' is not an amount of memory; write 512MiB, 8GiB or 1.5TiB"),
        (["--cpus", "-1"], "swell: --cpus: '-1' is not a number of CPUs; write 2, 0.5 or 500m"),
        (["--time", "soon"], "swell: --time: 'soon' is not a duration; write 90s, 30m, 2h, 1h30m or 1-12:00:00"),
        (
            ["--priority", "high"],
            "swell: --priority must be a whole number from -1000000 to 1000000, but is ",
        ),
        (
            ["--name", "../../etc/passwd"],
            "swell: --name '../../etc/passwd' cannot be used: a name is 1 to 63 letters, ",
        ),
        (["--name", "12"], "swell: --name '12' is a number and would be taken for a job's id; add a letter"),
        (["--env", "HOME"], "swell: --env 'HOME' is not NAME=VALUE; on this machine, jobs inherit your environment"),
        (["--env", "A=b", "--workdir", ""], "swell: --workdir must be a folder's path, but is ''"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_run_that_cannot_be_meant_is_refused_with_125(server, words, said):
    done = server.swell("run", *words, "--", "touch", "should-not-exist")
    assert (done.code, done.stdout) == (125, "")
    assert said in " ".join(done.stderr.split())
    assert not (server.folder / "should-not-exist").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the manifest is not valid YAML: line 2, column 1: did not find expected node content"),
        (
            "a: 1\n\tb: 2",
            "the manifest is not valid YAML: line 2, column 1: found a tab character",
        ),
        ("", "the manifest holds no document; start with apiVersion: swell/v1, kind: Job"),
        ("just text", "the manifest must be a mapping of names to values, but is 'just text'"),
        (
            f"{HEAD}spec: {{comand: [a]}}",
            "line 3: spec has no field 'comand'; did you mean 'command'? (known: after, array, ch",
        ),
        (
            f"{HEAD}spec: {{command: sleep 5}}",
            "line 3: command must be a list of words, but is text: write [sh, -c, '",
        ),
        (
            f"{HEAD}spec: {{command: [a], gpus: 2..1}}",
            "line 3: gpus: '2..1': the maximum 1 is below the minimum 2; write 1..2",
        ),
        (
            f"{HEAD}metadata: {{name: ../x}}\nspec: {{command: [a]}}",
            "line 3: name '../x' cannot be used: a name is ",
        ),
        (f"{HEAD}spec: {{command: [a], env: {{A: 1, A: 2}}}}", "line 3: the field 'A' is given twice; keep one"),
        (
            f"{HEAD}spec: {{command: [a]}}\n---\nkind: Pod",
            "document 2 of 2: nothing here can run 'ap",
        ),
        ("a: &a [*a]", "line 1: the YAML alias *a stands for something it is part of; write it out"),
        ("[" * 5000, "the manifest is nested deeper than 50 levels; a job needs five"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused_with_its_name_and_the_place(server, tmp_path, text, said):
    (tmp_path / "job.yaml").write_text(text)
    done = server.swell("submit", "-f", "job.yaml", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"swell: job.yaml: {said}")


def test_of_several_files_none_is_submitted_when_one_is_bad(server, tmp_path):
    (tmp_path / "good.yaml").write_text(f"{HEAD}spec: {{command: [a]}}")
    (tmp_path / "bad.yaml").write_text(f"{HEAD}spec: {{command: [a], gpu: 1}}")
    done = server.swell("submit", "-f", "good.yaml", "-f", "bad.yaml", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("swell: bad.yaml: line 3: spec has no field 'gpu'; did you mean 'gpus'?")


@pytest.mark.parametrize("sparse", [True, False])
def test_a_manifest_of_50_megabytes_is_refused_at_once(server, tmp_path, sparse):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000) if sparse else file.write(b"# comment\n" * 5_000_000)
    done = server.swell("submit", "-f", "huge.yaml", cwd=tmp_path, timeout_s=10)
    said = "swell: huge.yaml is larger than 1048576 bytes, the maximum for a manifest; split it\n"
    assert (done.code, done.stderr) == (2, said)


def test_a_request_of_50_megabytes_is_refused_by_the_server_too(server):
    client = server.client()
    address = client.state.read_json(client.state.server_file)["url"].removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=30)
    headers = {"Authorization": f"Bearer {server.state.token.read_text().strip()}"}
    connection.request("POST", "/api/v1/jobs", b"x" * 50_000_000, headers)
    response = connection.getresponse()
    assert (response.status, b"the request has more than 3145728 bytes; send less at once" in response.read()) == (
        413,
        True,
    )
    connection.close()


@pytest.mark.parametrize("command", ["show", "why", "logs", "events", "cancel", "delete"])
@pytest.mark.parametrize("job", ["987654", "nobody-of-that-name", "../../etc/passwd", "9" * 30])
def test_a_job_that_does_not_exist_is_said_not_to(server, command, job):
    done = server.swell(command, job)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("swell: there is no job ")
    assert job in done.stderr


def test_waiting_for_a_job_that_does_not_exist_is_a_failure_of_swell(server):
    assert server.swell("wait", "nobody-of-that-name").code == 125


def test_a_wrong_host_is_refused_and_told_the_right_one(server):
    about = server.state.read_json(server.state.server_file)
    address = about["url"].removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=10)
    headers = {"Authorization": f"Bearer {server.state.token.read_text().strip()}", "Host": "evil.example"}
    connection.request("POST", "/api/v1/server/stop", headers=headers)
    response = connection.getresponse()
    said = response.read().decode()
    assert response.status == 403
    assert f"this server does not answer to the Host 'evil.example'; use one of: {address}" in said
    assert server.is_up


def test_a_stale_token_is_refused_and_told_what_to_do(server, tmp_path):
    """Another state folder's token, as after a folder was copied or made anew."""
    copy = Server(tmp_path)
    copy.root.mkdir(mode=0o700)
    copy.state.server_socket.symlink_to(server.state.server_socket)
    (copy.root / "token").write_text("an-old-token\n")
    done = copy.swell("ps")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == (
        "swell: the token is not this server's: it is stale or belongs to another state folder; "
        "read the token file again, or check --state\n"
    )


def test_a_second_server_on_the_same_folder_is_refused(server):
    pid = server.state.lock_holder("server")
    said = (
        f"swell: a server for {server.root} is already running (process {pid}); "
        "use it, stop it with `swell down`, or choose another folder with --state\n"
    )
    for words in (["up", "-d"], ["up"], ["up", "-d", "--gpus", "4"]):  # other options: test_settings.py
        done = server.swell("up", *words[1:], timeout_s=20)
        assert (done.code, done.stdout, done.stderr) == (2, "", said)
    assert server.state.lock_holder("server") == pid


def test_a_state_folder_that_is_a_file_is_refused_and_left_alone(server, tmp_path):
    (tmp_path / "state").write_text("mine")
    done = server.swell("up", "-d", "--state", str(tmp_path / "state"))
    assert done.code == 1
    assert done.stderr == (
        f"swell: the state folder {tmp_path}/state cannot be written: a file with that name exists; "
        "move it away, or name another folder with --state\n"
    )
    assert (tmp_path / "state").read_text() == "mine"


def test_a_port_that_is_taken_is_refused_and_named(server, tmp_path):
    port = server.state.read_json(server.state.server_file)["url"].rpartition(":")[2]
    done = server.swell("up", "-d", "--port", port, "--state", str(tmp_path / "state"))
    assert done.code == 1
    assert done.stderr == (
        f"swell: the server did not start: port {port} cannot be used: Address already in use; "
        "choose another port with --port\n"
    )


def test_a_state_folder_of_somebody_else_is_refused(server, tmp_path):
    assert os.geteuid() == 0, "this test gives a folder to another user; run it as root"
    other = Server(tmp_path)
    other.root.mkdir(mode=0o700)
    for name in ("server.json", "server.lock", "token"):
        (other.root / name).write_bytes((server.root / name).read_bytes())
        os.chown(other.root / name, NOBODY, NOBODY)
    os.chown(other.root, NOBODY, NOBODY)
    said = f"swell: the state folder {other.root} belongs to another user and cannot be read; "
    for words in ("up -d", "ps", "down"):
        done = other.swell(*words.split(), as_ordinary_user=True)
        assert (done.code, done.stdout, done.stderr) == (2, "", f"{said}name another folder with --state\n")
