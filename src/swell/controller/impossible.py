"""Which of the jobs that somebody submits could never run here?"""

from __future__ import annotations

from collections.abc import Sequence

from swell.controller.world import shape_of
from swell.model.cluster import Node
from swell.model.job import JobSpec
from swell.model.plan import Shape
from swell.planner.alone import never_runs
from swell.planner.unsuitable import Misfit


def find_impossible(
    nodes: tuple[Node, ...], specs: Sequence[JobSpec], *, user: str, gpus_max: int | None
) -> list[Misfit | None]:
    """For each of them why not; None: it could. Jobs of one shape are looked at once."""
    known: dict[tuple[Shape, str], Misfit | None] = {}
    found: list[Misfit | None] = []
    for spec in specs:
        key = shape_of(spec), spec.kind
        if key not in known:
            known[key] = never_runs(nodes, key[0], user=user, gpus_max=gpus_max, kind=spec.kind)
        found.append(known[key])
    return found
