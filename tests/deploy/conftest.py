from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.cluster import Cluster
from cluster.test_cluster import started


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server, without nodes."""
    yield from started(tmp_path_factory.mktemp("control-plane"))
