"""Which part of the work is each task's, by the types of a multi-job manifest?

The in-job library divides n items by this (`swell_sdk.shard`): types in the order of the manifest, a task of each with
the weight of its CPUs, and within a Job its completions alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHARDS = "SWELL_SHARDS"  # the variable that tells it


@dataclass(frozen=True, slots=True)
class Shards:
    """The Jobs of one type."""

    name: str
    jobs: int
    pods: int  #: of each Job
    weight: int  #: of each Job, against those of other types


def render_shards(types: Sequence[Shards]) -> str:
    """`worker-heavy:1x1:60000,worker:7x1:20000`."""
    return ",".join(f"{one.name}:{one.jobs}x{one.pods}:{one.weight}" for one in types)
