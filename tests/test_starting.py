"""Nothing that a user names is ever executed inside a server on Kubernetes, nor connected to unasked.

Two halves of one sentence. Here: every place in the source that starts a program or opens a connection is known, with
whose words it is made from; a new one has to be added, and thought about. In e2e/test_in_the_server.py: a real server
on Kubernetes is given a program by every way there is, with the interpreter's own record of what it starts.
"""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path

import swell

SOURCE = Path(swell.__file__).parent
STARTING = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {
        "system",
        "popen",
        "fork",
        "forkpty",
        "posix_spawn",
        "posix_spawnp",
        *(name for name in dir(os) if name.startswith(("exec", "spawn"))),
    },
    "pty": {"spawn", "fork"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "multiprocessing": {"Process", "Pool", "get_context"},
    "futures": {"ProcessPoolExecutor"},
}
CONNECTING = {
    "socket": {"create_connection"},
    "client": {"HTTPConnection", "HTTPSConnection"},
    "request": {"urlopen", "build_opener", "urlretrieve"},
    "asyncio": {"open_connection", "open_unix_connection"},
    "smtplib": {"SMTP", "SMTP_SSL"},
    "ftplib": {"FTP", "FTP_TLS"},
}
#: Where a program is started: whose words it is made from.
STARTED_IN = {
    "api/checkpoints.py": "server of a box: realpath, as the job's user, of a path in their report; no cluster looks",
    "certificate.py": "server beyond loopback: openssl, with words of ours alone",
    "engines/kubernetes/credentials.py": "server on a cluster: the operator's kubeconfig names it",
    "notices/programs.py": "server of a machine: a notice, as its user; a cluster's has no Programs",
    "process.py": "server of a machine, command line: Swell itself, detached",
    "supervisor.py": "server of a machine: Swell's own worker, by process.py",
    "worker/asuser.py": "worker, and notices of a box: as the user",
    "worker/contained.py": "worker: podman or docker",
    "worker/dockerlog.py": "worker: docker, beside a container",
    "worker/tasks.py": "worker: a task",
    "worker/tensorboard.py": "worker: TensorBoard, beside a task",
    "worker/trial.py": "command line, as who types it: podman or docker, with an image of ours",
    "worker/usercontained.py": "worker: as the user",
    "worker/users.py": "worker: as the user",
    "cli/exec.py": "command line, as who types it",
    "cli/service.py": "command line, as who types it",
    "cli/up.py": "command line, as who types it",
    "client/embedded.py": "command line, as who types it",
    "client/tokens.py": "command line, as who types it",
    "doctor/containers.py": "command line, as who types it",
    "doctor/gpus.py": "command line, as who types it",
    "doctor/machine.py": "command line, as who types it",
}
#: Where a connection is opened: whose words say where to.
CONNECTED_IN = {
    "engines/kubernetes/connection.py": "server on a cluster: the operator's kubeconfig",
    "notices/post.py": "server: a notice's address, after its rules were asked",
    "sockets.py": "command line: this machine's socket",
    "worker/sync.py": "worker: its server",
    "client/connection.py": "command line: the server it was told",
    "client/place.py": "command line: the server it was told",
    "client/remote.py": "command line: the server it was told",
}


@cache
def source() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def used(names: dict[str, set[str]]) -> set[str]:
    """Files that use one of these, under whatever name the module was imported."""
    found = set()
    for path, tree in source().items():
        uses = (_name(node) for node in ast.walk(tree))
        imports = (
            (str(node.module).rpartition(".")[2], alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        )
        if any(name in names.get(module, ()) for module, name in (*uses, *imports)):
            found.add(str(path.relative_to(SOURCE)))
    return found


def _name(node: ast.AST) -> tuple[str, str]:
    if not isinstance(node, ast.Attribute):
        return "", ""
    value = node.value
    return (value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")), node.attr


def test_every_place_that_starts_a_program_is_known():
    assert used(STARTING) == STARTED_IN.keys()


def test_every_place_that_opens_a_connection_is_known():
    assert used(CONNECTING) == CONNECTED_IN.keys()


def test_no_module_is_imported_under_another_name_to_hide_there():
    """`import subprocess as s` would not be seen above; so nobody does it."""
    renamed = [
        f"{path.name}: {alias.name} as {alias.asname}"
        for path, tree in source().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname and alias.name.partition(".")[0] in {"subprocess", "os", "socket", "http", "urllib", "asyncio"}
    ]
    assert renamed == []
