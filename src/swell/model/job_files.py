"""Which files does a job bring to the machines it runs on, and which does it send back?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UrlInput:
    """A file that each machine fetches before the job begins there."""

    url: str  #: http or https
    to: str  #: path below the folder of the job
    sha256: str = ""  #: what it must be; empty: whatever is there


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Its tasks run in a folder of their own on each machine."""

    folder: str = ""  #: id of the folder that was sent; empty: an empty one
    inputs: tuple[UrlInput, ...] = ()
    outputs: tuple[str, ...] = ()  #: patterns, as in .gitignore, of what is sent back when an attempt ends
