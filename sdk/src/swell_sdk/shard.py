"""Which of n items are this task's?

Every item is exactly one task's, also where tasks differ in size. Types of tasks come in the order of the manifest,
a Job of each has as much as its CPUs weigh, and within a Job its completions divide that alike: with 1,000 items, one
heavy Job with 60 CPUs beside seven with 20 has the first 300.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

Weights = Union[Mapping[str, float], None]


class _Type(NamedTuple):
    name: str
    jobs: int
    pods: int
    weight: float


def shard(n: int, weights: Weights = None, environ: Optional[Mapping[str, str]] = None) -> range:
    """The items of this task, counted from 0, as a range.

    `weights`: of one Job of each type, by the type's name, instead of its CPUs. Outside Swell one task has all items.
    """
    if n < 0:
        raise ValueError(f"shard({n}): there cannot be fewer than 0 items")
    source = os.environ if environ is None else environ
    types = _parse(source.get("SWELL_SHARDS", ""))
    if not types:
        return _alike(n, *_place(source))
    return _of_types(n, _weighted(types, weights), source)


def _of_types(n: int, types: List[_Type], source: Mapping[str, str]) -> range:
    own = source.get("REPLICATED_JOB_NAME", "")
    names = [one.name for one in types]
    if own not in names:
        raise ValueError(f"shard: this task is of type {own!r}, but SWELL_SHARDS has {', '.join(names)}")
    place = names.index(own)
    before = sum(one.jobs for one in types[:place])
    weights = [one.weight for one in types for _ in range(one.jobs)]
    job = _weighed(n, weights, before + _number(source, "JOB_INDEX"))
    inner = _alike(len(job), _number(source, "JOB_COMPLETION_INDEX"), types[place].pods)
    return range(job.start + inner.start, job.start + inner.stop)


def _weighed(n: int, weights: Sequence[float], place: int) -> range:
    """Cuts are rounded, not sizes: neighbours share each cut, so no item is lost and none is there twice."""
    if not 0 <= place < len(weights):
        raise ValueError(f"shard: this task is number {place} of {len(weights)}")
    total = sum(weights)
    cuts = [0.0]
    for weight in weights:
        cuts.append(cuts[-1] + weight)
    low, high = (n if cut >= total else int(n * cut / total + 0.5) for cut in (cuts[place], cuts[place + 1]))
    return range(low, high)


def _alike(n: int, place: int, count: int) -> range:
    if not 0 <= place < count:
        raise ValueError(f"shard: this task is number {place} of {count}")
    return range(n * place // count, n * (place + 1) // count)


def _place(source: Mapping[str, str]) -> Tuple[int, int]:
    """Which of how many: an index of an array, a rank, or the only one."""
    count = _number(source, "SWELL_TASK_COUNT", 0) or _number(source, "WORLD_SIZE", 1)
    is_gang = _number(source, "WORLD_SIZE", 1) > 1
    return _number(source, "RANK" if is_gang else "SWELL_TASK_INDEX", 0), max(1, count)


def _weighted(types: List[_Type], weights: Weights) -> List[_Type]:
    if weights is None:
        return types
    missing = [one.name for one in types if one.name not in weights]
    if missing or any(weights[one.name] <= 0 for one in types):
        raise ValueError(f"shard: weights must be above 0 for every type: {', '.join(one.name for one in types)}")
    return [one._replace(weight=float(weights[one.name])) for one in types]


def _parse(text: str) -> List[_Type]:
    """`worker-heavy:1x1:60000,worker:7x1:20000`."""
    found: Dict[str, _Type] = {}
    for part in text.split(",") if text else ():
        try:
            name, shape, weight = part.split(":")
            jobs, pods = (int(number) for number in shape.split("x"))
            found[name] = _Type(name, jobs, pods, float(weight))
        except ValueError:
            raise ValueError(f"shard: SWELL_SHARDS cannot be read: {text!r}") from None
    return list(found.values())


def _number(source: Mapping[str, str], name: str, default: int = 0) -> int:
    try:
        return int(source[name])
    except (KeyError, ValueError):
        return default
