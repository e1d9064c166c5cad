"""What runs inside Swell jobs. Standard library only, Python 3.9 or newer.

Public: `attach` and the `Run` it returns, `read_environment` and the `Environment` it returns, `shard` (which items are
this task's), and the callbacks in `lightning`, `keras`, `huggingface` and `fms`, each of which needs its framework and
is imported by name. What needs another package does not belong anywhere else here.
"""

from swell_sdk.attachment import attach
from swell_sdk.environment import Environment, read_environment
from swell_sdk.run import Run
from swell_sdk.shard import shard

__all__ = ["Environment", "Run", "attach", "read_environment", "shard"]
