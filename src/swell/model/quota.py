"""How much may one user have waiting and stored?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """Held against every submission; None: no limit."""

    queued: int | None = None  #: jobs that wait, held ones included
    tasks: int | None = None  #: of all jobs that have not ended; arrays have many
    stored_bytes: int | None = None  #: of all jobs that are remembered


NO_QUOTA = Quota()
