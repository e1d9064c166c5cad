from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.service import Service


@pytest.fixture(scope="session")
def service(tmp_path_factory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("api"))
    yield made
    made.close()
