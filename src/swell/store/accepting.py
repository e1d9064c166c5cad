"""How are new jobs written down?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from swell.errors import Conflict
from swell.model.job import JobId, JobSpec, JobState
from swell.model.quota import NO_QUOTA, Quota
from swell.model.reason import Code
from swell.store import tables
from swell.store.kept import Kept, keep
from swell.store.quotas import refuse_too_much
from swell.store.records import EventRecord, JobRecord, NewJob, event_row, job_record

# On the way of every submission; building a statement costs more than running it.
INSERT_JOBS = insert(tables.job).returning(tables.job.c.id, sort_by_parameter_order=True)
INSERT_EVENT = insert(tables.event)
INSERT_KEY = insert(tables.idempotency)
SELECT_KEY = select(tables.idempotency).where(tables.idempotency.c.key == bindparam("asked"))
ABSENT = ("started_at", "ended_at", "exit_code", "cancel_requested_by", "cancel_grace_s")
KEYS_PER_READ = 500
NO_MANIFEST = Kept("", 0)


def accept(
    connection: Connection,
    jobs: Sequence[NewJob],
    key: str | None,
    digest: str,
    origin: str,
    quota: Quota,
    now: float,
) -> list[JobRecord]:
    if key is not None:
        earlier = _replay(connection, key, digest)
        if earlier is not None:
            return earlier
    records = _insert(connection, jobs, origin, now, quota)
    if key is not None:
        ids = json.dumps([record.id for record in records])
        connection.execute(INSERT_KEY, {"key": key, "digest": digest, "job_ids": ids, "at": now})
    return records


def accept_each(connection: Connection, jobs: Mapping[str, NewJob], origin: str, now: float) -> list[JobRecord | None]:
    earlier = _earlier(connection, list(jobs))
    fresh = [key for key in jobs if key not in earlier]
    made = dict(zip(fresh, _insert(connection, [jobs[key] for key in fresh], origin, now), strict=True))
    if made:
        rows = [{"key": key, "digest": "", "job_ids": f"[{job.id}]", "at": now} for key, job in made.items()]
        connection.execute(INSERT_KEY, rows)
    return [made[key] if key in made else earlier[key] for key in jobs]


def write_events(connection: Connection, events: Sequence[EventRecord], now: float) -> None:
    if events:
        connection.execute(INSERT_EVENT, [event_row(record, now) for record in events])


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
    ids = connection.execute(INSERT_JOBS, rows).scalars().all()
    records = [_record(row, job, new.spec) for row, job, new in zip(rows, ids, jobs, strict=True)]
    events = [
        EventRecord("Submitted", record.id, record.owner, _submitted(record), origin=origin) for record in records
    ]
    write_events(connection, events, now)
    return records


def _submitted(record: JobRecord) -> dict[str, Any]:
    notes = {"notes": list(record.spec.notes)} if record.spec.notes else {}
    return {"name": record.name, **notes}


def _row(new: NewJob, environment: Kept, manifest: Kept, now: float, shared_by: int) -> dict[str, Any]:
    """`shared_by`: so many jobs of one submission have that environment, and each counts its part of it."""
    spec = json.dumps(new.spec.to_document())
    return {
        "version": 1,
        "name": new.spec.name,
        "owner": new.owner,
        "uid": new.uid,
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
        "stored_bytes": len(spec) + environment.size // shared_by + manifest.size,
    }


def _record(row: dict[str, Any], job: JobId, spec: JobSpec) -> JobRecord:
    values = {**row, **dict.fromkeys(ABSENT), "id": job, "nodes": (), "reason_evidence": {}, "given": spec}
    values |= {"state": JobState.QUEUED, "reason_code": Code.NOT_YET_PLANNED, "spec_text": values.pop("spec")}
    return JobRecord(**values)


def _replay(connection: Connection, key: str, digest: str) -> list[JobRecord] | None:
    earlier = connection.execute(SELECT_KEY, {"asked": key}).first()
    if earlier is None:
        return None
    if earlier.digest != digest:
        raise Conflict(
            f"the idempotency key {key!r} was already used for another submission; use a new key for a new job"
        )
    ids = json.loads(earlier.job_ids)
    rows = connection.execute(select(tables.job).where(tables.job.c.id.in_(ids)).order_by(tables.job.c.id)).all()
    if len(rows) < len(ids):
        raise Conflict(f"the jobs of the idempotency key {key!r} have been deleted; use a new key for a new job")
    return [job_record(row) for row in rows]


def _earlier(connection: Connection, keys: Sequence[str]) -> dict[str, JobRecord | None]:
    """Of keys that were used before, the job; None: it was deleted."""
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
