"""What does the store hand out and take in?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Row

from swell.model.job import JobId, JobSpec, JobState
from swell.model.plan import Slot
from swell.model.reason import Code, Evidence
from swell.model.resources import Resources
from swell.model.training import Asked, Resume, TrainingRecord
from swell.store import tables

# Of thousands of rows every second: calling an enumeration costs more than the rest of them.
STATES = {str(state): state for state in JobState}
CODES: dict[str | None, Code | None] = {None: None, **{str(code): code for code in Code}}
JOB_COLUMNS = tuple(tables.job.columns.keys())  # once, and not of each row


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission that has been read and found good."""

    spec: JobSpec
    owner: str
    environment: dict[str, str]
    uid: int | None = None  #: as whom its tasks run; None: as the server itself
    manifest: dict[str, Any] | None = None  #: what its object is made from; None: it is none


@dataclass(frozen=True, slots=True)
class JobRecord:
    id: JobId
    version: int
    name: str
    owner: str
    state: JobState
    reason_code: Code | None  #: None: running or succeeded
    reason_evidence: Evidence
    priority: int
    spec_text: str  #: as stored; `spec` parses it, which a listing of thousands does not need
    environment: str
    submitted_at: float
    started_at: float | None  #: None: no task has begun
    ended_at: float | None  #: None: has not ended
    exit_code: int | None  #: None: not ended, or not known
    cancel_requested_by: str | None  #: None: nobody asked
    cancel_grace_s: float | None  #: None: as the spec says
    attempts: int
    width: int
    width_min: int
    width_max: int
    tasks_total: int
    tasks_running: int
    tasks_succeeded: int
    tasks_failed: int
    nodes: tuple[str, ...]
    training_text: str | None = None  #: as stored; None: it has reported nothing
    lost_gpu_seconds: float = 0.0
    resizes: int = 0
    preemptions: int = 0
    failures: int = 0
    used_s: float = 0.0
    held_by: str | None = None  #: None: nobody asked that it wait
    wanted_width: int | None = None  #: None: the planner's choice
    queued_at: float | None = None  #: when it last began to wait; None: when it was submitted
    reserved_at: float | None = None  #: None: no room is being made for it
    reserved_until: float | None = None  #: None: as above
    retry_at: float | None = None  #: None: at once
    notice_due: int = 0
    gpu_memory_mib: int | None = None  #: what it was seen to need on a GPU it shares; None: what its spec says
    gpu_peak_mib: int | None = None  #: the most it was seen to use on one GPU; None: not measured
    uid: int | None = None  #: as whom its tasks run; None: as the server itself
    manifest: str = ""  #: hash of what its object is made from; empty: it is none
    unplaced: int = 0  #: attempts in a row that could not be placed
    problem: str = ""  #: why not, in the words of who refused
    stored_bytes: int = 0  #: its share of what its submission brought
    given: JobSpec | None = field(default=None, compare=False, repr=False)  #: what it was made from; None: it was read

    @property
    def training(self) -> TrainingRecord | None:
        return None if self.training_text is None else TrainingRecord.from_document(json.loads(self.training_text))

    @property
    def spec(self) -> JobSpec:
        return self.given or JobSpec.from_document(json.loads(self.spec_text))


@dataclass(frozen=True, slots=True)
class Outline:
    """How a job stands, as far as it is told to everybody who may see its object."""

    id: JobId
    state: JobState
    reason_code: Code | None  #: None: running or succeeded
    width: int  #: 0: it does not run
    attempts: int

    @classmethod
    def of(cls, job: JobRecord) -> Outline:
        return cls(job.id, job.state, job.reason_code, job.width, job.attempts)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    job_id: JobId
    number: int
    width: int
    slots: tuple[Slot, ...]
    revision: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    outcome: str | None  #: None: not ended
    placements: list[dict[str, Any]]  #: what it was given at its start; kept after the end
    resume: Resume = field(default_factory=lambda: Resume())
    asked: Asked | None = None  #: None: nobody asked it to give room back
    since: dict[int, float] = field(default_factory=dict)  #: number of a slot that it was given later → when
    changed_at: float | None = None  #: when its slots last changed, not stored; None: not since the server started
    lost_s: float = 0.0  #: of its time: work that must be done again


