"""A picture of a simulation, as SVG: GPUs in use, the width of every job over time, how soon jobs are done."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from swell.sim.simulation import Result

WIDTH, LEFT, RIGHT = 960, 70, 20
PANEL, GAP, TOP = 180, 60, 40
COLORS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377")
ROWS_MAX = 400  # jobs that are drawn; more would be thinner than a line
Point = tuple[float, float]


def plot(results: Sequence[tuple[str, Result]], gpus: int) -> str:
    """One picture of one or more simulations, named."""
    end = max([1.0, *(moment for _, result in results for moment, _, _ in result.widths)])
    done = [sorted(one.completion_s for one in result.jobs if one.completion_s is not None) for _, result in results]
    longest = max([1.0, *(times[-1] for times in done if times)])
    parts: list[str] = []
    for n, (name, result) in enumerate(results):
        color = COLORS[n % len(COLORS)]
        parts.append(_line(_in_use(result), end, max(gpus, 1), 0, color))
        parts.append(_text(WIDTH - RIGHT, TOP - 22 + 13 * n, name, color, "end"))
        curve = [(time, (place + 1) / len(done[n])) for place, time in enumerate(done[n])]
        parts.append(_line([(0.0, 0.0), *curve], longest, 1.0, 2, color))
    parts.append(_gantt(results[0][1], end))
    titles = (
        f"GPUs in use (of {gpus}), over {end / 3600:.1f} h",
        f"jobs of {results[0][0]}: one row each, darker is wider",
        f"part of the jobs done after so long, up to {longest / 3600:.1f} h",
    )
    frames = "".join(_frame(panel, title) for panel, title in enumerate(titles))
    height = TOP + 3 * (PANEL + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>{frames}{"".join(parts)}</svg>\n'
    )


def _in_use(result: Result) -> list[Point]:
    held: dict[int, int] = {}
    points: list[Point] = [(0.0, 0.0)]
    for moment, job, width in result.widths:
        before = float(sum(held.values()))
        held[job] = width
        points += [(moment, before), (moment, float(sum(held.values())))]
    return points


def _gantt(result: Result, end: float) -> str:
    jobs = list(dict.fromkeys(job for _, job, _ in result.widths))[:ROWS_MAX]
    row = {job: n for n, job in enumerate(jobs)}
    high = PANEL / max(1, len(jobs))
    widest = max([1, *(width for _, _, width in result.widths)])
    since: dict[int, tuple[float, int]] = {}
    boxes: list[str] = []
    for moment, job, width in result.widths:
        began, held = since.pop(job, (moment, 0))
        if held and job in row:
            shade = 0.25 + 0.75 * held / widest
            boxes.append(
                f'<rect x="{_x(began, end):.1f}" y="{_top(1) + row[job] * high:.1f}" height="{high:.2f}" '
                f'width="{max(0.3, _x(moment, end) - _x(began, end)):.1f}" fill="{COLORS[0]}" opacity="{shade:.2f}"/>'
            )
        if width:
            since[job] = moment, width
    return "".join(boxes)


def _line(points: Sequence[Point], right: float, top: float, panel: int, color: str) -> str:
    base = _top(panel) + PANEL
    path = " ".join(f"{_x(x, right):.1f},{base - PANEL * y / top:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.2"/>'


def _frame(panel: int, title: str) -> str:
    box = f'x="{LEFT}" y="{_top(panel)}" width="{WIDTH - LEFT - RIGHT}" height="{PANEL}"'
    return f'<rect {box} fill="none" stroke="#999"/>' + _text(LEFT, _top(panel) - 6, title, "#333", "start")


def _text(x: float, y: float, text: str, color: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'


def _top(panel: int) -> int:
    return TOP + panel * (PANEL + GAP)


def _x(moment: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * moment / end
