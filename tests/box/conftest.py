from __future__ import annotations

from collections.abc import Iterator

import pytest

from box.machine import Machine, what_is_missing


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)
    with Machine() as machine:
        yield machine
