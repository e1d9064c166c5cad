"""What came of a simulation, in numbers?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swell.model.job import JobState
from swell.sim.simulation import JobResult, Result

DONE = str(JobState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one simulation; times in seconds. None: no job was done."""

    jobs: int
    done: int
    mean_s: float | None  #: from submission to end
    median_s: float | None
    p99_s: float | None
    makespan_s: float | None  #: from the first submission to the last end
    waited_s: float | None  #: from submission to the first start, on average
    restarts_per_job: float
    gpu_hours_per_job: float
    lost_gpu_hours: float
    utilization: float  #: part of the GPU time until the last end in which GPUs were held
    worst_fairness: float | None  #: the most that a job took longer than on its equal share of the cluster
    lower_bound_s: float | None  #: mean, were every job alone on the cluster at its best width
    decisions: int

    def to_document(self) -> dict[str, Any]:
        return {name: _short(value) for name, value in asdict(self).items()}


def summarize(result: Result, gpus: int) -> Summary:
    done = [job for job in result.jobs if job.state == DONE and job.completion_s is not None]
    times = sorted(job.completion_s for job in done if job.completion_s is not None)
    begin = min((job.submit_s for job in result.jobs), default=0.0)
    end = max((job.end_s for job in result.jobs if job.end_s is not None), default=begin)
    held = sum(job.gpu_s for job in result.jobs)
    count = max(1, len(result.jobs))
    return Summary(
        jobs=len(result.jobs),
        done=len(done),
        mean_s=_mean(times),
        median_s=times[len(times) // 2] if times else None,
        p99_s=times[int(0.99 * len(times))] if times else None,
        makespan_s=end - begin if done else None,
        waited_s=_mean([job.start_s - job.submit_s for job in result.jobs if job.start_s is not None]),
        restarts_per_job=sum(job.restarts for job in result.jobs) / count,
        gpu_hours_per_job=held / 3600 / count,
        lost_gpu_hours=sum(job.lost_gpu_s for job in result.jobs) / 3600,
        utilization=held / (gpus * (end - begin)) if gpus and end > begin else 0.0,
        worst_fairness=max((_fairness(job) for job in done), default=None),
        lower_bound_s=_mean([job.alone_s for job in done]),
        decisions=result.cycles,
    )


def job_document(job: JobResult) -> dict[str, Any]:
    return {name: _short(value) for name, value in asdict(job).items()} | {"completion_s": _short(job.completion_s)}


def to_json(document: Any) -> str:
    """The same bytes for the same document."""
    return json.dumps(document, indent=2, sort_keys=False, allow_nan=False)


def _fairness(job: JobResult) -> float:
    return 0.0 if job.completion_s is None else job.completion_s / max(job.fair_s, 1e-9)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
