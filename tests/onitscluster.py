"""How does a module of tests get a server on its cluster?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from server import Server


def server_on(cluster: Cluster, folder: Path, *options: str) -> Server:
    folder.mkdir(exist_ok=True)
    return Server(folder, "--engine", "kubernetes", "--kubeconfig", str(cluster.kubeconfig), *options, gpus=None)


def module_server() -> Any:
    """A fixture, where there is one called `cluster`: `server = module_server()`."""

    @pytest.fixture(scope="module")
    def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        with server_on(cluster, tmp_path_factory.mktemp("server")) as server:
            yield server

    return server
