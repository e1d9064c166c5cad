"""The backend that the loop's tests use keeps the contract, too."""

from __future__ import annotations

import pytest

from pools.contract import PoolContract
from pools.scripted import ScriptedWorld


class TestScripted(PoolContract):
    @pytest.fixture
    def world(self) -> ScriptedWorld:
        return ScriptedWorld()
