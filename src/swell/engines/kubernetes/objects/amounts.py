"""How much do the pods of a cluster ask for, and how much do its nodes have?

The arithmetic is `model/kubernetes_quantity.py`'s; here it is read from documents that the API server has accepted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from swell.model.kubernetes_quantity import (
    GPU,
    LENGTH_MAX,
    Amounts,
    InitContainer,
    PodAmounts,
    cpus_milli,
    memory_mib,
    parse_quantity,
    whole,
)
from swell.model.quantity import BadQuantity
from swell.model.resources import Resources

COUNTED = ("cpu", "memory", GPU)


def quantity(text: str | int) -> int:
    """In billionths. What is no quantity counts as nothing: the API server accepts none."""
    written = str(text)
    return _read(written) if len(written) <= LENGTH_MAX else 0  # a cache of long texts would be megabytes


@lru_cache(maxsize=4096)  # pods are many, and ask for the same few amounts
def _read(text: str) -> int:
    try:
        return parse_quantity(text)
    except BadQuantity:
        return 0


def room(amounts: dict[str, Any]) -> Resources:
    """What a node has."""
    cpus, memory, gpus = (quantity(amounts.get(name, 0)) for name in COUNTED)
    return Resources(cpus_milli(cpus, up=False), memory_mib(memory, up=False), whole(gpus, up=False))


def pod_resources(spec: dict[str, Any]) -> Resources:
    """What the node must have left for it."""
    total = pod_amounts(spec)
    cpus, memory, gpus = (total.get(name, 0) for name in COUNTED)
    return Resources(cpus_milli(cpus), memory_mib(memory), whole(gpus))


def pod_amounts(spec: dict[str, Any]) -> Amounts:
    """What it requests, in billionths."""
    of_the_pod = spec.get("resources") or {}  # since Kubernetes 1.34
    return PodAmounts(
        tuple(_asked(one) for one in spec.get("containers") or ()),
        tuple(
            InitContainer(_asked(one), one.get("restartPolicy") == "Always") for one in spec.get("initContainers") or ()
        ),
        _amounts(of_the_pod.get("requests")),
        _amounts(of_the_pod.get("limits")),
        _amounts(spec.get("overhead")),
    ).total()


def _asked(container: dict[str, Any]) -> Amounts:
    """A request that is missing is as the limit."""
    given = container.get("resources") or {}
    return {**_amounts(given.get("limits")), **_amounts(given.get("requests"))}


def _amounts(given: dict[str, Any] | None) -> Amounts:
    return {name: quantity(given[name]) for name in COUNTED if name in given} if given else {}
