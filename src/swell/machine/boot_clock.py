"""How long has this machine been up, its sleep included?

What another machine waits for runs out while this one sleeps: the lease of a worker, the Lease of a server. The
ordinary monotonic clock stands still then.
"""

from __future__ import annotations

import time
from pathlib import Path


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's name for the time since this machine was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
