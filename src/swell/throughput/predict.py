"""How long does an epoch take at this width?

Measured widths answer for themselves. Between two of them the time follows the straight line through both on
logarithmic scales, so a job that slows down between 2 and 4 is expected to slow down at 3. Below the narrowest the
work is taken to be shared out evenly; above the widest nearly so (exponent 0.95), unless the widest was no faster
than a narrower one: then the job has stopped scaling, and more is expected to bring nothing. Extrapolating the slope of
the last two measurements is worse than that and unstable: small errors of measurement decide the sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

GROWTH_EXPONENT = 0.95  # of the speed-up into widths never tried
EPOCH_S_MIN = 0.001  # what a job reports as no time at all is a little: times are divided by

Measured = Sequence[tuple[int, float]]  #: width → seconds, ascending by width, at least one


def predict(measured: Measured, width: int) -> float:
    """Seconds for one epoch; never none."""
    measured = [(known, max(EPOCH_S_MIN, seconds)) for known, seconds in measured]
    narrowest, widest = measured[0], measured[-1]
    if width <= narrowest[0]:
        return narrowest[1] * narrowest[0] / width
    if width >= widest[0]:
        return widest[1] * math.pow(widest[0] / width, _exponent_above(measured))
    return _between(measured, width)


def _exponent_above(measured: Measured) -> float:
    fastest_narrower = min((seconds for _, seconds in measured[:-1]), default=math.inf)
    return GROWTH_EXPONENT if measured[-1][1] < fastest_narrower else 0.0


def _between(measured: Measured, width: int) -> float:
    right = next(n for n, (known, _) in enumerate(measured) if known >= width)
    (low, low_s), (high, high_s) = measured[right - 1], measured[right]
    share = math.log(width / low) / math.log(high / low)
    return low_s * math.pow(high_s / low_s, share)
