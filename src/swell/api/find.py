"""Which job does a person mean by an id or a name?

A name means one's own jobs. An id of somebody else's is answered as if there were no such job, except to an
administrator: that somebody has a job of that number is in the queue for all to see, but nothing else is.
"""

from __future__ import annotations

import re

from swell.api.caller import Caller
from swell.errors import Conflict, NotFound
from swell.manifests.fields import did_you_mean
from swell.store import JobRecord, Store, no_job

IDS_SHOWN_MAX = 8
ID = re.compile(r"[0-9]{1,18}")  # what the store can hold; a longer one is nobody's


def find_job(store: Store, caller: Caller, ref: str) -> JobRecord:
    """For reading: an id, or the newest job of that name."""
    if ID.fullmatch(ref):
        return _by_id(store, caller, int(ref))
    named = store.jobs_named(ref, owner=caller.own)
    if not named:
        raise _not_found(store, caller, ref)
    return named[0]


def _by_id(store: Store, caller: Caller, job_id: int) -> JobRecord:
    job = store.job(job_id)
    if not caller.may_touch(job.owner):
        raise no_job(job_id)
    return job


def find_one(store: Store, caller: Caller, ref: str, *, ended: bool | None) -> JobRecord:
    """For changing: a name must leave no doubt. Among jobs of one name only those count that it can apply to.

    `ended` None: to all of them.
    """
    if ID.fullmatch(ref):
        return _by_id(store, caller, int(ref))
    named = store.jobs_named(ref, owner=caller.own)
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
    raise _not_found(store, caller, ref)


def _not_found(store: Store, caller: Caller, ref: str) -> NotFound:
    others = store.jobs_named(ref)[:IDS_SHOWN_MAX] if caller.is_admin else []
    if others:
        ids = ", ".join(f"{job.id} of {job.owner}" for job in others)
        return NotFound(f"you have no job {ref!r}, but others have; say which by id: {ids}")
    names = store.names(owner=caller.own)
    hint = did_you_mean(ref, names[:20]) if names else "; no job has been submitted yet"
    return NotFound(f"there is no job {ref!r}{hint}")
