"""What is counted and timed as it happens?

One process, one registry of its own. Counters begin at zero with every server, which Prometheus understands; what a
server can know of the time before it (ended jobs) it is told by `go_on_from`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from swell import __version__
from swell.controller.cycle import Cycled
from swell.model.job import ENDED, JobState
from swell.store import EventRecord

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
LONG_S = (1, 10, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 4 * HOUR_S, 12 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S)
RESTART_S = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
WORK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
TIMES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2, 4, 10)
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60)  # above a second: long polls
DIRECTIONS = ("grow", "shrink")

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nobody reads


class Metrics:
    """Counters and histograms, and who tells them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._wait = self._histogram(
            "wait", "Time from submission (or release) to the start of the first attempt.", LONG_S
        )
        self._run = self._histogram("run", "Time from the start of the first task to the end of the job.", LONG_S)
        self._estimate = Histogram(
            "swell_estimate_ratio",
            "Run time of jobs that succeeded, as a multiple of their users' estimates.",
            buckets=TIMES,
            registry=self.registry,
        )
        self._restart = self._histogram("restart", "Time from the stop of training until it continues.", RESTART_S)
        self._plan = self._histogram("plan", "CPU time of making and checking one plan.", WORK_S)
        self._cycle = self._histogram("cycle", "Duration of one cycle of the loop, including its commit.", WORK_S)
        self._commit = self._histogram("store_commit", "Duration of one commit, until it is on the disk.", WORK_S)
        self._ended = self._counter("jobs_ended", "Jobs that have ended.", "state", *map(str, sorted(ENDED)))
        self._resizes = self._counter(
            "resizes", "Attempts ended to restart at another width.", "direction", *DIRECTIONS
        )
        self._preemptions = Counter("swell_preemptions", "Attempts ended by preemption.", registry=self.registry)
        self._reports = self._counter(
            "reports", "Reports received from jobs.", "result", "accepted", "refused", "limited"
        )
        self._requests = Counter(
            "swell_http_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._request = Histogram(
            "swell_http_request_seconds",
            "Time from a request to the end of its answer; long polls wait on purpose.",
            ("method", "route"),
            buckets=REQUEST_S,
            registry=self.registry,
        )
        Info("swell_build", "Version of this server.", registry=self.registry).info({"version": __version__})
        ProcessCollector(registry=self.registry)
        self._told: dict[str, Callable[[EventRecord], None]] = {
            "Started": self._started,
            "Yielded": self._yielded,
            "Ended": self._has_ended,
        }

    def _histogram(self, noun: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"swell_{noun}_seconds", text, buckets=buckets, registry=self.registry)

    def _counter(self, noun: str, text: str, label: str, *values: str) -> Counter:
        """All its values are there from the beginning: a rate needs a zero to begin at."""
        made = Counter(f"swell_{noun}", text, (label,), registry=self.registry)
        for value in values:
            made.labels(value)
        return made

    def text(self) -> bytes:
        return generate_latest(self.registry)

    # -- who tells ---------------------------------------------------------------------------------------------

    def go_on_from(self, jobs: Mapping[str, int]) -> None:
        """The jobs that an earlier server has ended, by state."""
        for state in ENDED:
            self._ended.labels(str(state)).inc(jobs.get(str(state), 0))

    def cycled(self, cycle: Cycled) -> None:
        self._plan.observe(cycle.plan_s)
        self._cycle.observe(cycle.cycle_s)
        for seconds in cycle.restarts_s:
            self._restart.observe(seconds)
        for event in cycle.events:
            if event.kind in self._told:
                self._told[event.kind](event)

    def committed(self, seconds: float) -> None:
        self._commit.observe(seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._request.labels(method, route).observe(seconds)

    def reported(self, status: int) -> None:
        """A job's report was answered so."""
        result = "accepted" if status < 300 else "limited" if status == 429 else "refused"
        self._reports.labels(result).inc()

    def _started(self, event: EventRecord) -> None:
        if event.detail["attempt"] == 1:
            self._wait.observe(event.detail["waited_s"])

    def _yielded(self, event: EventRecord) -> None:
        before, after = event.detail.get("width"), event.detail.get("to_width")
        if after is None or before is None or after == before:
            return  # an array gave room back, or it goes on elsewhere
        if after == 0:
            self._preemptions.inc()
        else:
            self._resizes.labels(DIRECTIONS[after < before]).inc()

    def _has_ended(self, event: EventRecord) -> None:
        self._ended.labels(event.detail["state"]).inc()
        if event.detail["ran_s"] is not None:
            self._run.observe(event.detail["ran_s"])
        if event.detail["state"] == JobState.SUCCEEDED and "estimate_s" in event.detail:
            guess_s = max(1.0, event.detail["estimate_s"])  # what lies below is no guess, and would swamp the sum
            self._estimate.observe(event.detail["used_s"] / guess_s)
