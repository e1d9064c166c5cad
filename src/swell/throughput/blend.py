"""How fast is a job at each width, by what it measured itself and by what jobs like it did?

Jobs of one script share the shape of their curves, but not how long an epoch takes: one may have ten times the data.
So the others' curve is scaled to this job's, by the widths that both have been at. Where they have none in common, by
what the others' curve predicts at the job's own widths. What the job measured itself always wins.
"""

from __future__ import annotations

import math
from functools import lru_cache

from swell.throughput.predict import CURVES_KEPT_MAX, EPOCH_S_MIN, predict

Curve = tuple[tuple[int, int, float], ...]  #: as `Measured`


@lru_cache(maxsize=CURVES_KEPT_MAX)
def blend(own: Curve, shared: Curve) -> Curve:
    """Of the two, one may be empty; then it is the other one, and of `shared` alone only the shape is known."""
    if not own or not shared:
        return own or shared
    factor, known = align(own, shared), {(width, nodes) for width, nodes, _ in own}
    others = ((width, nodes, factor * seconds) for width, nodes, seconds in shared if (width, nodes) not in known)
    return tuple(sorted((*own, *others)))


def align(own: Curve, shared: Curve) -> float:
    """How many times as long as the others' epochs the job's own are: the geometric mean over its widths."""
    known = {(width, nodes): seconds for width, nodes, seconds in shared}
    common = [(seconds, known[width, nodes]) for width, nodes, seconds in own if (width, nodes) in known]
    pairs = common or [(seconds, predict(shared, width, nodes)) for width, nodes, seconds in own]
    return math.exp(sum(math.log(_positive(ours) / _positive(theirs)) for ours, theirs in pairs) / len(pairs))


def _positive(seconds: float) -> float:
    return max(EPOCH_S_MIN, seconds)
