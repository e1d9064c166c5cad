"""What does a job look like to genai's job metadata manager?

Jobs that Swell runs are records worked out from what is known of them; nothing a client writes can contradict that.
Records of other jobs are the client's own words, checked for their kind, because lists are sorted by them.
"""

from __future__ import annotations

import json
from typing import Any

from swell.api.doors.wire import BODY_BYTES_MAX, need, number, text, whole
from swell.errors import TooLarge
from swell.model.width import gpus_at
from swell.store import JobRecord

Record = dict[str, Any]

REQUIRED = ("job_name", "gpu_req", "gpu_lim", "gpu_assigned")
WHOLE = ("gpu_req", "gpu_lim", "gpu_assigned", "replicas", "restarts")
NUMBERS = ("total_epochs", "job_arrival_time", "last_checkpoint_time", "completed_epochs", "time_bw_checkpoints")


def record_of(job: JobRecord, noted: Record) -> Record:
    """As Swell knows it; `noted` are further fields that somebody asked us to remember."""
    spec, training = job.spec, job.training
    checkpoint = None if training is None else training.checkpoint
    total = spec.epochs if training is None or training.epochs_total is None else training.epochs_total
    return {
        **noted,
        "job_name": job.name,
        "gpu_req": gpus_at(spec, job.width_min),
        "gpu_lim": gpus_at(spec, job.width_max),
        "gpu_assigned": gpus_at(spec, job.width) if job.width else 0,
        "replicas": 1 if spec.array else job.tasks_total,
        "total_epochs": total or 0,
        "job_arrival_time": job.submitted_at,
        "last_checkpoint_time": job.submitted_at if checkpoint is None else checkpoint.at,
        "completed_epochs": 0 if checkpoint is None else checkpoint.epochs_done,
        "time_bw_checkpoints": None if training is None else training.every_s,
        "status": "completed" if job.state.has_ended else "scheduled",
        "restarts": max(0, job.attempts - 1),
    }


def new_record(told: Record, now: float) -> Record:
    """Of a job that somebody else runs."""
    need(told, REQUIRED)
    given = checked(told)
    arrived = given.get("job_arrival_time", now)
    return {
        "job_name": given["job_name"],
        "gpu_req": given["gpu_req"],
        "gpu_lim": given["gpu_lim"],
        "gpu_assigned": given["gpu_assigned"],
        "replicas": given.get("replicas", 1),
        "total_epochs": given.get("total_epochs", 0),
        "job_arrival_time": arrived,
        "last_checkpoint_time": arrived,
        "completed_epochs": 0,
        "time_bw_checkpoints": None,
        "status": "scheduled",
        "restarts": 0,
    }


def checked(told: Record) -> Record:
    """The fields that we compute with are what they should be; others are as they were sent."""
    kept = {field: value for field, value in told.items() if value is not None}
    for field in kept.keys() & set(WHOLE):
        kept[field] = whole(kept, field)
    for field in kept.keys() & set(NUMBERS):
        number(kept, field)
    for field in kept.keys() & {"job_name", "status"}:
        text(kept, field)
    return kept


def merged(known: Record, told: Record) -> Record:
    after = {**known, **checked(told)}
    if len(json.dumps(after)) > BODY_BYTES_MAX:
        raise TooLarge(f"the record of {known.get('job_name')!r} would have more than {BODY_BYTES_MAX} bytes")
    return after


def with_checkpoint(known: Record, told: Record) -> Record:
    since = number(told, "last_checkpoint_time") - known["last_checkpoint_time"]
    fields = ("last_checkpoint_time", "completed_epochs", "total_epochs")
    given = {field: told[field] for field in fields if told.get(field) is not None}
    return merged(known, given) | {"time_bw_checkpoints": since}


# -- which, in what order ------------------------------------------------------------------------------------------


def by_arrival(records: list[Record]) -> list[Record]:
    return sorted((one for one in records if _is_open(one)), key=lambda one: float(one["job_arrival_time"]))


def by_checkpoint_limit(records: list[Record]) -> list[Record]:
    return _newest_checkpoint([one for one in records if _is_open(one) and one["gpu_assigned"] < one["gpu_lim"]])


def by_difference(records: list[Record], difference: int) -> list[Record]:
    found = [one for one in records if _is_open(one) and one["gpu_lim"] - one["gpu_assigned"] == difference]
    return _newest_checkpoint(found)


def scale_down(records: list[Record], needed: int) -> list[Record]:
    found = [one for one in records if _is_open(one) and one["gpu_assigned"] - one["gpu_req"] >= needed]
    return _newest_checkpoint(found)


def _is_open(record: Record) -> bool:
    return bool(record["status"] != "completed")


def _newest_checkpoint(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda one: -float(one["last_checkpoint_time"]))
