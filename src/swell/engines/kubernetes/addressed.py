"""Is an object of the cluster for us?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SCHEDULER = "swell"  # what a pod names as its scheduler to be placed by us
STORE = "swell.dev/store"  # label of everything we make: whose job; ids of two servers are not the same
PARTS_MAX = 100_000  # of one document are looked at: etcd takes no object above a few megabytes


def is_for_us(document: dict[str, Any]) -> bool:
    """Whatever else is in it: does it ask for our scheduler, or did a server of ours make it?

    Of an object that makes pods, their templates say who places them, wherever its kind keeps those.
    """
    rest: list[Any] = [document]
    for _ in range(PARTS_MAX):
        if not rest:
            return False
        part = rest.pop()
        if isinstance(part, dict):
            if part.get("schedulerName") == SCHEDULER or STORE in part:
                return True
            rest += _nested(part.values())
        else:
            rest += _nested(part)
    return False


def _nested(parts: Iterable[Any]) -> list[Any]:
    return [part for part in parts if isinstance(part, dict | list)]