@dataclass(frozen=True, slots=True)
class TaskRecord:
    job_id: JobId
    attempt: int
    index: int
    node: str
    lane: int
    started_at: float
    ended_at: float | None
    exit_code: int | None
    cause: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord:
    kind: str
    job_id: JobId | None = None
    actor: str = "swell"
    detail: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    id: int = 0  #: given by the store
    origin: str = ""  #: from where it was asked; empty: from nowhere but here


def job_record(row: Row[Any]) -> JobRecord:
    """Of a row with all columns of its table."""
    values: dict[str, Any] = dict(zip(JOB_COLUMNS, row, strict=True))
    values["state"] = STATES[values["state"]]
    values["reason_code"] = CODES[values["reason_code"]]
    values["reason_evidence"] = json.loads(values["reason_evidence"])
    values["spec_text"] = values.pop("spec")
    values["training_text"] = values.pop("training")
    values["nodes"] = tuple(json.loads(values["nodes"]))
    return JobRecord(**values)


def attempt_record(row: Row[Any]) -> AttemptRecord:
    values = dict(row._mapping)
    values["slots"] = _parse_slots(values["slots"])
    values["placements"] = json.loads(values["placements"])
    values["resume"] = Resume(**json.loads(values["resume"]))
    values["asked"] = None if values["asked"] is None else Asked.from_document(json.loads(values["asked"]))
    values["since"] = {int(number): at for number, at in json.loads(values["since"]).items()}
    return AttemptRecord(**values)


def task_record(row: Row[Any]) -> TaskRecord:
    values = dict(row._mapping)
    values["index"] = values.pop("task_index")
    return TaskRecord(**values)


def event_record(row: Row[Any]) -> EventRecord:
    values = dict(row._mapping)
    values["detail"] = json.loads(values["detail"])
    return EventRecord(**values)


def attempt_row(record: AttemptRecord) -> dict[str, Any]:
    return {
        "job_id": record.job_id,
        "number": record.number,
        "width": record.width,
        "slots": _slots_text(record.slots),
        "revision": record.revision,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "outcome": record.outcome,
        "placements": json.dumps(record.placements),
        "resume": json.dumps(asdict(record.resume)),
        "asked": None if record.asked is None else json.dumps(record.asked.to_document()),
        "since": json.dumps(record.since),
        "lost_s": record.lost_s,
    }


def task_row(record: TaskRecord) -> dict[str, Any]:
    return {
        "job_id": record.job_id,
        "attempt": record.attempt,
        "task_index": record.index,
        "node": record.node,
        "lane": record.lane,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "exit_code": record.exit_code,
        "cause": record.cause,
        "problem": record.problem,
    }


def event_row(record: EventRecord, now: float) -> dict[str, Any]:
    detail = json.dumps(record.detail)
    return {
        "at": record.at or now,
        "job_id": record.job_id,
        "kind": record.kind,
        "actor": record.actor,
        "detail": detail,
        "origin": record.origin,
    }


def _slots_text(slots: tuple[Slot, ...]) -> str:
    return json.dumps([_slot_document(slot) for slot in slots])


def _slot_document(slot: Slot) -> dict[str, Any]:
    return {
        "number": slot.number,
        "node": slot.node,
        "cpus_milli": slot.resources.cpus_milli,
        "memory_mib": slot.resources.memory_mib,
        "gpus": slot.resources.gpus,
        "gpu_memory_mib": slot.resources.gpu_memory_mib,
        "devices": list(slot.devices),
        "is_draining": slot.is_draining,
    }


def _parse_slots(text: str) -> tuple[Slot, ...]:
    return tuple(
        Slot(
            slot["number"],
            slot["node"],
            Resources(slot["cpus_milli"], slot["memory_mib"], slot["gpus"], slot.get("gpu_memory_mib", 0)),
            tuple(slot["devices"]),
            slot["is_draining"],
        )
        for slot in json.loads(text)
    )
