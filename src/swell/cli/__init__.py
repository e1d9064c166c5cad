"""The `swell` command. Talks to `client` only; commands are loaded when they are used, so that help is instant.

Public: `main`. No decision, no planner, no FastAPI: `swell --help` must stay near the cost of starting Python.
"""

from __future__ import annotations

import sys


def main() -> None:
    if sys.platform != "linux":
        sys.exit(f"swell: Swell runs on Linux only; this is {sys.platform}")
    from swell.cli.root import swell

    swell.main(prog_name="swell")
