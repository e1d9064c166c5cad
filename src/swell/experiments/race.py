"""In which order are contenders measured, and what happens when one of them fails or somebody interrupts?

Every repeat has every contender once, alone, with the same gangs, in an order of its own that the seed draws. A run
that is in the folder is not measured again. What a contender cannot do ends its run and is recorded; the next one
goes on. A run is recorded before the cluster is cleaned up, and on a cluster that is not clean no other one begins.
"""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import swell
from swell.errors import Unavailable
from swell.experiments.events import RunEvent
from swell.experiments.experiment import ContenderWanted, Experiment
from swell.experiments.figures import Capacity, RunEnd, RunFacts
from swell.experiments.measure import GangAsked
from swell.experiments.results import ResultsFolder
from swell.experiments.workloads import draw_gangs


class ClusterUnderTest(Protocol):
    """Where contenders are measured."""

    capacity: Capacity

    def check(self, experiment: Experiment) -> None:
        """Refuse what cannot be measured here, before anything is touched."""

    def describe(self) -> dict[str, Any]:
        """What is kept of it: name of a file → document."""

    def versions(self) -> dict[str, str]:
        """Of its parts, and of the contenders as they are there."""

    def close(self) -> None:
        """Nothing more is measured."""

    def run(
        self,
        contender: ContenderWanted,
        gangs: Sequence[GangAsked],
        repeat: int,
        experiment: Experiment,
        progress: Callable[[int, int], None],
    ) -> tuple[RunFacts, tuple[RunEvent, ...]]:
        """One contender, alone, on a clean cluster. Raises `Unavailable` where it broke."""

    def contender_files(self) -> Mapping[str, bytes]:
        """Configuration and log of whom was measured last, by name of the file; empty: it is none of ours."""

    def clean_up(self) -> None:
        """Stop whom was measured last, and remove what it left. Raises `Conflict` where the cluster is not clean."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One run that is to be measured."""

    number: int  #: of all, counted from 1
    of: int
    contender: ContenderWanted
    repeat: int
    is_done: bool


RaceProgress = Callable[[Lap, int, int], None]  #: gangs that have ended, all gangs


def laps(experiment: Experiment, folder: ResultsFolder) -> Iterator[Lap]:
    """In the order in which they are measured: the same for the same seed, also after an interruption."""
    chance = random.Random(f"{experiment.seed}/order")  # noqa: S311  an order, no secret
    total, number = experiment.repeats * len(experiment.contenders), 0
    for repeat in range(1, experiment.repeats + 1):
        order = list(experiment.contenders)
        chance.shuffle(order)
        for contender in order:
            number += 1
            yield Lap(number, total, contender, repeat, folder.has(contender.name, repeat))


def race(
    experiment: Experiment, cluster: ClusterUnderTest, folder: ResultsFolder, progress: RaceProgress
) -> tuple[RunFacts, ...]:
    """Measures what is missing; the facts of what was measured now."""
    with folder.locked():
        folder.describe(cluster.describe(), versions(experiment) | cluster.versions())
        found: list[RunFacts] = []
        for lap in laps(experiment, folder):
            if lap.is_done:
                continue
            try:
                facts, events = _measure(experiment, cluster, lap, progress)
                folder.save(facts, events, cluster.contender_files())
            finally:
                cluster.clean_up()
            found.append(facts)
        return tuple(found)


def _measure(
    experiment: Experiment, cluster: ClusterUnderTest, lap: Lap, progress: RaceProgress
) -> tuple[RunFacts, tuple[RunEvent, ...]]:
    gangs = draw_gangs(experiment.workload, experiment.seed, lap.repeat)
    progress(lap, 0, len(gangs))
    try:
        return cluster.run(lap.contender, gangs, lap.repeat, experiment, lambda *done: progress(lap, *done))
    except Unavailable as error:
        facts = RunFacts(lap.contender.name, lap.repeat, RunEnd.BROKEN, 0.0, gangs, cluster.capacity, str(error))
        return facts, ()


def versions(experiment: Experiment) -> dict[str, Any]:
    return {
        "swell": swell.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "seed": experiment.seed,
        "contenders": [one.name for one in experiment.contenders],
    }
