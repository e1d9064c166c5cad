"""How does the library speak up without getting in the way?

One line on stderr for each kind of problem, never on stdout, and never an exception: the script may have closed both.
"""

from __future__ import annotations

import sys
from typing import Set

_said: Set[str] = set()


def say(kind: str, text: str) -> None:
    """`kind` is said once in the life of this process."""
    if kind in _said:
        return
    _said.add(kind)
    try:
        print(f"swell_sdk: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return  # stderr is gone; nobody is left to tell
