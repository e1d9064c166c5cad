"""Fifty gangs of two to six tasks on eight nodes with three CPUs each, all at once."""

from __future__ import annotations

import pytest

from swell.sim.clogging import clogging


def test_pod_by_pod_gangs_block_each_other_for_ever() -> None:
    found = clogging("kube-default")
    assert found.is_stuck
    assert found.done < 10


@pytest.mark.parametrize("policy", ["swell", "fifo", "backfill", "tiresias"])
def test_who_starts_gangs_whole_finishes_all_of_them(policy: str) -> None:
    found = clogging(policy)
    assert (found.done, found.is_stuck) == (50, False)
