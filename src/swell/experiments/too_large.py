"""Would every gang of an experiment fit into the empty cluster?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swell.errors import Rejected
from swell.experiments.experiment import Experiment
from swell.experiments.measure import GangAsked
from swell.experiments.workloads import draw_gangs
from swell.model.quantity import number_of
from swell.model.resources import Resources


def refuse_too_large(experiment: Experiment, rooms: Sequence[Resources]) -> None:
    """`rooms`: what each node has while no gang runs. A gang that never fits would wait in every run."""
    for repeat in range(1, experiment.repeats + 1):
        problem = too_large(draw_gangs(experiment.workload, experiment.seed, repeat), rooms)
        if problem:
            raise Rejected(f"{problem}; use larger nodes or more, or smaller gangs")


def too_large(gangs: Iterable[GangAsked], rooms: Sequence[Resources]) -> str:
    """Why a gang cannot run here, were the cluster empty; in the words of a message. Empty: all can."""
    for gang in gangs:
        rank = Resources(gang.cpus_milli, gang.memory_mib, gang.gpus)
        seats = sum(_seats(rank, room) for room in rooms)
        if seats < gang.size:
            each = (
                f"{number_of(rank.cpus_milli / 1000, 'CPU')}, {rank.memory_mib} MiB and {number_of(rank.gpus, 'GPU')}"
            )
            ranks = f"{gang.name} has {number_of(gang.size, 'rank')} of {each} each"
            return f"{ranks}, but all empty nodes together hold {seats}"
    return ""


def _seats(rank: Resources, room: Resources) -> int:
    parts = [
        (room.cpus_milli, rank.cpus_milli),
        (room.memory_mib, rank.memory_mib),
        (room.gpus, rank.gpus),
    ]
    return min(has // wants for has, wants in parts if wants) if any(wants for _, wants in parts) else 10**9
