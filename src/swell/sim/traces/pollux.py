"""How are the published workloads of Pollux read?

A folder has `workloads/workload-N.csv` (`name,time,application,num_replicas,batch_size`) and `step_times.txt`: for each
application and batch size a line `application batch epochs width_max rows placements points`, then as many lines of
each kind: `width local_batch accumulation_steps real_batch iterations_of_epoch_1 …`, `placement seconds` (GPUs per
node as digits) and `nodes width seconds`. Placements that were measured answer for themselves; others by their number
of nodes and GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from swell.engines.simulated.behavior import Placement
from swell.sim.traces.lines import TraceLine, parse_number, read_csv, read_lines, refuse
from swell.sim.workload import SimJob, Workload

COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
STEP_TIMES = "step_times.txt"
STEPS_PER_ITERATION = 64  # gradients of so many small batches are summed up in one, which takes up to half a minute
PAIRS_MAX, ROWS_MAX = 1000, 100_000  # far above what is published; more is no such file


@dataclass(frozen=True)
class Profile:
    """One application at one batch size."""

    epochs: int
    width_max: int
    iterations: dict[int, tuple[float, ...]]  #: by width: of each epoch
    placements: dict[str, float]  #: GPUs per node as digits → seconds for an iteration
    points: dict[tuple[int, int], float]  #: nodes, width → the same
    _known: dict[Placement, float] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def iterations_from(self) -> dict[int, tuple[float, ...]]:
        """By width: of each epoch and all after it."""
        return {width: tuple(accumulate(reversed(each)))[::-1] for width, each in self.iterations.items()}

    def epoch_s(self, placement: Placement, epoch: int) -> float:
        return self.iterations[sum(placement)][epoch] * self.iteration_s(placement)

    def steps(self, placement: Placement, epoch: int) -> int:
        return max(1, round(STEPS_PER_ITERATION * self.iterations[sum(placement)][epoch]))

    def remaining_s(self, placement: Placement, first: int, epochs: int) -> float:
        left = self.iterations_from[sum(placement)]
        return left[first] * self.iteration_s(placement) if first < len(left) else 0.0

    def iteration_s(self, placement: Placement) -> float:
        if placement not in self._known:
            turns = (placement[n:] + placement[:n] for n in range(len(placement)))
            measured = self.placements.get("".join(map(str, min(turns))))
            slow = self.points[len(placement), sum(placement)] if measured is None else measured
            self._known[placement] = slow
        return self._known[placement]


def read(path: Path, profiles: dict[tuple[str, int], Profile]) -> Workload:
    """One workload file, with the profiles of its applications."""
    jobs = []
    for row in read_csv(path, COLUMNS):
        key = row.text("application"), row.whole("batch_size", low=1)
        if key not in profiles:
            raise row.line.refuse(f"there is no profile of {key[0]} with batch size {key[1]}")
        profile, width = profiles[key], row.whole("num_replicas", low=1)
        if width > profile.width_max:
            raise row.line.refuse(f"num_replicas is {width}, and {key[0]} runs on at most {profile.width_max}")
        jobs.append(
            SimJob(
                row.text("name"),
                row.number("time"),
                profile,
                profile.epochs,
                width,
                width_min=1,
                width_max=profile.width_max,
                whole_seconds=True,
                script=f"{key[0]}-batch{key[1]}",
            )
        )
    return Workload(path.stem, tuple(sorted(jobs, key=lambda job: job.submit_s)))


def read_profiles(path: Path) -> dict[tuple[str, int], Profile]:
    lines = iter([line for line in read_lines(path) if line.text.strip()])
    first = next(lines, None)
    if first is None:
        raise refuse(path, "the file is empty")
    found: dict[tuple[str, int], Profile] = {}
    for _ in range(_whole(first, "the number of pairs", first.text.strip(), PAIRS_MAX)):
        head = _next(lines, path)
        name, batch, *counts = _exactly(head, 7)
        epochs, width_max, rows, placements, points = (_whole(head, "a count", word, ROWS_MAX) for word in counts)
        found[name, _whole(head, "the batch size", batch, 10**9)] = Profile(
            epochs,
            width_max,
            dict(_iterations(_next(lines, path), epochs) for _ in range(rows)),
            dict(_placement(_next(lines, path)) for _ in range(placements)),
            dict(_point(_next(lines, path)) for _ in range(points)),
        )
    return found


def _iterations(line: TraceLine, epochs: int) -> tuple[int, tuple[float, ...]]:
    words = _exactly(line, 4 + epochs)
    return _whole(line, "the width", words[0], ROWS_MAX), tuple(
        parse_number(line, "a number of iterations", word) for word in words[4:]
    )


def _placement(line: TraceLine) -> tuple[str, float]:
    placement, seconds = _exactly(line, 2)
    if not placement.isdigit():
        raise line.refuse(f"{placement[:40]!r} is no placement; GPUs per node as digits are")
    return placement, parse_number(line, "seconds", seconds)


def _point(line: TraceLine) -> tuple[tuple[int, int], float]:
    nodes, width, seconds = _exactly(line, 3)
    where = _whole(line, "nodes", nodes, ROWS_MAX), _whole(line, "the width", width, ROWS_MAX)
    return where, parse_number(line, "seconds", seconds)


def _next(lines: object, path: Path) -> TraceLine:
    line = next(lines, None)  # type: ignore[call-overload]
    if line is None:
        raise refuse(path, "the file ends before the last profile does")
    return line  # type: ignore[no-any-return]


def _exactly(line: TraceLine, count: int) -> list[str]:
    words = line.words()
    if len(words) != count:
        raise line.refuse(f"it has {len(words)} words, not {count}")
    return words


def _whole(line: TraceLine, name: str, text: str, most: int) -> int:
    if not text.isdigit() or not int(text) <= most:
        raise line.refuse(f"{name} is {text[:40]!r}; it must be a whole number up to {most}")
    return int(text)
