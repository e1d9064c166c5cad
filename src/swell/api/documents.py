"""What does a job look like on the wire? docs/json.md promises these fields; tests hold us to them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from swell.model.cluster import Device, Node
from swell.model.job import JobId
from swell.model.plan import Slot, Snapshot
from swell.model.reason import Reason
from swell.model.training import Asked, TrainingRecord
from swell.store import AttemptRecord, EventRecord, JobRecord, TaskRecord

TASKS_SHOWN_MAX = 1000  # of an array; `tasks` in the job itself always has the counts


def iso(moment: float | None) -> str | None:
    """ISO 8601 in UTC, to the microsecond; None stays None."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def job_document(job: JobRecord, reason: Reason | None) -> dict[str, Any]:
    training = job.training
    return {
        "id": job.id,
        "name": job.name,
        "user": job.owner,
        "state": str(job.state),
        "reason": None if reason is None else reason.to_document(),
        "priority": job.priority,
        "width": job.width,
        "width_min": job.width_min,
        "width_max": job.width_max,
        "tasks": {
            "total": job.tasks_total,
            "running": job.tasks_running,
            "succeeded": job.tasks_succeeded,
            "failed": job.tasks_failed,
        },
        "progress": _progress(training),
        "metrics": {} if training is None else training.metrics,
        "attempts": job.attempts,
        "resizes": job.resizes,
        "preemptions": job.preemptions,
        "failures": job.failures,
        "lost_gpu_seconds": round(job.lost_gpu_seconds, 3),
        "submitted_at": iso(job.submitted_at),
        "started_at": iso(job.started_at),
        "ended_at": iso(job.ended_at),
        "exit_code": job.exit_code,
        "nodes": list(job.nodes),
        "version": job.version,
    }


def queue_document(job: JobRecord) -> dict[str, Any]:
    """What everybody may see of somebody else's job: the fields of `job_document`, most of them empty."""
    code = (
        None if job.reason_code is None else {"code": str(job.reason_code), "message": "", "evidence": {}, "next": ""}
    )
    return {
        **job_document(job, None),
        "reason": code,
        "tasks": {"total": job.tasks_total, "running": job.tasks_running, "succeeded": 0, "failed": 0},
        "progress": _progress(None),
        "metrics": {},
        "attempts": 0,
        "resizes": 0,
        "preemptions": 0,
        "failures": 0,
        "lost_gpu_seconds": 0.0,
        "exit_code": None,
        "version": 0,
    }


def _progress(training: TrainingRecord | None) -> dict[str, Any]:
    """Null where nothing was reported."""
    if training is None:
        return {"epochs_done": None, "epochs_total": None, "expected_end_at": None}
    return {
        "epochs_done": training.epochs_done,
        "epochs_total": training.epochs_total,
        "expected_end_at": iso(training.ends_at),
    }


@dataclass(frozen=True, slots=True)
class ShownTasks:
    """Of each attempt the first few, and how many there are."""

    first: list[TaskRecord]
    counts: dict[int, int]


def full_document(
    job: JobRecord,
    reason: Reason | None,
    attempts: list[AttemptRecord],
    tasks: ShownTasks,
    events: list[EventRecord],
) -> dict[str, Any]:
    """`swell show -o json`: the listing's fields, and what is behind them; `attempts` is the list, not its length."""
    spec = json.loads(job.spec_text)
    return {
        **job_document(job, reason),
        "spec": spec,
        "training": None if job.training is None else _training_document(job.training),
        "held_by": job.held_by,
        "wanted_width": job.wanted_width,
        "used_s": round(job.used_s, 3),
        "attempts": [_attempt_document(attempt, tasks) for attempt in attempts],
        "events": [event_document(event) for event in events],
    }


def _training_document(training: TrainingRecord) -> dict[str, Any]:
    checkpoint = training.checkpoint
    return {
        "checkpoint": None
        if checkpoint is None
        else {
            "epochs_done": checkpoint.epochs_done,
            "path": checkpoint.path,
            "at": iso(checkpoint.at),
            "attempt": checkpoint.attempt,
        },
        "checkpoint_every_s": training.every_s,
        "restart_s": training.restart_s,
        "profile": [asdict(measure) for measure in training.profile],
    }


def _attempt_document(attempt: AttemptRecord, tasks: ShownTasks) -> dict[str, Any]:
    own = [task for task in tasks.first if task.attempt == attempt.number]
    return {
        "number": attempt.number,
        "width": attempt.width,
        "placements": attempt.placements,
        "created_at": iso(attempt.created_at),
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "outcome": attempt.outcome,
        "resumed_from_epoch": attempt.resume.epochs_done,
        "asked": None if attempt.asked is None else _asked_document(attempt.asked),
        "tasks": [_task_document(task) for task in own],
        "tasks_not_shown": max(0, tasks.counts.get(attempt.number, 0) - len(own)),
    }


def _asked_document(asked: Asked) -> dict[str, Any]:
    return {
        "width": asked.width,
        "when": str(asked.when),
        "cause": asked.cause,
        "at": iso(asked.at),
        "deadline_at": iso(asked.deadline_at),
        "room_for": asked.room_for,
        "stop_after_epoch": asked.stop_after_epoch,
    }


def _task_document(task: TaskRecord) -> dict[str, Any]:
    return {
        "index": task.index,
        "node": task.node,
        "started_at": iso(task.started_at),
        "ended_at": iso(task.ended_at),
        "exit_code": task.exit_code,
        "cause": task.cause or None,
    }


def event_document(event: EventRecord) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": iso(event.at),
        "job": event.job_id,
        "kind": event.kind,
        "actor": event.actor,
        "origin": event.origin,
        "detail": event.detail,
    }


def node_document(node: Node, snapshot: Snapshot) -> dict[str, Any]:
    held = [(job.id, slot) for job, slot in snapshot.held() if slot.node == node.id]
    return {
        "name": node.id,
        "reachable": node.is_reachable,
        "cpus": node.cpus_milli / 1000,
        "cpus_free": (node.cpus_milli - sum(slot.resources.cpus_milli for _, slot in held)) / 1000,
        "memory_mib": node.memory_mib,
        "memory_mib_free": node.memory_mib - sum(slot.resources.memory_mib for _, slot in held),
        "gpus": [_gpu_document(device, held) for device in node.devices],
        "jobs": sorted({job for job, _ in held}),
        "container_runtime": node.container_runtime,
        "not_enforced": [{"limit": limit, "why": why} for limit, why in node.unenforced],
    }


def _gpu_document(device: Device, held: list[tuple[JobId, Slot]]) -> dict[str, Any]:
    """Held by one job whole, or shared by several."""
    holders = [(job, slot.resources) for job, slot in held if device.id in slot.devices]
    whole = next((job for job, resources in holders if not resources.is_share), None)
    shares = [{"job": job, "memory_mib": resources.gpu_memory_mib} for job, resources in holders if resources.is_share]
    promised = device.memory_mib if whole is not None else sum(resources.gpu_memory_mib for _, resources in holders)
    return {
        "id": device.id,
        "model": device.model,
        "memory_mib": device.memory_mib,
        "memory_mib_free": max(0, device.memory_mib - promised - device.outsiders_mib),
        "outsiders_mib": device.outsiders_mib,
        "simulated": device.simulated,
        "watched": device.is_watched,
        "job": whole,
        "shares": shares,
    }
