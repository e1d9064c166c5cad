from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster
from cluster.starting import started


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server, without nodes."""
    with started(tmp_path_factory.mktemp("control-plane")) as cluster:
        yield cluster
