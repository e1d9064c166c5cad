"""Which pictures does a report have? Boxes of times, completion, utilisation, clogging, and the nodes by gang."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.experiments.canvas import TOP, Canvas, Point, color_of
from swell.experiments.conclude import ContenderRuns
from swell.experiments.events import RunEvent
from swell.experiments.figures import MeasuredRun
from swell.experiments.measure import GangOutcome, GangTimes
from swell.experiments.occupancy import Occupied, Stay, stays

NODES_DRAWN_MAX = 60  # rows of the picture of nodes; more would be thinner than a line
POINTS_MAX = 2000  # of one line


def plots(found: Sequence[ContenderRuns]) -> dict[str, str]:
    """Name of the file → SVG; without the pictures of nodes, which need the events."""
    return {
        "run-time": boxes(found, "Run time of finished gangs", lambda one: one.run_s),
        "total-time": boxes(found, "Submission to completion of finished gangs", _total),
        "wait": boxes(found, "Wait until the whole gang was bound", lambda one: one.wait_s),
        "completion": completion(found),
        "utilization": over_time(found, "Ranks with a node", "ranks", lambda held: held.ranks),
        "clogging": over_time(found, "Nodes held by incomplete gangs", "nodes", lambda held: held.clogged_nodes),
    }


def _total(one: GangTimes) -> float | None:
    return one.total_s if one.outcome is GangOutcome.DONE else None


def boxes(found: Sequence[ContenderRuns], title: str, value: Callable[[GangTimes], float | None]) -> str:
    """By size and contender: quartiles, median, 5 % to 95 %, and how many it is made of."""
    names = [one.contender for one in found]
    sizes = sorted({times.size for one in found for run in one.runs for times in run.times})
    values = {
        (size, one.contender): sorted(
            seconds
            for run in one.runs
            for times in run.times
            if times.size == size and (seconds := value(times)) is not None
        )
        for size in sizes
        for one in found
    }
    top = max((some[-1] for some in values.values() if some), default=1.0)
    canvas = Canvas(
        title, "ranks in a gang; at the top, how many gangs a box is made of", "seconds", float(len(sizes)), top * 1.15
    )  # the counts are above the longest time
    canvas.x_names([str(size) for size in sizes])
    canvas.legend(names)
    for (size, name), some in values.items():
        _box(canvas, sizes.index(size), names, name, some)
    return canvas.svg()


def _box(canvas: Canvas, column: int, names: Sequence[str], name: str, values: Sequence[float]) -> None:
    step = 0.9 / len(names)
    left = column + 0.05 + step * names.index(name)
    right, middle = left + 0.8 * step, left + 0.4 * step
    color = color_of(names, name)
    canvas.text(canvas.x(middle), TOP + 14, str(len(values)), color=color)
    if not values:
        return
    low, first, mid, third, high = (values[int(part * (len(values) - 1))] for part in (0.05, 0.25, 0.5, 0.75, 0.95))
    canvas.line([(middle, low), (middle, high)], color)
    canvas.bar((left, right), (first, third), color, opacity=0.4, title=f"{name}: median {mid:.1f} s")
    canvas.line([(left, mid), (right, mid)], color)


def completion(found: Sequence[ContenderRuns]) -> str:
    names = [one.contender for one in found]
    end = max((run.facts.watched_s for one in found for run in one.runs), default=1.0)
    canvas = Canvas("Gangs done, one line for each run", "seconds since the run began", "% of gangs", end, 100.0)
    canvas.legend(names)
    for one in found:
        for run in one.runs:
            canvas.line(_thin(_done(run)), color_of(names, one.contender), steps=True)
    return canvas.svg()


def _done(run: MeasuredRun) -> list[Point]:
    ends = sorted(one.ended_s for one in run.times if one.outcome is GangOutcome.DONE and one.ended_s is not None)
    steps = [(at, 100.0 * (number + 1) / len(run.times)) for number, at in enumerate(ends)]
    return [(0.0, 0.0), *steps, (run.facts.watched_s, steps[-1][1] if steps else 0.0)]


def over_time(found: Sequence[ContenderRuns], title: str, unit: str, value: Callable[[Occupied], int]) -> str:
    names = [one.contender for one in found]
    runs = [run for one in found for run in one.runs]
    end = max((run.facts.watched_s for run in runs), default=1.0)
    top = max((value(held) for run in runs for held in run.curve), default=1)
    canvas = Canvas(f"{title}, one line for each run", "seconds since the run began", unit, end, float(top) * 1.05)
    canvas.legend(names)
    for run in runs:
        points = [(held.at, float(value(held))) for held in run.curve]
        points.append((run.facts.watched_s, points[-1][1]))
        canvas.line(_thin(points), color_of(names, run.facts.contender), steps=True)
    return canvas.svg()


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """No more than can be seen; the last one stays."""
    if len(points) <= POINTS_MAX:
        return points
    step = len(points) / POINTS_MAX
    return [*(points[int(number * step)] for number in range(POINTS_MAX)), points[-1]]


def nodes_by_gang(run: MeasuredRun, events: Sequence[RunEvent]) -> str:
    """Each row is a node, each bar a rank on it; pale while its gang is not whole."""
    whole = {one.gang: one.bound_s for one in run.times}
    found = stays(events, run.facts.watched_s)
    nodes = sorted({stay.node for stay in found})[:NODES_DRAWN_MAX]
    title = f"{run.facts.contender}, run {run.facts.repeat}: nodes by gang; pale: the gang is incomplete"
    canvas = Canvas(title, "seconds since the run began", "node", run.facts.watched_s, float(max(1, len(nodes))))
    for row, node in enumerate(nodes):
        here = [stay for stay in found if stay.node == node]
        for lane, lanes, stay in _in_lanes(here):
            _stay(canvas, stay, row + lane / lanes, 0.9 / lanes, whole[stay.gang])
    return canvas.svg()


def _in_lanes(here: Sequence[Stay]) -> list[tuple[int, int, Stay]]:
    """Ranks that are on a node at the same time lie above each other."""
    free_at: list[float] = []
    placed: list[tuple[int, Stay]] = []
    for stay in here:
        lane = next((number for number, at in enumerate(free_at) if at <= stay.begin_s), len(free_at))
        free_at[lane : lane + 1] = [stay.end_s]
        placed.append((lane, stay))
    return [(lane, max(1, len(free_at)), stay) for lane, stay in placed]


def _stay(canvas: Canvas, stay: Stay, y: float, high: float, whole_s: float | None) -> None:
    color = f"hsl({hash_of(stay.gang)} 60% 45%)"
    whole_at = stay.end_s if whole_s is None else min(max(whole_s, stay.begin_s), stay.end_s)
    title = f"{stay.gang} rank {stay.rank} on {stay.node}, {stay.begin_s:.1f} to {stay.end_s:.1f} s"
    if whole_at > stay.begin_s:
        canvas.bar((stay.begin_s, whole_at), (y, y + high), color, opacity=0.35, title=f"{title}, gang incomplete")
    if stay.end_s > whole_at:
        canvas.bar((whole_at, stay.end_s), (y, y + high), color, title=title)


def hash_of(gang: str) -> int:
    """A hue; the same in every run."""
    return sum(ord(letter) * (31 * place + 47) for place, letter in enumerate(gang)) % 360
