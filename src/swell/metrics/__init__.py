"""How is it doing, in numbers? For Prometheus: docs/metrics.md has every name.

Public: `Metrics`, what is counted as it happens; `Present`, what is read when somebody asks; `Heard`, the engine that
is asked. Names are `swell_<noun>_<unit>[_total]` in base units; no label has more values than there are machines,
routes or users, so no job's name ever is one. Nothing here changes anything, and only the API and the server know it.
"""

from swell.metrics.instruments import Metrics
from swell.metrics.present import Heard, Present

__all__ = ["Heard", "Metrics", "Present"]
