"""How much does Kubernetes mean by '500m', '1.5', '2Gi', '512M' or '1e3', and how much of a node does a pod take?

The one place with this arithmetic: what a manifest asks for and what pods of a cluster hold are counted alike, and as
the API server does (`resource.Quantity`). Amounts are whole numbers of billionths, the smallest part that Kubernetes
knows, so that they add up exactly; only the sum is rounded to what we plan with. What is smaller than a billionth
counts as one, what is larger than 2**63-1 counts as that.

A pod's containers run side by side and add up. Its init containers run before them, one after the other, so only the
largest counts, beside those that go on running ("sidecars", restartPolicy Always). What a pod asks for as a whole
replaces the sum; `overhead` comes on top. A request that is missing is as the limit; nothing asked for is nothing
taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from swell.model.quantity import BadQuantity, shown

GPU = "nvidia.com/gpu"
ONE = 10**9  #: an amount of 1, in billionths
MIB = 1024**2 * ONE
LARGEST = (2**63 - 1) * ONE
DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LENGTH_MAX = 100  # characters; the API server writes its own shorter
#: '1e999999999' is twelve characters of text and a gigabyte as a number; beyond this every amount that is no longer
#: than LENGTH_MAX is larger than the largest, or smaller than a billionth.
EXPONENT_MAX = 2 * LENGTH_MAX
QUANTITY = re.compile(
    r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))"
    rf"(?:[eE]([+-]?[0-9]+)|({'|'.join((*BINARY, *filter(None, DECIMAL)))}))?"
)
#: What a pod may ask for as a whole; the rest is added up from its containers.
OF_THE_POD = ("cpu", "memory", "hugepages-")

Amounts = dict[str, int]  #: by the name of the resource, in billionths


def parse_quantity(text: object) -> int:
    """In billionths. Raises `BadQuantity` for what the API server would not read."""
    written = str(text)
    match = QUANTITY.fullmatch(written) if len(written) <= LENGTH_MAX else None
    if match is None:
        raise BadQuantity(f"{shown(text)} is not a quantity; Kubernetes writes 500m, 1.5, 2Gi, 512M or 1e3")
    sign, whole, part, only_part, exponent, unit = match.groups()
    fraction = only_part or part or ""
    digits, tens, twos = int((whole or "") + fraction), 9 - len(fraction), 0
    if unit in BINARY:
        twos = BINARY[unit]
    else:
        tens += max(-EXPONENT_MAX, min(int(exponent), EXPONENT_MAX)) if exponent else DECIMAL[unit or ""]
    size = min(_scale(digits << twos, tens), LARGEST)
    return -size if sign == "-" else size


def _scale(number: int, tens: int) -> int:
    """Times ten to that power, rounded up."""
    power: int = 10 ** abs(tens)
    return number * power if tens >= 0 else -(-number // power)


def cpus_milli(amount: int, *, up: bool = True) -> int:
    return _whole(amount, ONE // 1000, up=up)


def memory_mib(amount: int, *, up: bool = True) -> int:
    return _whole(amount, MIB, up=up)


def whole(amount: int, *, up: bool = True) -> int:
    return _whole(amount, ONE, up=up)


def _whole(amount: int, unit: int, *, up: bool) -> int:
    """What is asked for is rounded up, what is there is rounded down."""
    return -(-amount // unit) if up else amount // unit


@dataclass(frozen=True, slots=True)
class InitContainer:
    amounts: Amounts
    is_sidecar: bool  #: it goes on running beside the containers


@dataclass(frozen=True, slots=True)
class PodAmounts:
    """What one pod says, on each of the places where it may."""

    containers: tuple[Amounts, ...]
    init_containers: tuple[InitContainer, ...] = ()
    pod_requests: Amounts = field(default_factory=dict)
    pod_limits: Amounts = field(default_factory=dict)
    overhead: Amounts = field(default_factory=dict)

    def total(self) -> Amounts:
        """What its node must have left for it."""
        sidecars: Amounts = {}  #: those begun so far
        before: Amounts = {}  #: the most that is needed before the containers start
        for one in self.init_containers:
            if one.is_sidecar:
                sidecars = _sum((sidecars, one.amounts))
            before = _most(before, sidecars if one.is_sidecar else _sum((sidecars, one.amounts)))
        together = _most(_sum((sidecars, *self.containers)), before)
        return _sum((self._of_the_pod(together), self.overhead))

    def _of_the_pod(self, together: Amounts) -> Amounts:
        """Its own requests replace the sum; its own limits count for what no container asks for."""
        requests, limits = (
            {name: amount for name, amount in given.items() if name.startswith(OF_THE_POD)}
            for given in (self.pod_requests, self.pod_limits)
        )
        return {**limits, **together, **requests}


def _sum(several: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for one in several:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}
