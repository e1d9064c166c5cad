"""What is removed of a job that is over, and when? With real pods and objects: test_engine.py, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from engines.kubernetes.pieces import ended, make_pod
from swell.engines.kubernetes.leftovers import AGAIN_S, Leftovers
from swell.engines.kubernetes.picture import JOB, STORE, PodSeen
from swell.errors import Unavailable


@dataclass
class Cluster:
    """Has pods only, and no objects."""

    pods: dict[int, list[PodSeen]] = field(default_factory=dict)

    def jobs_of(self, _: str) -> set[int]:
        return set(self.pods)

    def pods_of_job(self, key: tuple[str, str]) -> list[PodSeen]:
        return self.pods.get(int(key[1]), [])

    def objects_of_job(self, _: tuple[str, str]) -> list[Any]:
        return []


@dataclass
class Port:
    """Answers each deletion with what is next in line, and in the end well."""

    failures: list[Exception] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def delete(self, _resource: Any, name: str, *_: Any, **__: Any) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.deleted.append(name)


def of(job: int) -> dict[str, Any]:
    return {"name": f"of-{job}", "owner": None, "labels": {STORE: "store", JOB: str(job)}}


def made(port: Port, pods: Iterable[PodSeen], *, over: Iterable[int] = ()) -> Leftovers:
    cluster: Any = Cluster({int(one.labels[JOB]): [one] for one in pods})
    known = set(over)
    return Leftovers(port, cluster, "store", known.__contains__)  # type: ignore[arg-type]


def passes(leftovers: Leftovers, *moments: float, active: Iterable[int] = ()) -> None:
    known = set(active)
    for at in moments:
        for call in leftovers.calls(known.__contains__, at):
            call()


@pytest.fixture
def port() -> Port:
    return Port()


def test_it_is_removed_when_it_is_due_and_once(port: Port) -> None:
    leftovers = made(port, [make_pod(**of(7)), make_pod(**of(8))])
    leftovers.add(7, 160.0)
    leftovers.add(8, 190.0)
    passes(leftovers, 100.0, 159.0)
    assert port.deleted == []
    passes(leftovers, 160.0, 161.0)
    assert port.deleted == ["of-7"]
    passes(leftovers, 190.0, 300.0)
    assert port.deleted == ["of-7", "of-8"]


def test_one_that_was_started_again_meanwhile_keeps_it_also_when_it_has_ended(port: Port) -> None:
    leftovers = made(port, [make_pod(**of(7))])
    leftovers.add(7, 160.0)
    passes(leftovers, 110.0, active=[7])
    passes(leftovers, 300.0)
    assert port.deleted == []


def test_a_removal_that_fails_is_tried_again(port: Port) -> None:
    port.failures = [Unavailable("the API server is away")]
    leftovers = made(port, [make_pod(**of(7))])
    leftovers.add(7, 100.0)
    passes(leftovers, 100.0, 100.0 + AGAIN_S - 1)
    assert port.deleted == []
    passes(leftovers, 100.0 + AGAIN_S)
    assert port.deleted == ["of-7"]


def test_what_a_server_before_did_not_live_to_remove_is_found_at_the_start(port: Port) -> None:
    pods = [ended(**of(7)), make_pod(**of(8)), ended(**of(9))]
    passes(made(port, pods, over=[7, 8]), 100.0)
    assert port.deleted == ["of-7"]
