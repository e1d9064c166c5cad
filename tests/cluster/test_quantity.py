"""Quantities and pods are counted as Kubernetes' own code counts them."""

from __future__ import annotations

import json
import random
import re
import subprocess
from typing import Any

import pytest

from swell.engines.kubernetes.objects.amounts import pod_resources
from swell.model.kubernetes_quantity import GPU, cpus_milli, parse_quantity, whole
from swell.model.quantity import BadQuantity

from .binaries import program

pytestmark = [pytest.mark.cluster]

MIB = 1024**2
UNITS = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
#: Go's `Value` and `MilliValue` are integers of 64 bits and wrap above that, where no machine is.
SENSIBLE = 2**53


def ask(questions: list[Any]) -> list[dict[str, Any]]:
    lines = "\n".join(json.dumps(one) for one in questions)
    done = subprocess.run([program("quantity")], input=lines, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def a_text(chance: random.Random) -> str:
    """Mostly a quantity."""
    if chance.random() < 0.2:
        return "".join(chance.choices("0123456789.eEinumkKMGTP+- ", k=chance.randrange(1, 8)))
    number = "".join(chance.choices("0123456789", k=chance.randrange(1, 12)))
    if chance.random() < 0.5:
        number += "." + "".join(chance.choices("0123456789", k=chance.randrange(0, 14)))
    exponent = chance.choice("eE") + chance.choice(("", "+", "-")) + str(chance.randrange(0, 12))
    return chance.choice(("", "", "+", "-")) + number + (exponent if chance.random() < 0.3 else chance.choice(UNITS))


def read(text: str) -> int | None:
    try:
        return parse_quantity(text)
    except BadQuantity:
        return None


def is_sensible(nanos: int) -> bool:
    return abs(nanos) < SENSIBLE * 10**9


def is_read_alike(text: str, answer: dict[str, Any]) -> bool:
    ours, theirs = read(text), answer.get("nanos")
    if ours is None:
        return not theirs  # without a digit it is nothing to them, and a slip to us
    if theirs is None or not is_sensible(theirs):
        return theirs is not None and not is_sensible(ours)
    rounded = ours < 0 or (cpus_milli(ours), whole(ours)) == (answer["milli"], answer["value"])
    return ours == theirs and rounded


def test_every_text_is_read_as_kubernetes_reads_it() -> None:
    """But for exponents of three digits and more, of which Go makes numbers that Python does not read back."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    drawn = (a_text(chance) for _ in range(20_000))
    texts = [text for text in drawn if not re.search("[eE][+-]?[0-9]{3}", text)]
    asked = zip(texts, ask(texts), strict=True)
    assert [(text, read(text), answer) for text, answer in asked if not is_read_alike(text, answer)] == []


def a_container(chance: random.Random) -> dict[str, Any]:
    kinds = {
        "cpu": ("0", "1n", "250m", "0.5", "1", "1.0005", "2e0"),
        "memory": ("1", "1500Ki", "1M", "999999999", "1.5Mi", "0.1Gi", "128974848000m"),
        GPU: ("1", "2", "3e0"),
    }
    asked = {name: chance.choice(values) for name, values in kinds.items() if chance.random() < 0.6}
    return {"name": "one", "resources": {chance.choice(("requests", "limits")): asked}}


def a_pod(chance: random.Random) -> dict[str, Any]:
    pod: dict[str, Any] = {"containers": [a_container(chance) for _ in range(chance.randrange(1, 4))]}
    before = [a_container(chance) for _ in range(chance.randrange(0, 4))]
    sidecar = {"restartPolicy": "Always"}
    pod["initContainers"] = [{**one, **(sidecar if chance.random() < 0.4 else {})} for one in before]
    if chance.random() < 0.3:
        pod["resources"] = {"requests": {"cpu": "3", "memory": "5000Ki"}}
    if chance.random() < 0.3:
        pod["overhead"] = {"cpu": "100m", "memory": "1500Ki"}
    return pod


def test_every_pod_takes_what_the_scheduler_of_kubernetes_counts_for_it() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    pods = [a_pod(chance) for _ in range(3_000)]
    for pod, answer in zip(pods, ask(pods), strict=True):
        found, theirs = pod_resources(pod), answer.get("totals") or {}
        expected = (theirs.get("cpu", 0), -(-theirs.get("memory", 0) // MIB), theirs.get(GPU, 0))
        assert (found.cpus_milli, found.memory_mib, found.gpus) == expected, pod
