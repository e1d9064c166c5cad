"""How fast would a job be at a width it has not run at? Pure: measurements in, seconds out.

Public: `predict`. What was measured always wins; nothing here assumes that more is faster. Deciding who gets what
does not belong here.
"""

from swell.throughput.predict import Measured, predict

__all__ = ["Measured", "predict"]
