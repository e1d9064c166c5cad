"""Which new jobs may not be taken because of their names?

Two of one name would write into one folder, and nobody could say which of them is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from swell.errors import Conflict
from swell.model.job import JobId
from swell.store.records import NewJob


def claimed_names(jobs: Sequence[NewJob]) -> Collection[str]:
    """The names that these jobs take for themselves; two jobs that take one name are refused."""
    names = Counter(job.spec.name for job in jobs if job.takes_name)
    for name, count in names.items():
        if count > 1:
            raise Conflict(f"{count} of the jobs are named {name!r}; give each a metadata.name of its own")
    return names


def name_taken(name: str, job: JobId, state: str) -> Conflict:
    return Conflict(
        f"there is a job named {name!r} already: job {job}, which is {state}; delete that one first, or choose another "
        "metadata.name"
    )
