"""How long has this machine been up, its sleep included?

What another machine waits for runs out while this one sleeps: the lease of a worker, the Lease of a server. The
ordinary monotonic clock stands still then.
"""

from __future__ import annotations

import time


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
