"""When does a worker elsewhere go, and what happens to its tasks before?

It goes when it is told to, when it was idle for long enough, or when it has run as many attempts as it should. It says
so first, and nothing new is sent to it from then on; what it runs ends by itself, or is stopped and goes on elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from swell.machine.worker_options import WorkerOptions


class Course(Enum):
    """What a worker does about its work."""

    STAY = "stay"
    FINISH = "finish"  #: take nothing new, go when what runs has ended
    STOP = "stop"  #: stop the tasks, which come back elsewhere, and go


@dataclass(frozen=True, slots=True)
class Situation:
    """Of a worker, at one moment."""

    terminations: int = 0  #: how often it was told to end
    has_failed: bool = False  #: something in the worker itself went wrong
    attempts: int = 0  #: that it has taken on
    idle_s: float = 0.0  #: since its last task; 0: it has one
    is_heard: bool = True  #: the server has answered lately


def choose_course(options: WorkerOptions, now: Situation) -> Course:
    """A second SIGTERM always means to stop: whoever sends it does not want to wait."""
    if now.terminations > 1 or (now.terminations and options.stops_tasks_on_termination):
        return Course.STOP
    if now.has_failed and options.exits_on_exception:
        return Course.STOP
    if now.terminations:
        return Course.FINISH
    if options.runs_max is not None and now.attempts >= options.runs_max:
        return Course.FINISH
    if options.idle_s is not None and now.is_heard and now.idle_s > options.idle_s:
        return Course.FINISH
    return Course.STAY
