"""What does a job do with its GPUs, and how well is that known?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swell.model.cluster import Device
from swell.model.launch import GpuSeen
from swell.model.plan import Snapshot
from swell.store import JobRecord


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
