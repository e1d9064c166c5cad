"""How much of which GPUs does a task want, whole ones or a share of one by memory, and when do they count as idle?"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import describe, quantity, refuse_unknown, take_choice, take_mapping, whole_number
from swell.model.job import IdlePolicy, Overrun
from swell.model.quantity import parse_memory, parse_range, parse_seconds
from swell.model.resources import Resources

FIELDS = ("gpus", "gpuMemory", "exclusive", "onOverrun")
IDLE = ("utilizationPolicy", "utilization_policy")
THRESHOLD = ("minGpuUtilization", "min_gpu_utilization")
WINDOW = ("window", "time_window")
WINDOW_S_MIN = 10.0  # a few samples; less would end jobs between two batches

Range = tuple[int, int]


def read_gpus(spec: dict[str, Any], tasks: Range) -> tuple[Range, int]:
    """Whole GPUs of a task, and memory: with whole ones the least each must have, without them a share of one."""
    gpus = None if spec.get("gpus") is None else quantity(parse_range, spec["gpus"], "gpus")
    memory_mib = 0 if spec.get("gpuMemory") is None else quantity(parse_memory, spec["gpuMemory"], "gpuMemory")
    if _is_exclusive(spec):
        if gpus is not None and gpus[0] < 1:
            raise Rejected(f"exclusive with gpus {spec['gpus']}: exclusive needs at least 1 GPU")
        if gpus is None and not memory_mib:
            raise Rejected("exclusive is of GPUs, not of nodes; say which with gpus or gpuMemory, or leave it out")
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


def read_idle(spec: dict[str, Any], resources: Resources) -> IdlePolicy | None:
    where, policy = _one_of(spec, IDLE, "spec")
    if policy is None:
        return None
    fields = take_mapping(policy, where)
    refuse_unknown(fields, (*THRESHOLD, *WINDOW), where)
    (_, threshold), (name, window) = _one_of(fields, THRESHOLD, where), _one_of(fields, WINDOW, where)
    if threshold is None or window is None:
        missing = THRESHOLD[0] if threshold is None else WINDOW[0]
        raise Rejected(f"{where} needs {missing}, too; give both, as in {{minGpuUtilization: 10, window: 30m}}")
    if not resources.gpus and not resources.gpu_memory_mib:
        raise Rejected(f"{where} is about idle GPUs, but the job asks for none; ask for some, or leave it out")
    percent = whole_number(threshold, f"{where}.{THRESHOLD[0]}", low=1, high=100)
    window_s = quantity(parse_seconds, window, f"{where}.{name}")
    if window_s < WINDOW_S_MIN:
        raise Rejected(f"{where}.{name} is {window_s:g} s, too short to tell; give at least {WINDOW_S_MIN:g} s")
    return IdlePolicy(percent, window_s)


def _one_of(found: dict[str, Any], names: tuple[str, str], where: str) -> tuple[str, Any]:
    """Whichever of two spellings was used, and its value."""
    given = [name for name in names if found.get(name) is not None]
    if len(given) > 1:
        raise Rejected(f"{where} has both {names[0]} and {names[1]}, which mean the same; write one of them")
    return (given[0], found[given[0]]) if given else (names[0], None)
