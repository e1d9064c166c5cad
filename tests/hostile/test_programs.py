"""Every place that starts a program while Swell serves others, and as whom that runs.

A command of a user's never runs inside the server: on Kubernetes `notify: [sh, -c, …]` of any user ran in the server's
pod, with its token and its rights over the cluster. The test below finds every function that starts a program, in all
modules but those in EXEMPT. A new one fails it until it is listed in STARTERS with whose program it is, and as whom it
runs. That a server on Kubernetes has no `Programs` is tests/notifications/test_rules.py's; it has no worker either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import swell

ROOT = Path(swell.__file__).parent
EXEMPT = {
    "cli/": "a command: it runs what whoever typed it has named, as they are",
    "client/": "the same",
    "doctor/": "the same: `swell doctor`",
    "experiments/": "the same: `swell experiment`",
}
STARTS = frozenset(
    {"Popen", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "execvpe", "system", "popen", "fork"}
    | {"run", "call", "check_call", "check_output", "getoutput", "create_subprocess_exec", "create_subprocess_shell"}
)
OURS = "a module of ours"
AS_USER = "a user's, as that user in control groups of the task's own; on a server of one user, as its owner"
OPERATORS = "one that the operator has named, or a program of the machine; no word of it is a user's"
#: module and function → whose program it is, and as whom it runs
STARTERS = {
    "api/checkpoints.py:_look_as_user": "realpath, as the user who has told the path",
    "engines/kubernetes/client/credentials.py:PluginCall.run": OPERATORS,
    "machine/certificate.py:_openssl": OPERATORS,
    "machine/processes.py:become_module": OURS,
    "machine/processes.py:spawn_detached": OURS,
    "notifications/programs.py:Programs._start": "a user's: on a box through `asuser.send`, else as the server's owner",
    "pools/slurm/backend.py:SlurmBackend._run": "a process of `swell pool start`, as whoever typed it",
    "worker/asuser.py:send": AS_USER,
    "worker/asuser.py:spawn": AS_USER,
    "worker/contained.py:ContainedTasks._answer": "the container runtime, as the worker's own user",
    "worker/contained.py:ContainedTasks._send": "the same",
    "worker/dockerlog.py:main": "the same",
    "worker/guard.py:fork_guard": "no program: the worker itself, on another machine, as its own user",
    "worker/tasks.py:spawn": AS_USER,
    "worker/tensorboard.py:spawn": AS_USER,
    "worker/trial.py:ContainerTrial._call": "the container runtime, as whoever asks",
}


def starters() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if not module.startswith(tuple(EXEMPT)):
            yield from (f"{module}:{name}" for name in _in(ast.parse(path.read_text()), ""))


def _in(node: ast.AST, where: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _in(child, f"{where}.{child.name}" if where else child.name)
            continue
        if _starts(child):
            yield where
        yield from _in(child, where)


def _starts(node: ast.AST) -> bool:
    """`subprocess.run(…)`, `os.execv(…)`: named with their module, as we write them everywhere."""
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or called.attr not in STARTS:
        return False
    return isinstance(called.value, ast.Name) and called.value.id in ("subprocess", "os", "asyncio", "pty")


def test_everything_that_starts_a_program_is_listed_with_whose_it_is() -> None:
    assert sorted(set(starters())) == sorted(STARTERS)


def test_nothing_starts_a_program_by_another_name() -> None:
    """`from subprocess import run` would not be found above."""
    names = ("subprocess", "pty", "multiprocessing")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and node.module in names)
        or (isinstance(node, ast.Import) and any(one.name in names and one.asname for one in node.names))
    ]
    assert found == []
