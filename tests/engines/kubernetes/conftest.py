"""An API server on loopback, and a port to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.engines.kubernetes import Access, ApiClient
from swell.engines.kubernetes.client.credentials import Files

from .apiserver import ApiServer


def access_to(server: ApiServer) -> Access:
    source = "the service account of the test"
    return Access(server.url, "default", Files(source, token=server.token_file), source)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path / "token")
    yield server
    server.close()


@pytest.fixture
def port(server: ApiServer) -> Iterator[ApiClient]:
    port = ApiClient(access_to(server), answer_s=5.0)
    yield port
    port.close()
