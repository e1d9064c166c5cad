"""Which program runs containers on a machine, asked just after the server was started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from swell.api import exec as containers
from swell.api.exec import runtime_on
from swell.errors import Conflict, Unavailable
from swell.model.cluster import Node

BOX = Node("box", 8000, 16384, (), container_runtime="podman")
OTHER = Node("other", 8000, 16384, ())


@dataclass
class Controller:
    """Sees other machines every time it is asked, and in the end the same ones for ever."""

    seen: list[tuple[Node, ...]]

    @property
    def snapshot(self) -> Any:
        return SimpleNamespace(nodes=self.seen.pop(0) if len(self.seen) > 1 else self.seen[0])


def asked(
    *seen: tuple[Node, ...], setting: str | None = "podman --log-level error", own: bool = True, box: bool = False
) -> list[str]:
    """`setting`: the server's own, with which it has started its own worker."""
    services: Any = SimpleNamespace(
        controller=Controller(list(seen)),
        workers=SimpleNamespace(is_own=lambda name: own),
        config=SimpleNamespace(container_command=setting),
        box=object() if box else None,
    )
    return asyncio.run(runtime_on(services, "box"))


def test_a_machine_that_comes_back_a_moment_later_is_waited_for() -> None:
    assert asked((), (OTHER,), (OTHER, BOX)) == ["podman", "--log-level", "error"]


@pytest.mark.parametrize(
    ("setting", "own", "box", "expected"),
    [
        (None, True, False, ["podman"]),
        ("/opt/podman/bin/podman --root /data", True, False, ["/opt/podman/bin/podman", "--root", "/data"]),
        ("/opt/podman/bin/podman --root /data", False, False, ["podman"]),
        ("docker --context lab", True, False, ["podman"]),  # its worker was started before that setting
        (None, True, True, ["podman", "--cgroup-manager", "cgroupfs"]),
        ("podman --cgroup-manager=x", True, True, ["podman", "--cgroup-manager=x"]),
    ],
)
def test_options_are_those_of_the_servers_own_settings_and_for_its_own_worker_only(
    setting: str | None, own: bool, box: bool, expected: list[str]
) -> None:
    assert asked((BOX,), setting=setting, own=own, box=box) == expected


def test_a_worker_whose_runtime_is_gone_has_no_container_to_enter() -> None:
    with pytest.raises(Conflict, match="the worker on box has neither podman nor docker now"):
        asked((replace(BOX, container_runtime=""),))


def test_one_that_does_not_come_back_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "FIRST_NODE_S", 0.0)
    with pytest.raises(Unavailable) as caught:
        asked((OTHER,))
    words = "the worker on box has not contacted the server yet; try again, or see worker.log in the state folder"
    assert str(caught.value) == words
