"""Which workloads are included, and which gangs does a seed draw from a workload?

`mixed` and the names that begin with lammps are those of the scheduler experiments that people know, with their sizes;
`cpus` is what they called cpu_limit. There each size is submitted `--iters` times.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from swell.errors import NotFound
from swell.experiments.experiment import ArrivalPattern, ExperimentWorkload, GangShape, ObjectForm
from swell.experiments.measure import GangAsked
from swell.manifests.fields import did_you_mean

CPU = 1000
LAMMPS_S = 60.0  # the problem 2x2x2 on these sizes takes about that, by what was published
LAMMPS_ITERATIONS = 10


@dataclass(frozen=True, slots=True)
class Included:
    workload: ExperimentWorkload
    nodes: int  #: of the simulator, or the test cluster, unless the file says another number
    cpus: int
    gpus: int
    about: str


def _lammps(name: str, about: str, *sizes: tuple[int, int], count: int = LAMMPS_ITERATIONS) -> Included:
    """Sizes with the CPUs of each rank."""
    shapes = tuple(GangShape(count, size, size, cpus * CPU, duration_s=LAMMPS_S) for size, cpus in sizes)
    return Included(ExperimentWorkload(name, shapes), nodes=8, cpus=3, gpus=0, about=about)


def _one(name: str, about: str, shape: GangShape, nodes: int, cpus: int, gpus: int = 0) -> Included:
    return Included(ExperimentWorkload(name, (shape,), form=ObjectForm.PODS), nodes, cpus, gpus, about)


INCLUDED: dict[str, Included] = {
    "clogging": Included(
        ExperimentWorkload("clogging", (GangShape(50, 2, 6),)),
        nodes=8,
        cpus=3,
        gpus=0,
        about="50 gangs of 2 to 6 ranks, all at once, on 8 nodes with 3 CPUs; a rank waits for all its siblings",
    ),
    "mixed": Included(
        ExperimentWorkload("mixed", tuple(GangShape(LAMMPS_ITERATIONS, size, size, 2 * CPU) for size in range(2, 7))),
        nodes=8,
        cpus=3,
        gpus=0,
        about="gangs of 2 to 6 ranks with 2 CPUs each; a rank waits for all its siblings",
    ),
    "lammps-kind": _lammps("lammps-kind", "LAMMPS on 1 to 3 nodes", (2, 2), (1, 2), (3, 2)),
    "lammps-two": _lammps("lammps-two", "LAMMPS on 2 nodes", (2, 2)),
    "lammps-two-three": _lammps("lammps-two-three", "LAMMPS on 2 and 3 nodes", (2, 2), (3, 2)),
    "lammps-two-three-cpu": _lammps(
        "lammps-two-three-cpu", "LAMMPS on 2 nodes with 1 CPU and on 3 with 2", (2, 1), (3, 2)
    ),
    "lammps-two-three-four": _lammps("lammps-two-three-four", "LAMMPS on 2 to 4 nodes", (2, 2), (3, 2), (4, 2)),
    "lammps-six": _lammps("lammps-six", "LAMMPS on 2 to 6 nodes", *((size, 2) for size in range(2, 7))),
    "lammps-mixed": _lammps(
        "lammps-mixed", "LAMMPS on 2 to 6 nodes, with 1 CPU on 2 nodes", (2, 1), *((size, 2) for size in range(3, 7))
    ),
    "lammps-large": Included(
        ExperimentWorkload(
            "lammps-large",
            tuple(
                GangShape(LAMMPS_ITERATIONS, size, size, 2 * CPU, duration_s=took)
                for size, took in ((4, 144.0), (8, 76.0), (16, 44.0))  # wall times that were published
            ),
        ),
        nodes=149,
        cpus=3,
        gpus=0,
        about="LAMMPS, the large problem, on 4, 8 and 16 nodes",
    ),
    "elastic-mix": Included(
        ExperimentWorkload(
            "elastic-mix",
            (
                GangShape(30, 1, 1, 100, gpus=1, duration_s=600.0),
                GangShape(20, 1, 2, 100, gpus=1, duration_s=2400.0, grows_to=8),
                GangShape(6, 4, 4, 100, gpus=1, duration_s=7200.0, grows_to=16),
            ),
            ArrivalPattern.POISSON,
            apart_s=60.0,
        ),
        nodes=4,
        cpus=64,
        gpus=4,
        about="small jobs, and training that can be resized, arriving at random over an hour; simulator only",
    ),
    "gangs-500x20": Included(
        ExperimentWorkload("gangs-500x20", (GangShape(500, 20, 20, duration_s=30.0),)),
        nodes=1000,
        cpus=64,
        gpus=8,
        about="500 gangs of 20 ranks, room for all",
    ),
    "pods-10000": _one("pods-10000", "10,000 single pods, room for all", GangShape(10_000, 1, 1), 1000, 64, 8),
    "tiny": _one(
        "tiny", "12 gangs of 2 to 4 pods, to try an experiment with", GangShape(12, 2, 4, duration_s=2.0), 4, 2
    ),
}


def included(name: str) -> ExperimentWorkload:
    return find_included(name).workload


def find_included(name: str) -> Included:
    if name not in INCLUDED:
        raise NotFound(f"there is no included workload {name!r}{did_you_mean(name, list(INCLUDED))}")
    return INCLUDED[name]


def with_count(workload: ExperimentWorkload, count: int) -> ExperimentWorkload:
    """So many gangs of every shape."""
    return replace(workload, shapes=tuple(replace(shape, count=count) for shape in workload.shapes))


def draw_gangs(workload: ExperimentWorkload, seed: int, repeat: int) -> tuple[GangAsked, ...]:
    """The same for every contender; another draw in every repeat, so that no result is that of one lucky order."""
    chance = random.Random(f"{seed}/{repeat}/{workload.name}")  # noqa: S311  a workload, no secret
    shapes = [shape for shape in workload.shapes for _ in range(shape.count)]
    if workload.shuffle:
        chance.shuffle(shapes)
    gangs: list[GangAsked] = []
    at = 0.0
    for number, shape in enumerate(shapes):
        gangs.append(_gang(f"gang-{number}", shape, at, chance))
        at += _pause(workload, chance)
    return tuple(gangs)


def _gang(name: str, shape: GangShape, at: float, chance: random.Random) -> GangAsked:
    return GangAsked(
        name,
        chance.randint(shape.size_min, shape.size_max),
        round(at, 3),
        shape.cpus_milli,
        shape.memory_mib,
        shape.gpus,
        shape.duration_s,
        shape.grows_to,
    )


def _pause(workload: ExperimentWorkload, chance: random.Random) -> float:
    if workload.arrival is ArrivalPattern.POISSON:
        return chance.expovariate(1.0 / workload.apart_s)
    return workload.apart_s
