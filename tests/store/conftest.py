from __future__ import annotations

from collections.abc import Iterator

import pytest

from store.jobs import Clock
from swell.store import Store, open_store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path, clock) -> Iterator[Store]:
    opened = open_store(tmp_path / "swell.db", clock)
    yield opened
    opened.close()
