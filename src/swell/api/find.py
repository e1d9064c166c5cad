"""Which job does a person mean by an id or a name?

A name means one's own jobs. An id of somebody else's is answered as if there were no such job, except to an
administrator: that somebody has a job of that number is in the queue for all to see, but nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from swell.api.box import Caller
from swell.errors import Conflict, NotFound
from swell.manifests.fields import did_you_mean
from swell.store import JobRecord, Store, no_job

IDS_SHOWN_MAX = 8
ID = re.compile(r"[0-9]{1,18}")  # what the store can hold; a longer one is nobody's


def find_job(store: Store, caller: Caller, ref: str) -> JobRecord:
    """For reading: an id, or the newest job of that name."""
    if ID.fullmatch(ref):
        return _by_id(store, caller, int(ref))
    named = store.jobs_named(ref, owner=caller.own, limit=1)
    if not named:
        raise _not_found(store, caller, ref)
    caller.reads_of(named[0].owner, named[0].id)
    return named[0]


def _by_id(store: Store, caller: Caller, job_id: int) -> JobRecord:
    job = store.job(job_id)
    if not caller.may_name(job.owner, job_id):
        raise no_job(job_id)
    caller.reads_of(job.owner, job.id)
    return job


def find_one(store: Store, caller: Caller, ref: str, *, ended: bool | None) -> JobRecord:
    """For changing: a name must leave no doubt. Among jobs of one name only those count that it can apply to.

    `ended` None: to all of them.
    """
    if ID.fullmatch(ref):
        return _by_id(store, caller, int(ref))
    fitting = store.jobs_named(ref, owner=caller.own, ended=ended, limit=IDS_SHOWN_MAX)
    if len(fitting) > 1:
        raise ambiguous(ref, fitting, store.count_named(ref, owner=caller.own, ended=ended))
    return fitting[0] if fitting else find_job(store, caller, ref)


def find_sole(store: Store, caller: Caller, ref: str) -> JobRecord:
    """For changing whatever its state is: of one name the one that lives, else the one that has ended."""
    alive = find_one(store, caller, ref, ended=False)
    return find_one(store, caller, ref, ended=True) if alive.state.has_ended else alive


def ambiguous(ref: str, first: list[JobRecord], count: int) -> Conflict:
    ids = ", ".join(str(job.id) for job in first) + (", …" if count > len(first) else "")
    return Conflict(f"{count} jobs are named {ref!r}; name the job by id: {ids}")


def find_several(store: Store, caller: Caller, refs: Iterable[str]) -> list[JobRecord]:
    """For changing, each once, in their order; one that is not there, or leaves a doubt, and none is found."""
    unique = list(dict.fromkeys(refs))
    known = store.jobs([int(ref) for ref in unique if ID.fullmatch(ref)])
    found: dict[int, JobRecord] = {}
    for ref in unique:
        job = known.get(int(ref)) if ID.fullmatch(ref) else find_one(store, caller, ref, ended=False)
        if job is None or not caller.may_name(job.owner, job.id):
            raise no_job(int(ref))
        found[job.id] = job
    return list(found.values())


def _not_found(store: Store, caller: Caller, ref: str) -> NotFound:
    others = store.jobs_named(ref, limit=IDS_SHOWN_MAX) if caller.is_admin else []
    if others:
        ids = ", ".join(f"{job.id} of {job.owner}" for job in others)
        return NotFound(f"you have no job {ref!r}, but other users have; name the job by id: {ids}")
    names = store.names(owner=caller.own)
    hint = did_you_mean(ref, names[:20]) if names else "; you have submitted none yet"
    return NotFound(f"there is no job {ref!r}{hint}")
