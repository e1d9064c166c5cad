"""What has a writer made, and what could its target not express?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from swell.model.job import Dimension, JobSpec


@dataclass(frozen=True, slots=True)
class Rendering:
    text: str
    losses: tuple[str, ...] = ()  #: in words; none: the text says all that the job says


def as_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120))


def lost(asked: Mapping[str, object], target: str) -> tuple[str, ...]:
    """A sentence for each field that has a value."""
    return tuple(f"{field} cannot be said in {target}" for field, value in asked.items() if value)


def width_text(spec: JobSpec) -> str:
    low, high = spec.width_min, spec.width_max
    unit = "GPUs" if spec.dimension is Dimension.GPUS else "tasks"
    return f"{low} {unit}" if low == high else f"{low}..{high} {unit}"


def is_elastic(spec: JobSpec) -> bool:
    """Arrays have a width, too, which their limit of tasks at once is."""
    return spec.array is None and spec.width_min < spec.width_max
