from __future__ import annotations

from collections.abc import Iterator

import pytest

from box.machine import Machine, what_is_missing


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    """All of this tier, or it says what is missing."""
    if what_is_missing():
        pytest.skip(what_is_missing())


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine
