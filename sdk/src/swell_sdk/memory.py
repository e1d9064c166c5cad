"""How much GPU memory has this process used at most?

Asked of the framework that the script has loaded anyway; nothing is imported or initialised for it.
"""

from __future__ import annotations

import sys
from typing import Optional

MIB = 1024 * 1024


def peak_mib() -> Optional[float]:
    """Over all GPUs together; None: no framework that can tell has touched a GPU. Never raises."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.max_memory_reserved(device) for device in devices)) / MIB
    except Exception:  # noqa: BLE001  whatever a framework does, training goes on
        return None
