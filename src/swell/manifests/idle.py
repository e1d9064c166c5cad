"""When do a job's GPUs count as idle?

Two spellings: our own, and that of dstack, whose users have it in their files already.
"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import quantity, refuse_unknown, take_mapping, whole_number
from swell.model.job import IdlePolicy
from swell.model.quantity import parse_seconds
from swell.model.resources import Resources

FIELDS = ("utilizationPolicy", "utilization_policy")
THRESHOLD = ("minGpuUtilization", "min_gpu_utilization")
WINDOW = ("window", "time_window")
WINDOW_S_MIN = 10.0  # a few samples; less would end jobs between two batches


def read_idle(spec: dict[str, Any], resources: Resources) -> IdlePolicy | None:
    where, policy = _one_of(spec, FIELDS, "spec")
    if policy is None:
        return None
    fields = take_mapping(policy, where)
    refuse_unknown(fields, (*THRESHOLD, *WINDOW), where)
    (_, threshold), (name, window) = _one_of(fields, THRESHOLD, where), _one_of(fields, WINDOW, where)
    if threshold is None or window is None:
        missing = THRESHOLD[0] if threshold is None else WINDOW[0]
        raise Rejected(f"{where} says nothing of {missing}; give both, as in {{minGpuUtilization: 10, window: 30m}}")
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
