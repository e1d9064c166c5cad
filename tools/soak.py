"""Does it hold for long? The large counts of every random tier, with the result kept in docs/soak.md.

make soak                     all tiers
python tools/soak.py crash --seeds 50 --first 1
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "docs/soak.md"
sys.path.insert(0, str(ROOT))


def crash(first: int, seeds: int) -> tuple[str, list[str]]:
    """Server and worker killed at random moments while a task runs."""
    from tests.crash.rounds import play

    problems: list[str] = []
    for number, seed in enumerate(range(first, first + seeds), 1):
        problems += play(seed)
        print(f"\rcrash: round {number} of {seeds} (seed {seed}), {len(problems)} problem(s)", end="", flush=True)
    print()
    return f"{seeds} rounds, seeds {first} to {first + seeds - 1}", problems


def properties(first: int, _: int) -> tuple[str, list[str]]:
    """The planner's invariants over random clusters and job sets, many examples."""
    env = {**os.environ, "HYPOTHESIS_PROFILE": "soak"}
    command = [sys.executable, "-m", "pytest", "-q", "tests/planner/test_properties.py", "--timeout", "3600"]
    done = subprocess.run([*command, f"--hypothesis-seed={first}"], cwd=ROOT, env=env, check=False)
    failed = ["a property does not hold; pytest printed the example"] if done.returncode else []
    return f"profile soak, hypothesis seed {first}", failed


TIERS: dict[str, Callable[[int, int], tuple[str, list[str]]]] = {"properties": properties, "crash": crash}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of: {', '.join(TIERS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    rows, problems = [], []
    for name in options.tiers or list(TIERS):
        began = time.monotonic()
        counts, found = TIERS[name](options.first, options.seeds)
        problems += found
        verdict = "held" if not found else f"{len(found)} problem(s)"
        rows.append(f"| {name} | {TIERS[name].__doc__} | {counts} | {verdict} | {time.monotonic() - began:.0f} s |")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not options.tiers:
        write(rows)
    return 1 if problems else 0


def write(rows: list[str]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    head = [
        "# The last soak",
        "",
        f"`make soak` at commit {commit.stdout.strip()}, {time.strftime('%Y-%m-%d')}, on {machine}.",
        "",
        "| tier | what | how much | result | took |",
        "|---|---|---|---|---|",
    ]
    RESULT.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
