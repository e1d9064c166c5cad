from __future__ import annotations

from collections.abc import Iterator

import pytest

from box.machine import Machine, refuse_what_is_missing


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    """All of this tier, or it fails and says what is missing."""
    refuse_what_is_missing()


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine
