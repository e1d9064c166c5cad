"""How are new jobs written down?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from swell.errors import Conflict
from swell.model.job import JobId, JobSpec, JobState
from swell.model.quota import NO_QUOTA, Quota
from swell.model.reason import Code
from swell.store import tables
from swell.store.kept import Kept, keep
from swell.store.names import claimed_names, name_taken
from swell.store.quotas import refuse_too_much
from swell.store.records import EventRecord, JobRecord, NewJob, event_row, identity_text, job_record
from swell.store.trail import trim

# On the way of every submission; building a statement costs more than running it.
INSERT_JOBS = insert(tables.job).returning(tables.job.c.id, sort_by_parameter_order=True)
INSERT_EVENT = insert(tables.event)
INSERT_KEY = insert(tables.idempotency)
SELECT_KEY = select(tables.idempotency).where(tables.idempotency.c.key == bindparam("asked"))
SUBMITTED = "Submitted"  # a job's first
KEYS_PER_READ = 500
NO_MANIFEST = Kept("", 0)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How jobs that were submitted together are accepted: all of them or none."""

    key: str | None = None  #: repeated, it is answered with the jobs of the first time; None: it cannot be repeated
    digest: str = ""  #: of what was submitted: the same key with another one is refused
    origin: str = ""  #: from where it was asked
    quota: Quota = NO_QUOTA  #: of their owner


PLAINLY = Acceptance()


def accept(connection: Connection, jobs: Sequence[NewJob], how: Acceptance, now: float) -> list[JobRecord]:
    if how.key is not None:
        earlier = _replay(connection, how.key, how.digest)
        if earlier is not None:
            return earlier
    records = _insert(connection, jobs, how.origin, now, how.quota)
    if how.key is not None:
        ids = json.dumps([record.id for record in records])
        connection.execute(INSERT_KEY, {"key": how.key, "digest": how.digest, "job_ids": ids, "at": now})
    return records


def accept_each(
    connection: Connection, jobs: Mapping[str, NewJob], origin: str, quota: Quota, now: float
) -> list[JobRecord | None]:
    earlier = _earlier(connection, list(jobs))
    fresh = [key for key in jobs if key not in earlier]
    made = dict(zip(fresh, _insert(connection, [jobs[key] for key in fresh], origin, now, quota), strict=True))
    if made:
        rows = [{"key": key, "digest": "", "job_ids": f"[{job.id}]", "at": now} for key, job in made.items()]
        connection.execute(INSERT_KEY, rows)
    return [made[key] if key in made else earlier[key] for key in jobs]


def write_events(connection: Connection, events: Sequence[EventRecord], now: float) -> None:
    if events:
        connection.execute(INSERT_EVENT, [event_row(record, now) for record in events])
        trim(connection, [(record.job_id, record.actor) for record in events if record.kind != SUBMITTED])


def _insert(
    connection: Connection, jobs: Sequence[NewJob], origin: str, now: float, quota: Quota = NO_QUOTA
) -> list[JobRecord]:
    if not jobs:
        return []
    environments = keep(connection, tables.environment, [job.environment for job in jobs])
    shared_by = Counter(environments)
    given = [job.manifest for job in jobs if job.manifest is not None]
    manifests = iter(keep(connection, tables.manifest, given))
    rows = [
        _row(job, environment, NO_MANIFEST if job.manifest is None else next(manifests), now, shared_by[environment])
        for job, environment in zip(jobs, environments, strict=True)
    ]
    refuse_too_much(connection, jobs[0].owner, rows, quota)
    _refuse_taken_names(connection, jobs)
    ids = connection.execute(INSERT_JOBS, rows).scalars().all()
    records = [_record(row, job, new.spec) for row, job, new in zip(rows, ids, jobs, strict=True)]
    records = [_name_in_record(connection, record, ids) for record in records]
    events = [EventRecord(SUBMITTED, record.id, record.owner, _submitted(record), origin=origin) for record in records]
    write_events(connection, events, now)
    return records


def name_siblings(spec: JobSpec, ids: Sequence[JobId]) -> JobSpec:
    """A job that waits for jobs of the same submission names them by place until all of them have ids, as now."""
    if all(after.job > 0 for after in spec.after):
        return spec
    waits = {(ids[-after.job - 1] if after.job < 0 else after.job): after for after in spec.after}
    return replace(spec, after=tuple(replace(waits[job], job=job) for job in sorted(waits)))


