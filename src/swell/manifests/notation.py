"""Can it be meant, what a manifest of Kubernetes asks for?

Unlike our own notation a number without a unit is a plain number: memory of 8 is eight bytes. What a quantity is, and
how it adds up, is in `model/kubernetes_quantity.py`.
"""

from __future__ import annotations

from swell.model.kubernetes_quantity import MIB, ONE, cpus_milli, memory_mib, parse_quantity
from swell.model.quantity import COUNT_MAX, MEMORY_MIB_MAX, BadQuantity, shown


def parse_kubernetes_cpus(text: object) -> int:
    """Thousandths, rounded up as Kubernetes does."""
    amount = parse_amount(text)
    if amount > COUNT_MAX * ONE:
        raise BadQuantity(f"{shown(text)} is more CPUs than any machine has; write 2, 0.5 or 500m")
    return cpus_milli(amount)


def parse_kubernetes_memory(text: object) -> int:
    """MiB, rounded up."""
    amount = parse_amount(text)
    if 0 < amount < ONE:
        raise BadQuantity(f"{shown(text)} is less than a byte: m means thousandths; write 512Mi or 2Gi")
    if amount > MEMORY_MIB_MAX * MIB:
        raise BadQuantity(f"{shown(text)} is more memory than any machine has; write 512Mi or 2Gi")
    return memory_mib(amount)


def parse_kubernetes_gpus(text: object) -> int:
    amount = parse_amount(text)
    if amount > COUNT_MAX * ONE:
        raise BadQuantity(f"{shown(text)} is more GPUs than any job may have ({COUNT_MAX})")
    if amount % ONE:
        raise BadQuantity(f"{shown(text)} is a part of a GPU; they are given whole: write 1")
    return amount // ONE


def parse_amount(text: object) -> int:
    """Of something that is asked for, in billionths."""
    amount = parse_quantity(text)
    if amount < 0:
        raise BadQuantity(f"{shown(text)} is below zero; nothing can be asked for less than 0")
    return amount
