"""What every test of the library starts from: a server, runs that end with the test, scripts that do too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swell_sdk import Run, read_environment

from .scripts import Script
from .server import Server, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as one:
        yield one


@pytest.fixture
def attached(server: Server) -> Iterator[Callable[..., Run]]:
    """A run in this process. In a thread's stead there is nothing to patch: it is the real one."""
    runs: list[Run] = []

    def make(*, rank: int | None = None, **environ: str) -> Run:
        runs.append(Run(read_environment(server.environ(**environ)), rank=rank))
        return runs[-1]

    yield make
    server.set_mode(409)
    for run in runs:
        run.close()


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Callable[..., Script]]:
    scripts: list[Script] = []

    def make(text: str, **environ: str) -> Script:
        scripts.append(Script(text, server.environ(**environ), tmp_path))
        return scripts[-1]

    yield make
    for script in scripts:
        if script.process.poll() is None:
            script.kill()