def _name_in_record(connection: Connection, record: JobRecord, ids: Sequence[JobId]) -> JobRecord:
    spec = name_siblings(record.spec, ids)
    if spec is record.spec:
        return record
    text = json.dumps(spec.to_document())
    connection.execute(update(tables.job).where(tables.job.c.id == record.id).values(spec=text))
    return replace(record, spec_text=text, given=spec)


def _refuse_taken_names(connection: Connection, jobs: Sequence[NewJob]) -> None:
    names, job = claimed_names(jobs), tables.job.c
    if names:
        is_live = job.state.not_in(tables.ENDED_STATES)
        taken = select(job.id, job.name, job.state).where(job.name.in_(names), job.owner == jobs[0].owner, is_live)
        for row in connection.execute(taken.limit(1)):
            raise name_taken(row.name, row.id, row.state)


def _submitted(record: JobRecord) -> dict[str, Any]:
    notes = {"notes": list(record.spec.notes)} if record.spec.notes else {}
    return {"name": record.name, **notes}


def _row(new: NewJob, environment: Kept, manifest: Kept, now: float, shared_by: int) -> dict[str, Any]:
    """`shared_by`: so many jobs of one submission have that environment, and each counts its part of it."""
    spec, identity = json.dumps(new.spec.to_document()), identity_text(new.identity)
    return {
        "version": 1,
        "name": new.spec.name,
        "owner": new.owner,
        "uid": new.uid,
        "identity": identity,
        "state": str(JobState.QUEUED),
        "reason_code": str(Code.NOT_YET_PLANNED),
        "reason_evidence": "{}",
        "priority": new.spec.priority,
        "spec": spec,
        "environment": environment.hash,
        "manifest": manifest.hash,
        "submitted_at": now,
        "attempts": 0,
        "width": 0,
        "width_min": new.spec.width_min,
        "width_max": new.spec.width_max,
        "tasks_total": new.spec.tasks_total,
        "tasks_running": 0,
        "tasks_succeeded": 0,
        "tasks_failed": 0,
        "nodes": "[]",
        "held_by": new.owner if new.spec.is_held else None,
        "stored_bytes": len(spec) + len(identity or "") + environment.size // shared_by + manifest.size,
    }


def _record(row: dict[str, Any], job: JobId, spec: JobSpec) -> JobRecord:
    values = {**row, "id": job, "nodes": (), "reason_evidence": {}, "given": spec}
    values |= {"state": JobState.QUEUED, "reason_code": Code.NOT_YET_PLANNED, "spec_text": values.pop("spec")}
    return JobRecord(**values)


def _replay(connection: Connection, key: str, digest: str) -> list[JobRecord] | None:
    earlier = connection.execute(SELECT_KEY, {"asked": key}).first()
    if earlier is None:
        return None
    if earlier.digest != digest:
        raise key_was_used(key, "was already used for another submission")
    ids = json.loads(earlier.job_ids)
    rows = connection.execute(select(tables.job).where(tables.job.c.id.in_(ids)).order_by(tables.job.c.id)).all()
    if len(rows) < len(ids):
        raise key_was_used(key, "stands for jobs that have been deleted")
    return [job_record(row) for row in rows]


def key_was_used(key: str, how: str) -> Conflict:
    return Conflict(f"the idempotency key {key!r} {how}; use a new key for a new job")


def _earlier(connection: Connection, keys: Sequence[str]) -> dict[str, JobRecord | None]:
    """The job of each key that was used before; None: the job was deleted."""
    found: dict[str, JobRecord | None] = {}
    for start in range(0, len(keys), KEYS_PER_READ):
        asked = tables.idempotency.c.key.in_(keys[start : start + KEYS_PER_READ])
        used = {
            json.loads(row.job_ids)[0]: row.key for row in connection.execute(select(tables.idempotency).where(asked))
        }
        found |= dict.fromkeys(used.values())
        if used:
            rows = connection.execute(select(tables.job).where(tables.job.c.id.in_(used))).all()
            found |= {used[row.id]: job_record(row) for row in rows}
    return found
