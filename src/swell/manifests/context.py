"""Where was a manifest submitted from?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """The caller's side: tasks run in this folder unless the manifest names another."""

    workdir: str
    umask: int = 0o022
    name: str = ""  #: when the manifest gives none; empty: made from the command
