"""How many tasks has a job at a width, and what does each of them take?

A width counts GPUs of each task that has any, or tasks of the first role (`Dimension`). An array's width is how many of
its tasks run at once, whatever each takes.
"""

from __future__ import annotations

from swell.model.job import Dimension, JobSpec
from swell.model.resources import Resources

Groups = tuple[tuple[Resources, int], ...]  # of equal tasks: what one takes, and how many they are; in rank order


def groups_at(groups: Groups, dimension: Dimension, width: int, *, is_array: bool) -> Groups:
    """The tasks at a width, by what they are at the least one."""
    if dimension is Dimension.GPUS and not is_array:
        return tuple((resources.with_gpus(width), count) for resources, count in groups)
    (resources, _), *others = groups
    return ((resources, width), *others)


def tasks_at(spec: JobSpec, width: int) -> Groups:
    """One group of equal tasks for each role."""
    least = tuple((role.resources, role.count) for role in spec.roles)
    return groups_at(least, spec.dimension, width, is_array=spec.array is not None)


def gpus_at(spec: JobSpec, width: int) -> int:
    """GPUs of all tasks together."""
    return sum(resources.gpus * count for resources, count in tasks_at(spec, width))


def step_of(groups: Groups, dimension: Dimension) -> Resources:
    """What one more of width takes; of GPUs their tasks' CPUs and memory stay as they are."""
    if dimension is Dimension.TASKS:
        return groups[0][0]
    return Resources(gpus=sum(count for resources, count in groups if resources.gpus))
