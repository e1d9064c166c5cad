"""Can what a plot shows be read?"""

from __future__ import annotations

import re

from experiments.logs import gang, pod, run, submitted
from swell.experiments.conclude import standings
from swell.experiments.plots import plots


def test_no_box_crosses_the_counts_above_it() -> None:
    """Where all gangs ran for the same time, its line went through the number of gangs."""
    log = [submitted("a"), *pod("a", 0, bound=0.0, running=0.0, succeeded=10.0)]
    picture = plots(standings([run([gang("a", 1)], log, watched_s=10.0)]))["run-time"]
    count_y = min(float(y) for y in re.findall(r'y="([0-9.]+)"[^>]*>1<', picture))  # the other is below the axis
    drawn = [
        float(y)
        for points in re.findall(r'<polyline points="([^"]*)"', picture)
        for y in re.findall(r",([0-9.]+)", points)
    ]
    assert len(drawn) == 4
    assert min(drawn) > count_y + 2
