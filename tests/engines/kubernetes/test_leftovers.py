"""When is removed what was made for a job that was cancelled? Removing it is in test_engine.py, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from swell.engines.kubernetes.leftovers import Leftovers

NOBODY: Any = None  # no call is carried out here


@pytest.fixture
def leftovers() -> Leftovers:
    return Leftovers(NOBODY, NOBODY, "store", kept_s=60.0)


def test_it_is_kept_for_a_while_and_removed_once(leftovers: Leftovers) -> None:
    leftovers.add(7, 100.0)
    leftovers.add(8, 130.0)
    moments = (100.0, 159.0, 160.0, 161.0, 190.0, 300.0)
    assert [len(leftovers.calls(lambda _: False, at)) for at in moments] == [0, 0, 1, 0, 1, 0]


def test_one_that_was_started_again_meanwhile_keeps_it_also_when_it_has_ended(leftovers: Leftovers) -> None:
    leftovers.add(7, 100.0)
    assert leftovers.calls(lambda job: job == 7, 110.0) == []
    assert leftovers.calls(lambda _: False, 300.0) == []
