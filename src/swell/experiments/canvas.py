"""How is a chart drawn, as SVG and without a library? Axes with ticks, lines, boxes, bars, and a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 44
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#555555")
TICKS = 5
Point = tuple[float, float]


class Canvas:
    """One chart. What is outside of its axes is not drawn."""

    def __init__(self, title: str, x_label: str, y_label: str, x_max: float, y_max: float) -> None:
        self._x_max = x_max if x_max > 0 else 1.0
        self._y_max = y_max if y_max > 0 else 1.0
        self._parts: list[str] = []
        self._title, self._x_label, self._y_label = title, x_label, y_label
        self._has_ticks = True

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(value / self._x_max, 0.0), 1.0)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(value / self._y_max, 0.0), 1.0)

    def line(self, points: Sequence[Point], color: str, *, steps: bool = False) -> None:
        path: list[str] = []
        before: Point | None = None
        for point in points:
            if steps and before is not None:
                path.append(f"{self.x(point[0]):.1f},{self.y(before[1]):.1f}")
            path.append(f"{self.x(point[0]):.1f},{self.y(point[1]):.1f}")
            before = point
        self._parts.append(f'<polyline points="{" ".join(path)}" fill="none" stroke="{color}" stroke-width="1.5"/>')

    def bar(self, x: Point, y: Point, color: str, *, opacity: float = 1.0, title: str = "") -> None:
        """From one corner to the other."""
        left, right = self.x(x[0]), self.x(x[1])
        low, high = self.y(y[0]), self.y(y[1])
        tip = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{left:.1f}" y="{high:.1f}" width="{max(0.4, right - left):.1f}" '
            f'height="{max(0.4, low - high):.1f}" fill="{color}" fill-opacity="{opacity}">{tip}</rect>'
        )

    def text(self, x: float, y: float, text: str, *, color: str = "#333", anchor: str = "middle") -> None:
        """At a place of the picture, in pixels."""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>')

    def x_names(self, names: Sequence[str]) -> None:
        """Names below the axis, evenly, instead of numbers."""
        self._has_ticks = False
        step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
        for number, name in enumerate(names):
            self.text(LEFT + step * (number + 0.5), HEIGHT - BOTTOM + 16, name)

    def legend(self, names: Sequence[str]) -> None:
        at = float(WIDTH - RIGHT)
        for name in reversed(names):
            self.text(at, TOP - 8, name, color=color_of(names, name), anchor="end")
            at -= 7.0 * len(name) + 14

    def svg(self) -> str:
        box = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
        self.text(LEFT, 18, self._title, anchor="start")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self._x_label)
        self.text(LEFT, TOP - 8, self._y_label, anchor="start")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12" role="img" aria-label="{escape(self._title, quote=True)}">'
            f'<rect width="100%" height="100%" fill="white"/><rect {box} fill="none" stroke="#999"/>'
            f"{self._ticks()}{''.join(self._parts)}</svg>\n"
        )

    def _ticks(self) -> str:
        found = [
            f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.1f}" fill="#333" text-anchor="end">{_short(value)}</text>'
            for value in ticks(self._y_max)
        ]
        if self._has_ticks:
            found += [
                f'<text x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" fill="#333" text-anchor="middle">'
                f"{_short(value)}</text>"
                for value in ticks(self._x_max)
            ]
        return "".join(found)


def ticks(top: float) -> list[float]:
    """Round numbers from 0 up to the top."""
    rough = top / TICKS
    unit: float = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    return [step * number for number in range(int(top / step + 1e-9) + 1)]


def _short(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"{value:.0e}"


def color_of(names: Sequence[str], name: str) -> str:
    return COLORS[list(names).index(name) % len(COLORS)]
