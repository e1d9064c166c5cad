from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server import Gate, Server

from .containers import ContainerRuntime, podman
from .docker import docker


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """One for all tests that leave it as they found it; its worker is there, and so are its worker's files."""
    with Server(tmp_path_factory.mktemp("server")) as shared:
        next(event for event in shared.client().follow_events(after=0) if event["kind"] == "NodeJoined")
        yield shared


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """For tests that destroy it."""
    with Server(tmp_path) as own:
        yield own


@pytest.fixture
def nothing_changes(server: Server) -> Iterator[None]:
    """Jobs, settings and files are the same afterwards."""
    before = server.settled()
    yield
    assert server.settled() == before


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


@pytest.fixture(scope="session")
def docker_runtime() -> Iterator[ContainerRuntime]:
    with docker() as made:
        yield made


@pytest.fixture(scope="module", params=["podman", "docker"])
def runtime(request: pytest.FixtureRequest) -> ContainerRuntime:
    """Every test of containers runs with both."""
    made: ContainerRuntime = podman() if request.param == "podman" else request.getfixturevalue("docker_runtime")
    return made
