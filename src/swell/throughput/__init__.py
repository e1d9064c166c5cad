"""How fast would a job be at a width it has not run at? Pure: measurements in, seconds out.

Public: `predict`, and `blend` with `align` for what jobs of the same script have measured. What was measured always
wins; nothing here assumes that more is faster. Deciding who gets what does not belong here.
"""

from swell.throughput.blend import align, blend
from swell.throughput.predict import Measured, predict

__all__ = ["Measured", "align", "blend", "predict"]
