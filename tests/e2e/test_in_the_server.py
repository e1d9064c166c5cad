"""A command of a user's never runs inside the server on Kubernetes, whichever way it is named.

A real server process, with an API server on loopback behind it. The interpreter itself keeps record (an audit hook, in
place before any line of ours) of every program that the process starts. The list of places in the source that could is
in test_starting.py.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.apiserver import ApiServer
from server import Server
from specs import spec
from swell.model.job import Notify
from swell.store import Changes, NewJob, open_store

pytestmark = pytest.mark.slow

RECORD = """\
import os, sys
if "swell.server" in sys.orig_argv:
    STARTS = ("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "pty.spawn")
    record = os.open(os.environ["TEST_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    def note(event, arguments):
        if event.startswith(STARTS):
            os.write(record, f"{event} {arguments!r}\\n".encode(errors="replace"))
    sys.addaudithook(note)
"""
STORED = 3  # jobs of an earlier server, which had taken whatever they said


@dataclass
class OnKubernetes:
    server: Server
    folder: Path
    record: Path
    ran: Path  #: what every program that a user names would make
    listener: socket.socket  #: where nobody may connect to

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/"

    def ask(self, path: str, body: object) -> tuple[int, Any]:
        url = self.server.state.read_json(self.server.state.server_file)["url"].removeprefix("http://")
        with closing(http.client.HTTPConnection(url, timeout=30)) as connection:
            token = self.server.state.token.read_text().strip()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def submit(self, manifest: object) -> tuple[int, Any]:
        body = {"manifest": manifest, "workdir": str(self.folder), "umask": 0o22, "env": {"PATH": str(self.folder)}}
        return self.ask("/api/v1/jobs", body)

    def nothing_ran(self) -> tuple[list[str], bool, bool]:
        started = self.record.read_text().splitlines() if self.record.exists() else []
        self.listener.setblocking(False)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return started, self.ran.exists(), False
        return started, self.ran.exists(), True


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Iterator[OnKubernetes]:
    folder = tmp_path_factory.mktemp("kubernetes")
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text(RECORD)
    record, ran, listener = folder / "record", folder / "ran", socket.create_server(("127.0.0.1", 0))
    path = ":".join([str(folder / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYTHONPATH": path, "TEST_RECORD": str(record)}
    api = ApiServer(folder / "token")
    server = Server(folder, "--engine", "kubernetes", "--kubeconfig", kubeconfig(folder, api), gpus=None, env=env)
    made = OnKubernetes(server, folder, record, ran, listener)
    store_jobs(made)
    with server:
        yield made
    api.close()
    listener.close()


def kubeconfig(folder: Path, api: ApiServer) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"tokenFile": str(api.token_file)}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(document))
    return str(folder / "kubeconfig")


def store_jobs(here: OnKubernetes) -> None:
    """As a server of yesterday left them: ended, and their notices due."""
    here.server.state.prepare()
    store = open_store(here.server.state.database, time.time)
    ways = (("sh", "-c", f"touch {here.ran}"), ("mailto:ann@example.org",), (f"{here.address}hook",))
    jobs = [NewJob(spec(notify=Notify(to)), "ann", {}) for to in ways]
    records = store.accept(jobs).result()
    ended = {"state": "failed", "ended_at": 1.0, "exit_code": 1, "notice_due": 1}
    store.record(Changes(jobs={record.id: dict(ended) for record in records})).result()
    store.close()


def native(**fields: object) -> dict[str, object]:
    return {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": "native"},
        "spec": {"command": ["true"], "image": "busybox", **fields},
    }


def pod(**annotations: str) -> dict[str, object]:
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "by-annotation",
            "annotations": {f"swell.dev/{key}": text for key, text in annotations.items()},
        },
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def test_the_record_records(here, tmp_path):
    """Otherwise an empty one would prove nothing."""
    words = [sys.executable, "-c", "import subprocess; subprocess.run(['true'])", "swell.server"]
    own = tmp_path / "record"
    env = {"PYTHONPATH": str(here.folder / "python"), "TEST_RECORD": str(own)}
    subprocess.run(words, env=env, check=True)
    assert own.read_text().startswith("subprocess.Popen ")


def test_a_notice_that_was_stored_gets_an_event_instead_of_a_run(here):
    refused = []
    for event in here.server.client().follow_events(after=0):
        if event["kind"] == "NoticeRefused":
            refused.append((event["job"], event["detail"]["to"]))
        if len(refused) == STORED:
            break
    assert sorted(refused) == [(1, "sh"), (2, "mailto:ann@example.org"), (3, here.address.rstrip("/"))]
    assert here.nothing_ran() == ([], False, False)


WAYS = ("a command in words", "a list", "one word", "mailto:", "an address", "an address in a list", "another's host")


def notify_of(here: OnKubernetes, way: str) -> object:
    return {
        "a command in words": f"sh -c 'touch {here.ran}'",
        "a list": ["sh", "-c", f"touch {here.ran}"],
        "one word": str(here.folder / "program"),
        "mailto:": "mailto:ann@example.org",
        "an address": f"{here.address}hook",
        "an address in a list": [f"{here.address}hook"],
        "another's host": "https://example.org/hook",
    }[way]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("door", ["API", "API, as text", "command line", "dry run"])
def test_a_notice_is_refused_at_submission(here, way, door):
    program = here.folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {here.ran}\n")
    program.chmod(0o755)
    notify = notify_of(here, way)
    if door == "command line":
        words = notify if isinstance(notify, str) else " ".join(f"'{word}'" for word in notify)
        done = here.server.swell("run", "-d", "--image", "busybox", "--notify", words, "--", "true")
        assert (done.code, "notify" in done.stderr) == (125, True), done
    else:
        manifest: object = native(notify=notify)
        body = {"manifest": json.dumps(manifest) if door == "API, as text" else manifest, "workdir": "/", "umask": 0}
        status, answer = here.ask("/api/v1/jobs", {**body, "env": {}, "dry_run": door == "dry run"})
        said = answer["error"]["message"].removeprefix("line 1: ")  # where it came as text
        assert (status, said.startswith("notify")) == (422, True), answer
    assert here.nothing_ran() == ([], False, False)


def test_whatever_else_names_a_program_a_folder_or_an_address_makes_the_server_start_nothing(here):
    """Commands, images, folders and variables are for pods; annotations and doors have no words for a notice."""
    touch = ["sh", "-c", f"touch {here.ran}"]
    env = {"LD_PRELOAD": str(here.folder / "evil.so"), "PYTHONSTARTUP": str(here.folder / "evil.py")}
    said = {
        "": native(command=touch, workdir=str(here.folder), env=env),
        "checkpoints is a folder that must": native(command=touch, checkpoints=f"/$(touch {here.ran})"),
        "tensorboard: 'runs' must be a folder of the container": native(command=touch, tensorboard="runs"),
        "metadata.annotations has no field 'swell.dev/notify'": pod(notify=f"touch {here.ran}"),
    }
    for words, manifest in said.items():
        status, answer = here.submit(manifest)
        assert status == (422 if words else 201), answer
        assert answer.get("error", {}).get("message", "").startswith(words)
    script = {"jobName": "by-door", "scriptPath": f"$(touch {here.ran})", "directoryToMount": str(here.folder)}
    by_door = [
        here.ask("/submit", {**script, "dockerImage": here.address, "notify": f"touch {here.ran}"}),
        here.ask("/add_job", {"job_name": "x", "url": here.address, "notify": here.address, "script": touch}),
    ]
    assert [status for status, _ in by_door] == [400, 400], by_door
    assert here.nothing_ran() == ([], False, False)
