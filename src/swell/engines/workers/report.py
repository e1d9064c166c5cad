"""What does a worker say in one sync, and what is it answered?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swell.engines.workers.registry import Registration, digest_of
from swell.model.cluster import Node
from swell.model.launch import (
    Launch,
    RunSeen,
    TaskSeen,
    WorkerTerms,
    parse_node,
    parse_run,
    parse_task,
    parse_terms,
    with_terms,
)


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says in one sync."""

    node: Node
    version: int  #: of the desired set it has applied
    tasks: tuple[TaskSeen, ...]
    runs: tuple[RunSeen, ...]
    gpu_utilization: float | None = None  #: of its GPUs lately, 0 to 1; None: not measured
    terms: WorkerTerms | None = None  #: None: it is the worker of the server's own machine
    key: str = ""  #: by which a worker elsewhere is known again
    now: float | None = None  #: the worker's clock when it said so; None: it has the server's

    @property
    def registration(self) -> Registration:
        return Registration("", 0.0) if self.terms is None else Registration(digest_of(self.key), self.terms.lease_s)

    @property
    def offered(self) -> Node:
        """The machine, with what the terms make of it."""
        return self.node if self.terms is None else with_terms(self.node, self.terms)

    @classmethod
    def parse(cls, document: dict[str, Any]) -> WorkerReport:
        node = parse_node(document["node"])
        tasks = tuple(parse_task(task, node.id) for task in document["tasks"])
        runs = tuple(parse_run(run, node.id) for run in document["runs"])
        terms = parse_terms(document.get("terms"))
        now = None if terms is None else document.get("now")
        return cls(node, document["version"], tasks, runs, document.get("gpu_utilization"), terms, now=now)


@dataclass(frozen=True, slots=True)
class DesiredSet:
    """What the worker should converge to; None: what it has is still right."""

    version: int
    launches: tuple[Launch, ...] | None
