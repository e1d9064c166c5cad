"""How much does a pod ask for, as the cluster counts it?

Kubernetes' own rule: the sum over its containers, or what an init container needs while it runs alone, whichever is
more; init containers that stay (sidecars) count from their start on; what the runtime itself takes comes on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from swell.model.resources import NOTHING, Resources

GPU = "nvidia.com/gpu"
MIB = 1024**2
QUANTITY = re.compile(r"([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")
UNITS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=4096)  # pods are many, and ask for the same few amounts
def quantity(text: str | int) -> Decimal:
    """As the API server has accepted it; what is no quantity counts as nothing."""
    match = QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return Decimal(0)
    number, unit = Decimal(match[1]), match[2] or ""
    return number * (Decimal(f"1{unit}") if unit[:1] in "eE" and len(unit) > 1 else UNITS.get(unit, Decimal(1)))


def resources(amounts: dict[str, Any], *, is_demand: bool) -> Resources:
    """What is asked for is rounded up, what is there is rounded down."""
    cpus, memory, gpus = (quantity(amounts.get(name, 0)) for name in ("cpu", "memory", GPU))
    return Resources(_whole(cpus * 1000, up=is_demand), _whole(memory / MIB, up=is_demand), int(gpus))


def _whole(number: Decimal, *, up: bool) -> int:
    below = int(number)
    return below + 1 if up and number > below else below


def pod_resources(spec: dict[str, Any]) -> Resources:
    """What the node must have left for it."""
    running = _sum(_container(one) for one in spec.get("containers") or ())
    staying, most = NOTHING, NOTHING
    for one in spec.get("initContainers") or ():
        needed = _container(one)
        if one.get("restartPolicy") == "Always":
            staying += needed
            most = _most(most, staying)
        else:
            most = _most(most, staying + needed)
    total = _most(running + staying, most)
    whole = spec.get("resources") or {}  # of the pod as a whole, since Kubernetes 1.34
    if whole:
        said = resources({**(whole.get("limits") or {}), **(whole.get("requests") or {})}, is_demand=True)
        total = Resources(said.cpus_milli or total.cpus_milli, said.memory_mib or total.memory_mib, total.gpus)
    return total + resources(spec.get("overhead") or {}, is_demand=True)


def _container(container: dict[str, Any]) -> Resources:
    asked = container.get("resources") or {}
    return resources({**(asked.get("limits") or {}), **(asked.get("requests") or {})}, is_demand=True)


def _sum(all_of_them: Iterable[Resources]) -> Resources:
    total = NOTHING
    for one in all_of_them:
        total += one
    return total


def _most(one: Resources, other: Resources) -> Resources:
    return Resources(
        max(one.cpus_milli, other.cpus_milli), max(one.memory_mib, other.memory_mib), max(one.gpus, other.gpus)
    )
