"""Nothing that a user names is ever executed inside a server on Kubernetes, nor connected to unasked.

Two halves of one sentence. Here: every place in the source that starts a program or opens a connection is known, with
whose words it is made from; a new one has to be added, and thought about. In e2e/test_in_the_server.py: a real server
on Kubernetes is given a program by every way there is, with the interpreter's own record of what it starts.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import swell
import swell_sdk

SOURCE = Path(swell.__file__).parent
LIBRARY = Path(swell_sdk.__file__).parent
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
    "machine/certificate.py": "server beyond loopback: openssl, with words of ours alone",
    "engines/kubernetes/client/credentials.py": "server on a cluster: the operator's kubeconfig names it",
    "notifications/programs.py": "server of a machine: a notice, as its user; a cluster's has no Programs",
    "machine/processes.py": "server of a machine, command line: Swell itself, detached",
    "server/supervisor.py": "server of a machine: Swell's own worker, by machine/processes.py",
    "worker/asuser.py": "worker, and notices of a box: as the user",
    "worker/contained.py": "worker: podman or docker",
    "worker/dockerlog.py": "worker: docker, beside a container",
    "worker/guard.py": "worker on another machine: itself once more, no program",
    "worker/tasks.py": "worker: a task",
    "worker/tensorboard.py": "worker: TensorBoard, beside a task",
    "worker/trial.py": "command line, as who types it: podman or docker, with an image of ours",
    "worker/usercontained.py": "worker: as the user",
    "worker/users.py": "worker: as the user",
    "pools/slurm/backend.py": "a pool, as who types it: sbatch, squeue and scancel, each word an argument of its own",
    "experiments/kubernetes/programs.py": "command line, as who types it: a contender, from a folder they named",
    "cli/build.py": "command line, as who types it",
    "cli/commit.py": "command line, as who types it: git, which runs nothing of a repository",
    "cli/exec.py": "command line, as who types it",
    "cli/service.py": "command line, as who types it",
    "client/embedded.py": "command line, as who types it",
    "client/tokens.py": "command line, as who types it",
    "doctor/containers.py": "command line, as who types it",
    "doctor/gpus.py": "command line, as who types it",
    "doctor/machine.py": "command line, as who types it",
}
#: Where a connection is opened: whose words say where to.
CONNECTED_IN = {
    "engines/kubernetes/client/connection.py": "server on a cluster: the operator's kubeconfig",
    "notifications/post.py": "server: a notice's address, after its rules were asked",
    "machine/server_address.py": "worker: the server it was told",
    "worker/sync.py": "worker: the server it was told",
    "worker/spot_notice.py": "worker: the metadata service of its machine, or what its operator named",
    "worker/downloads.py": "worker, as its own user: the addresses that a job names as its inputs; no box has them",
    "pools/azure_batch/backend.py": "whoever started the pool: the log container they named",
    "experiments/kubernetes/programs.py": "command line: on loopback, whether what it has started is ready",
    "machine/sockets.py": "command line and worker: the socket of their state folder, or of this machine",
    "client/connection.py": "command line: the server it was told",
    "client/place.py": "command line: the server it was told",
    "client/remote.py": "command line: the server it was told",
    "server/forwarding.py": "server that stands by: the socket of the folder that it shares with the one that serves",
}


#: Who shows a token to a server of ours, and how its connection is made.
SHOWN_BY = {
    "client/connection.py": "client/place.py: `StateFolder.connection`; client/remote.py: a server elsewhere",
    "worker/sync.py": "machine/server_address.py: the server's socket, or one elsewhere whose certificate is checked",
    "swell_sdk/wire.py": "SWELL_JOBS_SOCKET, before any address",
}
#: The same for servers of others.
SHOWN_ELSEWHERE = {"engines/kubernetes/client/credentials.py": "a cluster's API server"}
CLASSES = {"HTTPConnection", "HTTPSConnection", "UnixConnection", "PinnedConnection", "_Reaching", "urlopen"}
#: Where an HTTP connection is made.
MADE_IN = {
    "machine/state_folder.py": "the socket of a state folder, or of this machine",
    "machine/server_address.py": "a worker's server: its socket, or one elsewhere, which somebody named",
    "client/remote.py": "a server elsewhere, which somebody named",
    "notifications/post.py": "a notice",
    "swell_sdk/wire.py": "the server of a job",
    "swell_sdk/fms.py": "an address of the user's own, without a token",
    "worker/spot_notice.py": "the metadata service of its machine, without a token of ours",
    "pools/azure_batch/backend.py": "a log container, whose key is in its address",
    "experiments/kubernetes/programs.py": "a contender's health port on loopback, without a token",
}
#: Who looks into server.json, where the port is that anybody can take.
LOOKED_INTO_BY = {
    "machine/state_folder.py": "which process it was",
    "server/main.py": "writes it",
    "doctor/__init__.py": "which store it was",
    "cli/follow.py": "whether it is there",
    "cli/up.py": "prints it",
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


def everything() -> dict[str, ast.Module]:
    """Ours, and what runs inside jobs."""
    library = {path: ast.parse(path.read_text()) for path in LIBRARY.rglob("*.py")}
    named = {str(path.relative_to(LIBRARY.parent)): tree for path, tree in library.items()}
    return named | {str(path.relative_to(SOURCE)): tree for path, tree in source().items()}


def found_in(is_it: Callable[[ast.AST], bool]) -> set[str]:
    return {name for name, tree in everything().items() if any(is_it(node) for node in ast.walk(tree))}


def _shows_a_token(node: ast.AST) -> bool:
    """f"Bearer {token}"."""
    return isinstance(node, ast.JoinedStr) and "Bearer " in ast.unparse(node)


def _makes_a_connection(node: ast.AST) -> bool:
    """By its class, or by one of two."""
    if isinstance(node, ast.Call):
        return _last_name(node.func) in CLASSES
    return isinstance(node, ast.IfExp) and not CLASSES.isdisjoint({_last_name(node.body), _last_name(node.orelse)})


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else str(getattr(node, "attr", ""))


def _looks_into_the_servers_file(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "server_file"


def test_whoever_shows_a_token_to_a_server_gets_the_connection_in_one_place():
    """The client and the worker each believed the port in server.json, which a stranger had taken."""
    assert found_in(_shows_a_token) == SHOWN_BY.keys() | SHOWN_ELSEWHERE.keys()
    assert found_in(_makes_a_connection) == MADE_IN.keys()
    assert found_in(_looks_into_the_servers_file) == LOOKED_INTO_BY.keys()


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
