"""What does a job look like on the wire? docs/json.md promises these fields; tests hold us to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from swell.controller.foresight import StartForeseen
from swell.controller.what_if import Outlook
from swell.model.attempt import Asked
from swell.model.cluster import Device, Node
from swell.model.job import JobId
from swell.model.launch import TAG_LABEL, GpuSeen
from swell.model.placement import GROUP_TAINT
from swell.model.plan import Slot, Snapshot
from swell.model.reason import Reason
from swell.model.training import TrainingRecord
from swell.store import AttemptRecord, EventRecord, JobRecord, TaskRecord


def gpu_documents(job: JobRecord, snapshot: Snapshot, seen: Sequence[GpuSeen]) -> dict[str, Any]:
    """`gpu_memory` and `idle_policy`; null where the job has nothing to do with them."""
    held = _held(job, snapshot)
    return {"gpu_memory": _memory(job, held, seen), "idle_policy": _idle(job, held, seen)}


def _held(job: JobRecord, snapshot: Snapshot) -> list[Device]:
    view = snapshot.jobs_by_id.get(job.id)
    places = {(slot.node, device) for slot in view.slots for device in slot.devices} if view else set()
    return [device for node in snapshot.nodes for device in node.devices if (node.id, device.id) in places]


def _memory(job: JobRecord, held: list[Device], seen: Sequence[GpuSeen]) -> dict[str, Any] | None:
    wants = [role.resources for role in job.spec.roles if role.resources.gpus or role.resources.gpu_memory_mib]
    if not wants:
        return None
    shares = [task.gpu_memory_mib for task in wants if not task.gpus]
    is_watched = bool(held) and all(device.is_watched for device in held)
    return {
        "reserved_mib": job.gpu_memory_mib if job.gpu_memory_mib is not None else max(shares, default=None),
        "level": None if not held else "watched" if is_watched else "accounted",
        "now_mib": sum(one.memory_mib for one in seen) if is_watched and seen else None,
        "peak_mib": job.gpu_peak_mib,
    }


def _idle(job: JobRecord, held: list[Device], seen: Sequence[GpuSeen]) -> dict[str, Any] | None:
    policy = job.spec.idle
    if policy is None:
        return None
    return {
        "min_gpu_utilization": policy.min_gpu_utilization,
        "window_s": policy.window_s,
        "measured": None if not held else not any(device.simulated for device in held),
        "quiet_s": min((one.quiet_s for one in seen), default=None),
    }


#: Fields of a job in the queue that everybody sees. A field that is not named here is its owner's and administrators'.
SHOWN_OF_OTHERS = frozenset(
    {"id", "name", "user", "state", "reason", "priority", "width", "width_min", "width_max", "width_unit"}
    | {"tasks_beside", "is_array", "submitted_at", "started_at", "ended_at", "ran_s", "running_since", "nodes"}
)
#: what stands in their place for everybody else
HIDDEN_FROM_OTHERS = {
    "metrics": {},
    "attempts": 0,
    "resizes": 0,
    "preemptions": 0,
    "failures": 0,
    "lost_gpu_seconds": 0.0,
    "expected_start": None,
    "exit_code": None,
    "version": 0,
}
TASKS_SHOWN_MAX = 1000  # of an array; `tasks` in the job itself always has the counts


def iso(moment: float | None) -> str | None:
    """ISO 8601 in UTC, to the microsecond; None stays None."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def job_document(job: JobRecord, reason: Reason | None, start: StartForeseen | None = None) -> dict[str, Any]:
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
        "width_unit": str(job.width_unit),
        "tasks_beside": job.tasks_beside,
        "is_array": job.is_array,
        "tasks": {
            "total": job.tasks_total,
            "running": job.tasks_running,
            "succeeded": job.tasks_succeeded,
            "failed": job.tasks_failed,
            "stopped": job.tasks_stopped,
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
        "expected_start": None if start is None else {"earliest": iso(start.earliest), "latest": iso(start.latest)},
        "ran_s": round(job.ran_s, 3),
        "running_since": iso(job.running_since),
        "exit_code": job.exit_code,
        "nodes": list(job.nodes),
        "version": job.version,
    }


def what_if_document(one: Outlook, now: float, problem: str | None) -> dict[str, Any]:
    """`swell what-if -o json`; `problem`: why it could never run here, None: it could."""
    start = StartForeseen.of(now, one.start)
    return {
        "name": one.name,
        "fits": problem is None,
        "problem": problem,
        "starts_now": one.reason is None,
        "expected_start": None if start is None else {"earliest": iso(start.earliest), "latest": iso(start.latest)},
        "expected_in_s": [_tenth(one.start.earliest_s), _tenth(one.start.latest_s)],
        "width": one.width,
        "nodes": list(one.nodes),
        "reason": None if one.reason is None else one.reason.to_document(),
        "changes": [asdict(change) for change in one.changes],
    }


def _tenth(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def queue_document(job: JobRecord) -> dict[str, Any]:
    """What everybody may see of somebody else's job: the fields of `job_document`, most of them empty."""
    shown = {name: value for name, value in job_document(job, None).items() if name in SHOWN_OF_OTHERS}
    if job.reason_code is not None:
        shown["reason"] = {"code": str(job.reason_code), "message": "", "evidence": {}, "next": ""}
    tasks = {"total": job.tasks_total, "running": job.tasks_running, "succeeded": 0, "failed": 0, "stopped": 0}
    return {**HIDDEN_FROM_OTHERS, **shown, "tasks": tasks, "progress": _progress(None)}


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
    labels = dict(node.labels or ())
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
        "tag": labels.get(TAG_LABEL, ""),
        "group": next((taint.value for taint in node.taints if taint.key == GROUP_TAINT), ""),
        "cordoned": node.is_cordoned,
        "preemptible": node.is_preemptible,
        "backend": None if node.backend is None else asdict(node.backend),
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
