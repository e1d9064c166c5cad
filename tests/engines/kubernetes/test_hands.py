"""How a step is carried out. With real objects: test_engine.py, on a real cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swell.engines.kubernetes import Port
from swell.engines.kubernetes.hands import Hands
from swell.engines.kubernetes.resources import Resource
from swell.engines.kubernetes.steps import Suspend
from swell.engines.kubernetes.wanted import Memory
from swell.errors import NotFound

from .pieces import make_object, make_seen, make_wanted

PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")


def test_an_object_that_is_gone_is_not_believed_to_be_there(port: Port) -> None:
    """It came and went while its watch was away. Nothing but our own answer spoke of it, and that was believed for
    ever: an attempt that was to stop tried to suspend it again and again, and never ended."""
    cluster: Any = SimpleNamespace(resources={"PyTorchJob": PYTORCHJOBS})
    hands = Hands(
        port,
        cluster,
        lambda _: {},
        store="s",
        namespace="team",
        is_active=lambda _: True,
        runtime_class=lambda: None,
    )
    memory = Memory(fresh=make_object())
    with pytest.raises(NotFound):
        hands.do(Suspend(), make_wanted(is_stopping=True), make_seen(memory.fresh), memory)
    assert memory.fresh is None
