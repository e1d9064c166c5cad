"""What does a pod of a manifest ask for, and can that be planned for?

How it adds up is Kubernetes' own rule (`model/kubernetes_quantity.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected
from swell.manifests.container import Span, read_container_name
from swell.manifests.fields import quantity, shorten, take_list, take_mapping, take_optional
from swell.manifests.notation import (
    parse_amount,
    parse_kubernetes_cpus,
    parse_kubernetes_gpus,
    parse_kubernetes_memory,
)
from swell.model.kubernetes_quantity import GPU, Amounts, InitContainer, PodAmounts, cpus_milli, memory_mib, whole

SIDES = ("requests", "limits")
CLAIMS = (
    "asks for devices by claim, which only Kubernetes' own scheduler hands out, and Swell places this pod; "
    f"ask for {GPU}"
)
CHECKS = {"cpu": parse_kubernetes_cpus, "memory": parse_kubernetes_memory, GPU: parse_kubernetes_gpus}


@dataclass(frozen=True, slots=True)
class ContainerDemand:
    """One container's wishes."""

    where: str
    name: str
    low: Amounts  #: requests, and limits where there is none
    high: Amounts  #: limits, and requests where there is none
    is_sidecar: bool = False

    @property
    def gpus(self) -> Span:
        return whole(self.low.get(GPU, 0)), whole(self.high.get(GPU, 0))


@dataclass(frozen=True, slots=True)
class Demand:
    cpus_milli: int
    memory_mib: int
    gpus: Span | None  #: least and most; None: it says nothing of GPUs
    holders: tuple[str, ...]  #: containers that have the GPUs; where none has, all that could
    uncounted: tuple[str, ...]  #: kinds of resources that Swell knows nothing of, in order


def read_demand(spec: dict[str, Any], where: str) -> Demand:
    containers = _containers(spec, where, "containers")
    steps = _containers(spec, where, "initContainers")
    _refuse_unclear_range(containers, steps)
    overhead = dict(_side(spec.get("overhead"), f"{where}.overhead"))
    requests, limits = _of_the_pod(spec, where)
    low, high = (
        PodAmounts(
            tuple(getattr(one, side) for one in containers),
            tuple(InitContainer(getattr(one, side), one.is_sidecar) for one in steps),
            requests,
            limits,
            overhead,
        ).total()
        for side in ("low", "high")
    )
    asking = tuple(one.name for one in containers if one.gpus[1])
    return Demand(
        cpus_milli=cpus_milli(low.get("cpu", 0)),
        memory_mib=memory_mib(low.get("memory", 0)),
        gpus=(whole(low[GPU]), whole(high[GPU])) if GPU in low else None,
        holders=asking or tuple(one.name for one in containers),
        uncounted=tuple(sorted(name for name in low if name not in CHECKS and low[name])),
    )


def _containers(spec: dict[str, Any], where: str, field: str) -> list[ContainerDemand]:
    entries = take_list(spec.get(field), f"{where}.{field}")
    return [_container(entry, f"{where}.{field}[{number}]", number) for number, entry in enumerate(entries)]


def _container(value: object, where: str, number: int) -> ContainerDemand:
    given = take_mapping(value, where)
    low, high = _amounts(given.get("resources"), f"{where}.resources")
    name = read_container_name(given.get("name"), where, number)
    return ContainerDemand(where, name, low, high, given.get("restartPolicy") == "Always")


def _amounts(value: object, where: str) -> tuple[Amounts, Amounts]:
    given = take_optional(value, where)
    if given.get("claims"):
        raise Rejected(f"{where}.claims {CLAIMS}")
    requests, limits = (dict(_side(given.get(side), f"{where}.{side}")) for side in SIDES)
    low, high = {**limits, **requests}, {**requests, **limits}
    for name in low:
        if high[name] < low[name]:
            asked = f"requests {given['requests'][name]} is above limits {given['limits'][name]}"
            raise Rejected(f"{where}: {shorten(name)}: {asked}; the request is the least")
    if low.get(GPU) == 0 and high[GPU]:
        raise Rejected(
            f"{where}: {GPU} from 0 to {whole(high[GPU])}: a range must start at 1 or more; write 1 under requests"
        )
    return low, high


def _side(value: object, where: str) -> Iterator[tuple[str, int]]:
    for name, amount in take_optional(value, where).items():
        if amount is not None:
            here = f"{where}: {shorten(name)}"
            if name in CHECKS:
                quantity(CHECKS[name], amount, here)
            yield name, quantity(parse_amount, amount, here)


def _refuse_unclear_range(containers: list[ContainerDemand], steps: list[ContainerDemand]) -> None:
    """A width is written into one container, so a range must leave no doubt into which."""
    for one in steps:
        if one.gpus[0] < one.gpus[1]:
            raise Rejected(
                f"{one.where} asks for {one.gpus[0]}..{one.gpus[1]} GPUs: what runs before or beside a job has no "
                "width; give it one number"
            )
    holders = [one for one in (*containers, *(step for step in steps if step.is_sidecar)) if one.gpus[1]]
    ranged = next((one for one in holders if one.gpus[0] < one.gpus[1]), None)
    if ranged is not None and len(holders) > 1:
        other = next(one for one in holders if one is not ranged)
        raise Rejected(
            f"{ranged.where} asks for {ranged.gpus[0]}..{ranged.gpus[1]} GPUs and {other.where} for GPUs too; only one "
            "container of a pod may have GPUs when one of them has a range"
        )


def _of_the_pod(spec: dict[str, Any], where: str) -> tuple[Amounts, Amounts]:
    """Requests and limits of the pod as a whole."""
    given = take_optional(spec.get("resources"), f"{where}.resources")
    requests, limits = (dict(_side(given.get(side), f"{where}.resources.{side}")) for side in SIDES)
    return requests, limits
