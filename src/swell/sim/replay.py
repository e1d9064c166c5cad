"""Is the plan of a recorded snapshot made again, line by line?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from swell.errors import Rejected
from swell.model.recorded_plan import RecordedPlan, parse_recorded_plan, plan_lines
from swell.planner.policies import POLICIES
from swell.sim.traces.lines import TraceLine, read_text, refuse


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    jobs: int
    nodes: int
    policy: str
    lines: tuple[str, ...]  #: of the plan that is made now
    differences: tuple[str, ...]  #: to the recorded one; empty: it is the same


def replay(path: Path, policy: str | None) -> Replayed:
    """`policy` None: the one that was recorded."""
    recorded = read_recorded(path)
    name = policy or recorded.policy
    if name not in POLICIES:
        raise refuse(path, f"its policy {name!r} is unknown; there are: {', '.join(POLICIES)}")
    try:
        lines = plan_lines(POLICIES[name](recorded.snapshot))
    except Exception as error:
        raise refuse(path, f"no plan can be made of it: {type(error).__name__}: {error}") from error
    differences = tuple(unified_diff(recorded.lines, lines, "recorded", "now", lineterm="", n=0))
    return Replayed(len(recorded.snapshot.jobs), len(recorded.snapshot.nodes), name, lines, differences)


def read_recorded(path: Path) -> RecordedPlan:
    try:
        return parse_recorded_plan(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise TraceLine(path, error.lineno, "").refuse(f"it is no JSON: {error.msg}") from error
    except Rejected:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
        raise refuse(path, f"it is no snapshot of this version of `swell debug snapshot`: {found}") from error
