"""Which task of its Job is a pod that has no number?

A Job that is not Indexed makes pods that are all alike. Each is given the lowest number that no other has: one that has
failed leaves its number to the next. What we chose is written on the pod before it is bound, so it outlives us.
"""

from __future__ import annotations

from collections.abc import Iterator

from swell.engines.kubernetes.picture import PodSeen
from swell.engines.kubernetes.wanted import Memory, Wanted
from swell.model.quantity import IndexSet

Ranked = tuple[tuple[int | None, PodSeen], ...]


def number(ranked: Ranked, wanted: Wanted, memory: Memory) -> Ranked:
    """Those that have a number keep it."""
    if all(rank is not None for rank, _ in ranked):
        return ranked
    known = [(memory.ranks.get(pod.uid) if rank is None else rank, pod) for rank, pod in ranked]
    used = {rank for rank, pod in known if pod.phase != "Failed" and not pod.is_deleting}
    indices = IndexSet.parse(wanted.indices) if wanted.is_array else sorted(wanted.places)
    free = (index for index in indices if index not in used)
    return tuple((_given(pod, free, memory) if rank is None else rank, pod) for rank, pod in known)


def _given(pod: PodSeen, free: Iterator[int], memory: Memory) -> int | None:
    """None: it is over, or there are more pods than tasks."""
    if pod.has_ended or pod.is_deleting:
        return None
    chosen = next(free, None)
    if chosen is not None:
        memory.ranks[pod.uid] = chosen
    return chosen
