"""How much of which GPUs does a task want: whole ones, or a share of one by memory?"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import describe, quantity, take_choice
from swell.model.job import Overrun
from swell.model.quantity import parse_memory, parse_range

FIELDS = ("gpus", "gpuMemory", "exclusive", "onOverrun")

Range = tuple[int, int]


def read_gpus(spec: dict[str, Any], tasks: Range) -> tuple[Range, int]:
    """Whole GPUs of a task, and memory: with whole ones the least each must have, without them a share of one."""
    gpus = None if spec.get("gpus") is None else quantity(parse_range, spec["gpus"], "gpus")
    memory_mib = 0 if spec.get("gpuMemory") is None else quantity(parse_memory, spec["gpuMemory"], "gpuMemory")
    if _is_exclusive(spec):
        if gpus is not None and gpus[0] < 1:
            raise Rejected(f"exclusive with gpus {spec['gpus']}: a job that wants GPUs for itself has at least 1")
        return gpus or (1, 1), memory_mib
    if not memory_mib:
        return gpus or (0, 0), 0
    if gpus not in (None, (1, 1)):
        raise Rejected(
            f"gpuMemory {spec['gpuMemory']} with gpus {spec['gpus']}: a share is of one GPU; leave gpus out, or add "
            "exclusive for whole GPUs that each have at least that much"
        )
    if tasks[0] != tasks[1]:
        raise Rejected(
            f"gpuMemory {spec['gpuMemory']} with tasks {spec['tasks']}: a job that shares GPUs has a fixed number of "
            "tasks; give one number"
        )
    return (0, 0), memory_mib


def read_overrun(spec: dict[str, Any], *, is_share: bool) -> Overrun:
    if spec.get("onOverrun") is None:
        return Overrun.WARN
    if not is_share:
        raise Rejected("onOverrun is for jobs that share a GPU; give gpuMemory, or leave onOverrun out")
    return Overrun(take_choice(spec["onOverrun"], tuple(Overrun), "onOverrun"))


def _is_exclusive(spec: dict[str, Any]) -> bool:
    value = spec.get("exclusive")
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Rejected(f"exclusive must be true or false, but is {describe(value)}")
