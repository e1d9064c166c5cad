"""A job that asks for nothing in particular, to be changed as a story needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.model.job import Dimension, JobSpec, Role
from swell.model.resources import Resources

PLAIN = JobSpec(
    name="j",
    roles=(Role("worker", ("true",), Resources(1000, 0, 0), 1),),
    dimension=Dimension.TASKS,
    width_min=1,
    width_max=1,
    array=None,
    priority=0,
    time_limit_s=None,
    grace_s=30.0,
    workdir="/",
    env=(),
    umask=0o022,
)


def spec(**changes: Any) -> JobSpec:
    return replace(PLAIN, **changes)
