from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.service import Service


@pytest.fixture(scope="package")
def service(tmp_path_factory) -> Iterator[Service]:
    """Of these tests alone: what others submit would be in their lists."""
    made = Service(tmp_path_factory.mktemp("doors"))
    yield made
    made.close()
