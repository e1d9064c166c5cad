"""Which job does a person mean by an id or a name?"""

from __future__ import annotations

import re

from swell.errors import Conflict, NotFound
from swell.manifests.fields import did_you_mean
from swell.store import JobRecord, Store

IDS_SHOWN_MAX = 8
ID = re.compile(r"[0-9]{1,18}")  # what the store can hold; a longer one is nobody's


def find_job(store: Store, ref: str) -> JobRecord:
    """For reading: an id, or the newest job of that name."""
    if ID.fullmatch(ref):
        return store.job(int(ref))
    named = store.jobs_named(ref)
    if not named:
        raise NotFound(f"there is no job {ref!r}{_hint(store, ref)}")
    return named[0]


def find_one(store: Store, ref: str, *, ended: bool | None) -> JobRecord:
    """For changing: a name must leave no doubt. Among jobs of one name only those count that it can apply to.

    `ended` None: to all of them.
    """
    if ID.fullmatch(ref):
        return store.job(int(ref))
    named = store.jobs_named(ref)
    fitting = [job for job in named if ended is None or job.state.has_ended == ended]
    if len(fitting) > 1:
        ids = ", ".join(str(job.id) for job in fitting[:IDS_SHOWN_MAX]) + (
            ", …" if len(fitting) > IDS_SHOWN_MAX else ""
        )
        raise Conflict(f"{len(fitting)} jobs are named {ref!r}; say which by id: {ids}")
    if fitting:
        return fitting[0]
    if named:
        return named[0]
    raise NotFound(f"there is no job {ref!r}{_hint(store, ref)}")


def _hint(store: Store, ref: str) -> str:
    names = store.names()
    return did_you_mean(ref, names[:20]) if names else "; no job has been submitted yet"
