"""How many tasks a job has at a width, and what each takes: the one rule that planner, engines and doors follow."""

from __future__ import annotations

import pytest

from specs import spec
from swell.model.job import Array, Dimension, JobSpec, Role
from swell.model.quantity import IndexSet
from swell.model.resources import Resources
from swell.model.width import Groups, gpus_at, step_of, tasks_at

GPU, SMALL, SHARE = Resources(1000, 512, 1), Resources(500), Resources(100, 0, 0, 256)


def job(dimension: Dimension, *roles: tuple[Resources, int], array: Array | None = None) -> JobSpec:
    made = tuple(Role(f"role{number}", ("true",), resources, count) for number, (resources, count) in enumerate(roles))
    return spec(roles=made, dimension=dimension, width_min=1, width_max=4, array=array)


ARRAY = Array(IndexSet.parse("0-9"), 4)
WIDER = Resources(1000, 512, 3)


@pytest.mark.parametrize(
    ("asked", "groups", "gpus"),
    [
        (job(Dimension.TASKS, (GPU, 1)), ((GPU, 3),), 3),
        (job(Dimension.TASKS, (GPU, 1), (SMALL, 2)), ((GPU, 3), (SMALL, 2)), 3),
        (job(Dimension.TASKS, (SMALL, 1), (GPU, 2)), ((SMALL, 3), (GPU, 2)), 2),
        (job(Dimension.GPUS, (GPU, 1)), ((WIDER, 1),), 3),
        (job(Dimension.GPUS, (SMALL, 1), (GPU, 2)), ((SMALL, 1), (WIDER, 2)), 6),
        (job(Dimension.TASKS, (SHARE, 1)), ((SHARE, 3),), 0),
        (job(Dimension.TASKS, (GPU, 1), array=ARRAY), ((GPU, 3),), 3),
    ],
)
def test_tasks_and_gpus_at_a_width(asked: JobSpec, groups: Groups, gpus: int) -> None:
    assert (tasks_at(asked, 3), gpus_at(asked, 3)) == (groups, gpus)


@pytest.mark.parametrize("dimension", list(Dimension))
def test_a_step_is_what_one_more_of_width_takes(dimension: Dimension) -> None:
    asked = job(dimension, (GPU, 2), (SMALL, 1))
    groups = tasks_at(asked, 2)
    assert gpus_at(asked, 3) - gpus_at(asked, 2) == step_of(groups, dimension).gpus
