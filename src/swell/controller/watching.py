"""What follows from what a job does with its GPUs?

A job that shares a GPU has reserved a part of its memory, by its user's guess. Where the driver tells who uses how much
(`watched`) a job above its reservation is dealt with as its policy says; elsewhere (`accounted`) reservations are only
added up. After the first epoch what was measured, with a margin, takes the place of the guess. A job whose GPUs idle
for its whole window is stopped, if that was asked for.
"""

from __future__ import annotations

from dataclasses import replace

from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.controller.yielding import Stop, ask, can_stop_now, stop
from swell.model.attempt import Failure
from swell.model.job import JobState, Overrun
from swell.model.launch import RunSeen
from swell.model.reason import Code, Evidence
from swell.store import Changes, EventRecord

MARGIN = 1.1  # allocators fragment, and a later batch may be larger than any before
MARGIN_MIB_MIN = 256  # of a small job: what one library's workspace takes
ROUND_MIB = 64
CONTEXT_MIB = 512  # of CUDA itself in one process, which frameworks do not count; 300 to 500 on present cards
WATCHED_S_MIN = 30.0  # of training, before samples alone may lower a reservation: short peaks fall between them


def note_use(job: LiveJob, run: RunSeen) -> bool:
    """Take what was measured into account; False when it says nothing new."""
    if run.gpu is None or job.progress.gpu.get(run.node) == run.gpu:
        return False
    job.progress.gpu = {**job.progress.gpu, run.node: run.gpu}
    if run.gpu.peak_mib > (job.record.gpu_peak_mib or 0):
        job.record = replace(job.record, gpu_peak_mib=run.gpu.peak_mib)
    return True


def judge(world: World, job: LiveJob, changes: Changes, now: float) -> list[Stop]:
    """What is done about a running job for what its present attempt does."""
    if _is_idle(job):
        return _stop_idle(job, changes)
    reserved = reserved_mib(job)
    used = max((seen.peak_mib for seen in job.progress.gpu.values()), default=0)
    if reserved is None or used <= reserved:
        return []
    return _overrun(world, job, changes, now, reserved=reserved, used=used)


def reserved_mib(job: LiveJob) -> int | None:
    """Of the GPU it shares; None: it shares none."""
    shares = [task.gpu_memory_mib for task, _ in job.shape.roles if task.gpus == 0 and task.gpu_memory_mib > 0]
    if not shares:
        return None
    return max(shares) if job.record.gpu_memory_mib is None else job.record.gpu_memory_mib


# -- memory --------------------------------------------------------------------------------------------------


def _overrun(world: World, job: LiveJob, changes: Changes, now: float, *, reserved: int, used: int) -> list[Stop]:
    need = _needed(world, job, used)
    if need is None or need <= reserved:  # it has all of the GPU already
        return []
    detail = {"reserved_mib": reserved, "used_mib": used, "policy": str(job.terms.on_overrun)}
    changes.events.append(EventRecord("GpuMemoryOverrun", job.id, detail=detail))
    cause = f"it uses {used} MiB of the GPU it shares and had reserved {reserved} MiB"
    if job.terms.on_overrun is Overrun.STOP:
        evidence: Evidence = {"job": job.id, "reserved_mib": reserved, "used_mib": used, "needs_mib": need}
        return stop(job, changes, cause, None, Failure(Code.GPU_MEMORY_OVERRUN, evidence))
    job.record = replace(job.record, gpu_memory_mib=need)
    if job.terms.on_overrun is Overrun.YIELD and can_stop_now(job):
        return ask(world, job, changes, now, width=0, when=job.mode, cause=cause)
    return []


def learn(world: World, job: LiveJob, changes: Changes, now: float) -> None:
    """After an epoch of a job that shares: what it needs, by what was measured. Later only more of it."""
    reserved, peak = reserved_mib(job), _measured_mib(job, now)
    if reserved is None or peak is None or not _has_finished_an_epoch(job):
        return
    need = _needed(world, job, peak)
    if need is None or need == reserved or (job.record.gpu_memory_mib is not None and need < reserved):
        return
    job.record = replace(job.record, gpu_memory_mib=need)
    job.write(changes)
    detail = {"reserved_mib": need, "before_mib": reserved, "peak_mib": peak}
    changes.events.append(EventRecord("GpuMemoryMeasured", job.id, detail=detail))


def _measured_mib(job: LiveJob, now: float) -> int | None:
    """The most it has used; None: not known yet. The library misses CUDA's own part, samples miss short peaks."""
    told = [one.memory_mib for one in (job.training.profile if job.training else ()) if one.memory_mib]
    by_library = int(max(told)) + CONTEXT_MIB if told else 0
    is_enough = job.progress.began_at is not None and now - job.progress.began_at >= WATCHED_S_MIN
    by_driver = job.record.gpu_peak_mib or 0
    return max(by_library, by_driver) or None if by_library or is_enough else None


def _has_finished_an_epoch(job: LiveJob) -> bool:
    return job.training is not None and job.training.epochs_done >= 1


def _needed(world: World, job: LiveJob, peak_mib: int) -> int | None:
    """With a margin, and never more than the GPU has: it would wait for ever. None: its GPU is not known."""
    held = [(slot.node, device) for slot in job.slots for device in slot.devices]
    known = [mib for place, mib in world.gpus.items() if place in held or (not held and place[0] in job.record.nodes)]
    if not known:
        return None
    with_margin = max(int(MARGIN * peak_mib), peak_mib + MARGIN_MIB_MIN)
    return min(max(known), -(-with_margin // ROUND_MIB) * ROUND_MIB)


# -- idle GPUs -----------------------------------------------------------------------------------------------


def _is_idle(job: LiveJob) -> bool:
    """On every node, for the whole window."""
    if job.terms.idle is None or job.state is not JobState.RUNNING:
        return False
    window_s = job.terms.idle.window_s
    return all(node in job.progress.gpu and job.progress.gpu[node].quiet_s >= window_s for node in job.record.nodes)


def _stop_idle(job: LiveJob, changes: Changes) -> list[Stop]:
    assert job.terms.idle is not None
    below, window_s = job.terms.idle.min_gpu_utilization, job.terms.idle.window_s
    evidence: Evidence = {"job": job.id, "min_gpu_utilization": below, "window_s": window_s}
    changes.events.append(EventRecord("GpuIdle", job.id, detail=dict(evidence)))
    cause = f"none of its GPUs has reached {below} % within {window_s:.0f} s"
    return stop(job, changes, cause, None, Failure(Code.GPU_IDLE, evidence))
