"""What does the store hand out and take in?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Row

from swell.model.attempt import Asked, Resume, Stopping
from swell.model.codec import from_document, to_document
from swell.model.identity import Identity
from swell.model.job import Dimension, JobId, JobSpec, JobState
from swell.model.plan import Slot
from swell.model.reason import Code, Evidence
from swell.model.training import TrainingRecord
from swell.store import tables
from swell.store.storable import to_json

# Of thousands of rows every second: calling an enumeration costs more than the rest of them.
STATES = {str(state): state for state in JobState}
CODES: dict[str | None, Code | None] = {None: None, **{str(code): code for code in Code}}
ATTEMPT_DOCUMENTS = ("slots", "placements", "resume", "asked", "stopping", "since")  # columns that hold JSON
JOB_COLUMNS = tuple(tables.job.columns.keys())  # once, and not of each row


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission that has been read and found good."""

    spec: JobSpec
    owner: str
    environment: dict[str, str]
    uid: int | None = None  #: as whom its tasks run; None: as the server itself
    manifest: dict[str, Any] | None = None  #: what its object is made from; None: it is none
    takes_name: bool = False  #: only if no job of its owner's that has not ended has it
    identity: Identity | None = None  #: of a cluster's user, whose rights count; None: nobody's are asked


def identity_text(identity: Identity | None) -> str | None:
    """As it is stored."""
    return None if identity is None else json.dumps(to_document(identity))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What the controller changes of a job; each field is a column of its table, each default that of a new job."""

    state: JobState = JobState.QUEUED
    reason_code: Code | None = Code.NOT_YET_PLANNED  #: None: running or succeeded
    reason_evidence: Evidence = field(default_factory=dict)
    started_at: float | None = None  #: None: no task has begun
    attempts: int = 0
    width: int = 0
    tasks_total: int
    tasks_running: int = 0
    tasks_succeeded: int = 0
    tasks_failed: int = 0  #: by themselves
    tasks_stopped: int = 0  #: by us; they did not fail
    first_attempt: int = 1  #: of its present life; a requeue of one that has ended begins another
    nodes: tuple[str, ...] = ()
    lost_gpu_seconds: float = 0.0
    resizes: int = 0
    preemptions: int = 0
    failures: int = 0
    used_s: float = 0.0  #: run time of attempts that have ended, in its present life
    ran_s: float = 0.0  #: the same in all its lives; the waits between attempts are no part of it
    running_since: float | None = None  #: None: no task of its present attempt has begun
    held_by: str | None = None  #: None: nobody asked that it wait
    wanted_width: int | None = None  #: None: the planner's choice
    queued_at: float | None = None  #: when it last began to wait; None: when it was submitted
    reserved_at: float | None = None  #: None: no room is being made for it
    reserved_until: float | None = None  #: None: as above
    retry_at: float | None = None  #: None: at once
    gpu_memory_mib: int | None = None  #: what it was seen to need on a GPU it shares; None: what its spec says
    gpu_peak_mib: int | None = None  #: the most it was seen to use on one GPU; None: not measured
    unplaced: int = 0  #: attempts in a row that could not be placed
    problem: str = ""  #: why not, in the words of who refused

    @classmethod
    def of(cls, record: JobRecord) -> JobStatus:
        return cls(**{name: getattr(record, name) for name in STATUS})

    def columns(self) -> dict[str, Any]:
        """The new values of its columns, as `Changes.jobs` has them."""
        values = {name: getattr(self, name) for name in STATUS}
        values["state"] = str(self.state)
        values["reason_code"] = None if self.reason_code is None else str(self.reason_code)
        return values


STATUS = tuple(one.name for one in fields(JobStatus))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord(JobStatus):
    """A job as it is stored."""

    id: JobId
    version: int = 1  #: goes up with every change
    name: str
    owner: str
    priority: int
    spec_text: str  #: as stored; `spec` parses it, which a listing of thousands does not need
    environment: str
    submitted_at: float
    ended_at: float | None = None  #: None: has not ended
    exit_code: int | None = None  #: None: not ended, or not known
    cancel_requested_by: str | None = None  #: None: nobody asked
    cancel_grace_s: float | None = None  #: None: as the spec says
    width_min: int
    width_max: int
    training_text: str | None = None  #: as stored; None: it has reported nothing
    notice_due: int = 0
    uid: int | None = None  #: as whom its tasks run; None: as the server itself
    manifest: str = ""  #: hash of what its object is made from; empty: it is none
    stored_bytes: int = 0  #: its share of what its submission brought
    identity: str | None = None  #: as stored, of who submitted it; None: nobody's rights are asked
    given: JobSpec | None = field(default=None, compare=False, repr=False)  #: what it was made from; None: it was read

    @property
    def training(self) -> TrainingRecord | None:
        return None if self.training_text is None else TrainingRecord.from_document(json.loads(self.training_text))

    @property
    def submitter(self) -> Identity | None:
        return None if self.identity is None else from_document(Identity, json.loads(self.identity))

    @property
    def is_array(self) -> bool:
        """Told from the text, for listings: within a value of it the quotes would have backslashes before them."""
        return '"array": null' not in self.spec_text

    @property
    def width_unit(self) -> Dimension:
        """Found in the text of the spec without parsing it, as `is_array` is."""
        return Dimension.GPUS if f'"dimension": "{Dimension.GPUS}"' in self.spec_text else Dimension.TASKS

    @property
    def tasks_beside(self) -> int:
        """Tasks of other roles, which there are beside those that its width counts."""
        if self.is_array or self.width_unit is Dimension.GPUS:
            return 0
        if self.width_min == self.width_max:
            return self.tasks_total - self.width_min
        return sum(role.count for role in self.spec.roles[1:])

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
    stopping: Stopping | None = None  #: None: nobody has stopped it
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
    """The record of a row that has all columns of the job table."""
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
    read = {name: json.loads(values[name]) for name in ATTEMPT_DOCUMENTS if values[name] is not None}
    return from_document(AttemptRecord, values | read)


def task_record(row: Row[Any]) -> TaskRecord:
    values = dict(row._mapping)
    values["index"] = values.pop("task_index")
    return TaskRecord(**values)


def event_record(row: Row[Any]) -> EventRecord:
    values = dict(row._mapping)
    values["detail"] = json.loads(values["detail"])
    return EventRecord(**values)


def attempt_row(record: AttemptRecord) -> dict[str, Any]:
    values: dict[str, Any] = to_document(record)
    del values["changed_at"]
    return values | {name: to_json(values[name]) for name in ATTEMPT_DOCUMENTS if values[name] is not None}


def task_row(record: TaskRecord) -> dict[str, Any]:
    values: dict[str, Any] = to_document(record)
    values["task_index"] = values.pop("index")
    return values


def event_row(record: EventRecord, now: float) -> dict[str, Any]:
    detail = to_json(record.detail)
    return {
        "at": record.at or now,
        "job_id": record.job_id,
        "kind": record.kind,
        "actor": record.actor,
        "detail": detail,
        "origin": record.origin,
    }
