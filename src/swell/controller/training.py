"""What follows from what a job says of itself?

Reports are facts like those of the workers, with one difference: they come from code that is not ours, so what cannot
be true is refused and changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.errors import Conflict, Rejected
from swell.model.job import JobState
from swell.model.training import METRICS_MAX, Checkpoint, Control, Report, TrainingRecord, mixed
from swell.store import Changes
from swell.throughput import predict

LEFT_S_MAX = 100 * 365 * 86400.0  # what would take a century has no date one could tell


def control_of(job: LiveJob) -> Control:
    asked = job.asked
    if asked is None:
        return Control()
    return Control(
        asked.stop_after_epoch,
        yield_now=job.state is JobState.STOPPING,
        stop_at_step=asked.stop_at_step,
        tell_step=asked.tells_step and asked.stop_at_step is None,
    )


def fold_report(world: World, report: Report, changes: Changes, now: float) -> float | None:
    """Bring the job up to what it says. Tells what its start cost, in seconds; None: it trained before."""
    job = world.jobs.get(report.attempt.job)
    if job is None:
        raise Conflict(f"attempt {report.attempt} is over: job {report.attempt.job} has ended")
    if job.attempt is None or job.attempts != report.attempt.number:
        raise Conflict(f"attempt {report.attempt} is over: job {job.id} is at attempt {job.attempts}")
    known = job.training or TrainingRecord(epochs_done=job.attempt.resume.epochs_done, epochs_total=job.terms.epochs)
    had_begun = job.progress.began_at is not None
    if report.rank == 0:
        _refuse_backwards(job, known, report)
    if report.begun is not None:
        job.progress.note_epoch(report.rank, report.begun, now)
    if report.rank == 0:
        job.training = _updated(job, known, report, now)
        world.curves.learn(job.terms.script, job.id, job.training)
        job.write(changes)
    elif job.training is None:
        job.training = known
        job.write(changes)
    return None if had_begun or job.progress.began_at is None else _restart_s(job, now)


def _restart_s(job: LiveJob, now: float) -> float:
    """From the stop of training to training again."""
    assert job.attempt is not None
    return max(0.0, now - job.attempt.created_at) + job.wound_down_s


def _refuse_backwards(job: LiveJob, known: TrainingRecord, report: Report) -> None:
    assert job.attempt is not None
    floor = max(job.attempt.resume.epochs_done, known.epochs_done)
    if _is_inside_epoch(job, known):
        floor = int(floor)  # it counts whole epochs
    if report.epochs_done is not None and report.epochs_done < floor:
        raise Rejected(
            f"epochs go backwards: {report.epochs_done:g} done, but {floor:g} were reported before; "
            "a restarted job goes on from EPOCHS_DONE"
        )
    durable = known.checkpoint.epochs_done if known.checkpoint else 0.0
    if report.checkpoint is not None and report.checkpoint.epochs_done < durable:
        raise Rejected(
            f"the checkpoint holds {report.checkpoint.epochs_done:g} epochs, but one of {durable:g} was reported before"
        )
    total = report.epochs_total
    if total is not None and report.epochs_done is not None and report.epochs_done > total:
        raise Rejected(f"{report.epochs_done:g} epochs done of {total:g} cannot be; report the true total")


def _is_inside_epoch(job: LiveJob, known: TrainingRecord) -> bool:
    """Does what is known of it hold a part of an epoch?"""
    assert job.attempt is not None
    return bool(job.attempt.resume.steps_done or (known.checkpoint and known.checkpoint.steps_done))


def _updated(job: LiveJob, known: TrainingRecord, report: Report, now: float) -> TrainingRecord:
    assert job.attempt is not None
    after = known
    if job.progress.began_at is None and (report.begun or report.epochs_done is not None):
        job.progress.began_at = now  # the first sign of training tells what the start cost
        after = replace(after, restart_s=mixed(after.restart_s, _restart_s(job, now)))
    if report.epochs_total is not None:
        after = replace(after, epochs_total=report.epochs_total)
    if report.epochs_done is not None:
        after = replace(after, epochs_done=max(report.epochs_done, after.epochs_done))
    if report.metrics:
        after = replace(after, metrics=_newest(after.metrics, dict(report.metrics)))
    if report.is_yielding or report.is_ready:
        after = replace(after, yielded=job.attempts)
    if report.saves_later:
        after = replace(after, saves_later=job.attempts)
    after = replace(after, only_saves=report.is_deaf)
    after = _with_epochs(job, after, report)
    after = _measured(job, after, report)
    if report.checkpoint is not None:
        after = _with_checkpoint(job, after, report.checkpoint, now)
    after = after.counting(after.epochs_done - known.epochs_done)
    return replace(after, ends_at=_ends_at(job, after, report, now))


def _newest(known: dict[str, float], told: dict[str, float]) -> dict[str, float]:
    older = {name: value for name, value in known.items() if name not in told}
    return dict([*older.items(), *told.items()][-METRICS_MAX:])


def _with_epochs(job: LiveJob, known: TrainingRecord, report: Report) -> TrainingRecord:
    assert job.attempt is not None
    at, first = (job.attempt.width, len(job.record.nodes)), job.attempt.resume.epochs_done + 1
    for number, seconds in report.epochs:
        measured = known.epoch_s()
        known = known.with_epoch(
            at,
            number,
            seconds,
            is_first=number <= first,
            attempt=job.attempts,
            expected_s=predict(measured, *at) if measured else None,
        )
    return known


def _measured(job: LiveJob, known: TrainingRecord, report: Report) -> TrainingRecord:
    assert job.attempt is not None
    at = job.attempt.width, len(job.record.nodes)
    if report.steps is not None:
        known = known.with_steps(at, *report.steps, report.steps_per_epoch, _epoch_of_steps(known, report))
    if report.memory_mib is not None:
        known = known.with_measure(known.measure(*at).with_memory(report.memory_mib))
    return known


def _epoch_of_steps(known: TrainingRecord, report: Report) -> int:
    """Of the one that has just ended, or the one under way."""
    if report.epochs:
        return report.epochs[-1][0]
    return int(known.epochs_done) + (report.epochs_done is None)


def _with_checkpoint(job: LiveJob, known: TrainingRecord, checkpoint: Checkpoint, now: float) -> TrainingRecord:
    before = known.checkpoint
    if before is not None and before.epochs_done == checkpoint.epochs_done and checkpoint.path in (before.path, None):
        return known  # said again, perhaps by somebody who does not know where it lies
    assert job.attempt is not None
    at = min(max(checkpoint.at, job.attempt.created_at), now)  # its clock may be wrong, ours decides
    since = job.durable_at
    every_s = known.every_s if since is None or at <= since else mixed(known.every_s, at - since)
    kept = replace(checkpoint, at=at, attempt=job.attempts)
    return replace(known, checkpoint=kept, every_s=every_s, epochs_done=max(known.epochs_done, checkpoint.epochs_done))


def _ends_at(job: LiveJob, known: TrainingRecord, report: Report, now: float) -> float | None:
    """Were nothing to change."""
    assert job.attempt is not None
    if report.left_s is not None:
        return now + report.left_s
    if known.epochs_total is None or not known.epoch_s():
        return known.ends_at
    nodes = len({slot.node for slot in job.slots}) or 1
    epoch_s = predict(known.epoch_s(), job.attempt.width, nodes)
    left_s = max(0.0, known.epochs_total - known.epochs_done) * known.lengths * epoch_s
    return now + left_s if left_s < LEFT_S_MAX else None
