"""Which program runs containers on a machine, asked just after the server was started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from swell.api import containers
from swell.api.containers import runtime_on
from swell.errors import Unavailable
from swell.model.cluster import Node

BOX = Node("box", 8000, 16384, (), container_runtime="podman --log-level error")
OTHER = Node("other", 8000, 16384, ())


@dataclass
class Controller:
    """Sees other machines every time it is asked, and in the end the same ones for ever."""

    seen: list[tuple[Node, ...]]

    @property
    def snapshot(self) -> Any:
        return SimpleNamespace(nodes=self.seen.pop(0) if len(self.seen) > 1 else self.seen[0])


def asked(*seen: tuple[Node, ...]) -> list[str]:
    services: Any = SimpleNamespace(controller=Controller(list(seen)))
    return asyncio.run(runtime_on(services, "box"))


def test_a_machine_that_comes_back_a_moment_later_is_waited_for() -> None:
    assert asked((), (OTHER,), (OTHER, BOX)) == ["podman", "--log-level", "error"]


def test_one_that_does_not_come_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "FIRST_NODE_S", 0.0)
    with pytest.raises(Unavailable) as caught:
        asked((OTHER,))
    words = "the worker on box has not spoken to the server yet; try again, or see worker.log in the state folder"
    assert str(caught.value) == words
