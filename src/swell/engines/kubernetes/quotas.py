"""What does a quota of a namespace leave, and is a refusal of it final?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from swell.engines.kubernetes.port import Port, Selection
from swell.engines.kubernetes.quantities import quantity
from swell.engines.kubernetes.resources import QUOTAS
from swell.engines.kubernetes.unreadable import readable
from swell.model.kubernetes_quantity import GPU

Document = dict[str, Any]
GPUS = f"requests.{GPU}"  # how a quota counts them; it knows no limits of extended resources
#: The API server's own words: what was too much of what is asked for, used and limited.
EXCEEDED = re.compile(r"exceeded quota: [^,]+, requested: (\S+), used: \S+, limited: (\S+)")


def is_full_now(refusal: str) -> bool:
    """Would it be let in, were nobody else there? Then it waits as others do; otherwise waiting does not help."""
    found = EXCEEDED.search(refusal)
    if found is None:
        return False
    requested, limited = (_amounts(text) for text in found.groups())
    return all(quantity(amount) <= quantity(limited.get(name, "0")) for name, amount in requested.items())


def is_too_small(refusal: str) -> bool:
    return EXCEEDED.search(refusal) is not None and not is_full_now(refusal)


def _amounts(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def read_gpu_quota(port: Port, namespace: str) -> tuple[str, str] | None:
    """How many GPUs a namespace may use, and does; None: no quota counts them."""
    return tightest(port.list(Selection(QUOTAS, namespace)).items)


def tightest(quotas: Iterable[Document]) -> tuple[str, str] | None:
    """All of them hold, so it is the one that leaves least. One that nobody has counted yet allows nothing."""
    pairs = [pair for pair in readable(quotas, _gpus_of) if pair is not None]
    return min(pairs, key=lambda pair: quantity(pair[0]) - quantity(pair[1]), default=None)


def _gpus_of(quota: Document) -> tuple[str, str] | None:
    """How many it allows, and how many are used; None: it does not count them."""
    if GPUS not in ((quota.get("spec") or {}).get("hard") or {}):
        return None
    status = quota.get("status") or {}
    return str((status.get("hard") or {}).get(GPUS, "0")), str((status.get("used") or {}).get(GPUS, "0"))
