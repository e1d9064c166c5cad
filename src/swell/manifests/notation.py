"""What does Kubernetes mean by '500m', '1.5', '2Gi', '512M' or '1e3'?

Unlike our own notation a number without a unit is a plain number: memory of 8 is eight bytes.
"""

from __future__ import annotations

import re
from decimal import Decimal

from swell.manifests.fields import shorten
from swell.model.quantity import COUNT_MAX, MEMORY_MIB_MAX, BadQuantity

DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
#: Digits are bounded: '1e999999999' is twelve characters of text and a gigabyte as a number.
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}))"
    rf"(?:[eE]([+-]?[0-9]{{1,2}})|({'|'.join((*BINARY, *DECIMAL))}))?"
)
BYTES_PER_MIB = 1024 * 1024


def parse_kubernetes_cpus(text: object) -> int:
    """Thousandths, rounded up as Kubernetes does."""
    milli = parse_number(text) * 1000
    if milli > COUNT_MAX * 1000:
        raise BadQuantity(f"{_shown(text)} is more CPUs than any machine has; write 2, 0.5 or 500m")
    return round_up(milli)


def parse_kubernetes_memory(text: object) -> int:
    """MiB, rounded up."""
    number = parse_number(text)
    if 0 < number < 1:
        raise BadQuantity(f"{_shown(text)} is less than a byte: m means thousandths; write 512Mi or 2Gi")
    if number > MEMORY_MIB_MAX * BYTES_PER_MIB:
        raise BadQuantity(f"{_shown(text)} is more memory than any machine has; write 512Mi or 2Gi")
    return round_up(number / BYTES_PER_MIB)


def parse_kubernetes_gpus(text: object) -> int:
    number = parse_number(text)
    if number > COUNT_MAX:
        raise BadQuantity(f"{_shown(text)} is more GPUs than any job may have ({COUNT_MAX})")
    if number != number.to_integral_value():
        raise BadQuantity(f"{_shown(text)} is a part of a GPU; they are given whole: write 1")
    return int(number)


def parse_number(text: object) -> Decimal:
    match = QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise BadQuantity(f"{_shown(text)} is not a quantity; Kubernetes writes 500m, 1.5, 2Gi, 512M or 1e3")
    number, exponent, unit = Decimal(match[1]), match[2], match[3]
    if number < 0:
        raise BadQuantity(f"{_shown(text)} is below zero; nothing can be asked for less than 0")
    if unit in BINARY:
        return number * Decimal(2) ** BINARY[unit]
    return number.scaleb(int(exponent) if exponent else DECIMAL[unit] if unit else 0)


def round_up(number: Decimal) -> int:
    return int(number.to_integral_value(rounding="ROUND_CEILING"))


def _shown(text: object) -> str:
    return repr(shorten(str(text).strip()))
