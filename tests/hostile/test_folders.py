"""Root stands in a folder of somebody else's, and types a command there."""

from __future__ import annotations

import ast
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import swell
from box.ports import keep_port
from server import PATIENCE_S, SWELL
from swell.machine.processes import module_argv
from swell.machine.state_folder import StateFolder

ROOT = Path(swell.__file__).parent
TRAP = "open({marker!r}, 'a').write(__name__ + '\\n')\nraise SystemExit(9)\n"


@pytest.fixture
def trap(tmp_path) -> Path:
    """Anything that is imported from here leaves its name in `ran`."""
    folder = tmp_path / "somebodys"
    text = TRAP.format(marker=str(tmp_path / "ran"))
    for name in ("json.py", "contextlib.py", "swell/__init__.py", "swell/worker/__init__.py", "click/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def ran(trap: Path) -> list[str]:
    left = trap.parent / "ran"
    return left.read_text().splitlines() if left.exists() else []


def environment(tmp_path: Path, **variables: str) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("SWELL_")}
    return {**own, "SWELL_STATE": str(tmp_path / "state"), **variables}


@pytest.mark.slow
def test_a_command_imports_nothing_from_the_folder_it_is_typed_in(tmp_path, trap):
    """A user's json.py ran as root when root typed `swell doctor` beside it: `python -m` looks there first."""
    done = subprocess.run(
        [SWELL, "doctor"], cwd=trap, env=environment(tmp_path), capture_output=True, timeout=300, check=False
    )
    assert b"worker" in done.stdout, done
    assert ran(trap) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [("up",), ("service", "run", "--socket", "s")], ids=["up", "service run"])
def test_a_server_in_the_foreground_imports_nothing_from_there_nor_does_its_worker(tmp_path, trap, words, box_port):
    state = StateFolder(tmp_path / "state")
    argv = [SWELL, words[0], *words[1:], "--state", str(state.root), "--gpus", "1"]
    keep_port(state.root, box_port)
    server = subprocess.Popen(
        argv, cwd=trap, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while server.poll() is None and not state.lock_holder("worker") and time.monotonic() < until:
            time.sleep(0.05)
        assert (ran(trap), server.poll()) == ([], None)
        assert state.lock_holder("worker")
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)


def test_a_module_is_still_found_by_pythonpath_where_the_environment_is_our_own(tmp_path):
    (tmp_path / "named.py").write_text("print('here')")
    seen = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(module_argv("named"), env=seen, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "here\n")
    words = module_argv("named", sees_environment=False)
    assert subprocess.run(words, env=seen, capture_output=True, check=False).returncode == 1


def calls_of_python(tree: ast.AST) -> Iterator[int]:
    """Lines where words of our own are put together that begin with our Python."""
    for node in ast.walk(tree):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else ()
        if any(ast.unparse(word) == "sys.executable" for word in words) and any(
            isinstance(word, ast.Constant) and word.value in ("-m", "-c") for word in words
        ):
            yield words[0].lineno


def test_only_one_function_says_how_a_module_of_ours_is_run():
    found = {
        f"{path.relative_to(ROOT)}" for path in ROOT.rglob("*.py") for _ in calls_of_python(ast.parse(path.read_text()))
    }
    assert found == {"machine/processes.py"}, "use machine.processes.module_argv, which imports nothing from the folder"
